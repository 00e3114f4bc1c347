"""What a grid looks like on a terminal: a bar over cells with the time left, a line for every cell that ends."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from ..bench.folder import Cell, Grid, cell_folder, error_of
from ..bench.launch import News
from ..bench.status import Status, read_status
from .display import duration


class GridDisplay:
    """Listens to a launcher."""

    def __init__(self, folder: Path, grid: Grid, workers: int) -> None:
        self.folder, self.grid, self.workers = folder, grid, workers
        self.cells = first_cells(grid)
        self.console = Console(highlight=False, soft_wrap=True)
        self.bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("cells · {task.fields[left]} left"),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task(grid.name, total=len(self.cells), left="-")
        self.at: dict[str, str] = {}  # what has become of the cells that were heard of

    def __enter__(self) -> GridDisplay:
        status = read_status(self.folder, self.grid)
        self.say(f"{self.grid.name} · preset {self.grid.preset} · {self.grid.data}", "bold")
        sizes = f"{len(self.grid.rows)} rows, {len(self.grid.tasks)} tasks, {len(self.grid.seeds)} seeds"
        self.say(f"  {sizes}: {len(self.cells)} cells, {status.counts['done']} of them done")
        self.say(f"  {self.workers} at a time, in {self.folder}")
        self._move(status)
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def say(self, text: str, style: str | None = None) -> None:
        """A line as it is: names may look like markup."""
        self.console.print(text, style=style, markup=False)

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
    console, cells = Console(highlight=False, soft_wrap=True), first_cells(grid)

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False)

    say(f"{grid.name} · preset {grid.preset} · {grid.data}", "bold")
    say(counts_line(status))
    left, workers = status.seconds_left(grid.cells), max(1, status.counts["running"])
    say("time left: not known yet" if left is None else f"about {duration(left)} left with {workers} at a time")
    for cell, state in status.states.items():
        if state == "running":
            say(f"running  {cells[cell].title}")
    for cell, told in status.errors.items():
        say(f"failed   {cells[cell].title}: {told}", "red")
