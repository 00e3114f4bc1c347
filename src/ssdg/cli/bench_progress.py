"""The progress of a grid on a terminal: cells by state, the time left, a line for every finished cell."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Self

from ..bench.folder import STATES, Cell, Grid, State, cell_folder, error_of, state_of
from ..bench.launch import News
from ..display import Screen, duration

RUNNING_SHARE = 0.5  # of a running cell that is still to be done, for want of a better guess


@dataclass(frozen=True)
class Status:
    """States and, of cells that are done, seconds, by id; a cell that two rows share is counted once."""

    states: Mapping[str, State]
    seconds: Mapping[str, float]
    errors: Mapping[str, str]

    @property
    def counts(self) -> dict[State, int]:
        """Cells by state, also those of which there is none."""
        found = Counter(self.states.values())
        return {state: found[state] for state in STATES}

    def seconds_left(self, cells: Iterable[Cell], workers: int | None = None) -> float | None:
        """Of running and missing cells; None before any is done. Workers: as many as are running, or one."""
        rows = {cell.id: cell.row for cell in cells}
        taken: dict[str, list[float]] = {}
        for cell, seconds in self.seconds.items():
            taken.setdefault(rows[cell], []).append(seconds)
        if not taken:
            return None
        usual = mean(mean(values) for values in taken.values())
        shares = {"missing": 1.0, "running": RUNNING_SHARE, "failed": 0.0, "done": 0.0}
        to_do = sum(
            shares[state] * (mean(taken[rows[cell]]) if rows[cell] in taken else usual)
            for cell, state in self.states.items()
        )
        return to_do / (workers or max(1, self.counts["running"]))


def read_status(folder: Path, grid: Grid) -> Status:
    """What the files say now."""
    ids = dict.fromkeys(cell.id for cell in grid.cells)
    states = {cell: state_of(folder, cell) for cell in ids}
    done = [cell for cell, state in states.items() if state == "done"]
    failed = [cell for cell, state in states.items() if state == "failed"]
    return Status(
        states,
        {cell: read_seconds(cell_folder(folder, cell) / "result.json") for cell in done},
        {cell: error_of(folder, cell).read_text(encoding="utf-8").strip() for cell in failed},
    )


def read_seconds(path: Path) -> float:
    """How long a finished run has trained."""
    return float(json.loads(path.read_text(encoding="utf-8"))["seconds"])


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
