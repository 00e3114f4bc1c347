"""What a grid looks like on a terminal: a bar over cells with the time left, a line for every cell that ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from ..bench.folder import Cell, Grid, cell_folder, error_of
from ..bench.launch import News
from ..bench.status import Status, read_status
from ..display import Screen, duration


class GridDisplay(Screen):
    """Listens to a launcher."""

    def __init__(self, folder: Path, grid: Grid, workers: int) -> None:
        super().__init__("cells")
        self.folder, self.grid, self.workers = folder, grid, workers
        self.cells = first_cells(grid)
        self.task = self.bar.add_task(grid.name, total=len(self.cells), left="-")
        self.at: dict[str, str] = {}  # what has become of the cells that were heard of

    def __enter__(self) -> Self:
        status = read_status(self.folder, self.grid)
        self.say(heading(self.grid), "bold")
        sizes = f"{len(self.grid.rows)} rows, {len(self.grid.tasks)} tasks, {len(self.grid.seeds)} seeds"
        self.say(f"  {sizes}: {len(self.cells)} cells, {status.counts['done']} of them done")
        self.say(f"  {self.workers} at a time, in {self.folder}")
        self._move(status)
        return super().__enter__()

    def hear(self, news: News, cell: str) -> None:
        """Show what has become of a cell."""
        title, style = self.cells[cell].title, None
        if news == "done":
            told = f"done     {title}: {score_of(cell_folder(self.folder, cell) / 'result.json')}"
        elif news == "failed":
            told = f"failed   {title}: {error_of(self.folder, cell).read_text(encoding='utf-8').strip()}"
            style = "red"
        else:
            told = f"{news:<8} {title}"
        if news in ("done", "failed") or not self.console.is_terminal:
            self.say(told, style)
        self.at[cell] = news
        self._move(read_status(self.folder, self.grid))

    def _move(self, status: Status) -> None:
        """Set the bar by the files."""
        ended = status.counts["done"] + status.counts["failed"]
        running = sum(news == "started" for news in self.at.values())
        left = duration(status.seconds_left(self.grid.cells, self.workers))
        self.bar.update(self.task, completed=ended, description=f"{self.grid.name} · {running} running", left=left)

    def conclude(self) -> None:
        """The end: how many are done, which failed."""
        self.bar.stop()
        status = read_status(self.folder, self.grid)
        self.say(counts_line(status))
        if status.errors:
            self.say(f"the same command tries failed cells again; their logs: {self.folder}/cells/ID/worker.log")


def heading(grid: Grid) -> str:
    """What is compared, how, on what."""
    return f"{grid.name} · {grid.presets} · {grid.data}"


def first_cells(grid: Grid) -> dict[str, Cell]:
    """One cell for each id; rows that are the same run share it."""
    cells: dict[str, Cell] = {}
    for cell in grid.cells:
        cells.setdefault(cell.id, cell)
    return cells


def score_of(path: Path) -> str:
    """Percent right of a finished run and its time."""
    result = json.loads(path.read_text(encoding="utf-8"))
    right = f"{result['target']['last_five']['mean']:.2f} %" if "target" in result else "no scored target"
    return f"{right}, {duration(result['seconds'])}"


def counts_line(status: Status) -> str:
    """`3 done, 0 running, 1 failed, 2 missing`."""
    return ", ".join(f"{count} {state}" for state, count in status.counts.items())


def show_status(grid: Grid, status: Status) -> None:
    """Counts, time left, running and failed cells."""
    say, cells = Screen("cells").say, first_cells(grid)
    say(heading(grid), "bold")
    say(counts_line(status))
    left, workers = status.seconds_left(grid.cells), max(1, status.counts["running"])
    say("time left: not known yet" if left is None else f"about {duration(left)} left with {workers} at a time")
    for cell, state in status.states.items():
        if state == "running":
            say(f"running  {cells[cell].title}")
    for cell, told in status.errors.items():
        say(f"failed   {cells[cell].title}: {told}", "red")
