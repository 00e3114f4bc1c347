"""Progress of a grid on a terminal: cells by state, the time left, a line per finished cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Self

from ..bench.folder import STATES, Cell, Grid, State, cell_folder, error_of, state_of
from ..bench.launch import CellEvent
from ..display import Screen, duration
from ..files import read_text
from ..schema import Result, read_json

REMAINING_SHARE: dict[State, float] = {"missing": 1.0, "running": 0.5, "failed": 0.0, "done": 0.0}  # of a cell's time


@dataclass(frozen=True)
class Status:
    """States of cells by id, seconds of done cells, messages of failed ones. Rows may share a cell."""

    states: Mapping[str, State]
    seconds: Mapping[str, float]
    errors: Mapping[str, str]

    @property
    def counts(self) -> dict[State, int]:
        """Number of cells by state, including zeros."""
        counts = Counter(self.states.values())
        return {state: counts[state] for state in STATES}

    def seconds_left(self, cells: Iterable[Cell], workers: int | None = None) -> float | None:
        """Estimate the seconds left from done cells of the same row, else of all rows; None before any is done.

        The default of `workers` is the number of running cells, at least one.
        """
        rows = {cell.id: cell.row for cell in cells}
        by_row: dict[str, list[float]] = {}
        for cell, seconds in self.seconds.items():
            by_row.setdefault(rows[cell], []).append(seconds)
        if not by_row:
            return None
        overall = mean(mean(values) for values in by_row.values())
        total = sum(
            REMAINING_SHARE[state] * (mean(by_row[rows[cell]]) if rows[cell] in by_row else overall)
            for cell, state in self.states.items()
        )
        return total / (workers or max(1, self.counts["running"]))


def read_status(folder: Path, grid: Grid) -> Status:
    """Read the current states from the files of the cells."""
    states = {cell: state_of(folder, cell) for cell in first_cells(grid)}
    return Status(
        states,
        {cell: read_done(folder, cell).seconds for cell, state in states.items() if state == "done"},
        {cell: read_error(folder, cell) for cell, state in states.items() if state == "failed"},
    )


def read_done(folder: Path, cell: str) -> Result:
    """Read the result of a done cell, which may have no scored target."""
    path = cell_folder(folder, cell)
    return read_json(path / "result.json", Result, remedy=f"delete the folder '{path}' and run the suite again")


def read_error(folder: Path, cell: str) -> str:
    """Read why a cell failed."""
    return read_text(error_of(folder, cell)).strip()


class GridDisplay(Screen):
    """Shows the progress of a launcher."""

    def __init__(self, folder: Path, grid: Grid, workers: int) -> None:
        super().__init__()
        self.folder, self.grid, self.workers = folder, grid, workers
        self.cells = first_cells(grid)
        self.task = self.bar.add_task(grid.name, total=len(self.cells), counted="cells", left="-")
        self.last_events: dict[str, CellEvent] = {}  # by id of the cell

    def __enter__(self) -> Self:
        status = read_status(self.folder, self.grid)
        self.say(heading(self.grid), "bold")
        sizes = f"{len(self.grid.rows)} rows, {len(self.grid.tasks)} tasks, {len(self.grid.seeds)} seeds"
        self.say(f"  {sizes}: {len(self.cells)} cells, {status.counts['done']} of them done")
        self.say(f"  {self.workers} at a time, in {self.folder}")
        self._update_bar(status)
        return super().__enter__()

    def report(self, event: CellEvent, cell: str) -> None:
        """Show an event of a cell."""
        line, style = f"{event:<8} {self.cells[cell].title}", None
        if event == "done":
            line += f": {describe_score(read_done(self.folder, cell))}"
        elif event == "failed":
            line, style = f"{line}: {read_error(self.folder, cell)}", "red"
        if event in ("done", "failed") or not self.console.is_terminal:
            self.say(line, style)
        self.last_events[cell] = event
        self._update_bar(read_status(self.folder, self.grid))

    def _update_bar(self, status: Status) -> None:
        num_ended = status.counts["done"] + status.counts["failed"]
        num_running = sum(event == "started" for event in self.last_events.values())
        description = f"{self.grid.name} · {num_running} running"
        left = duration(status.seconds_left(self.grid.cells, self.workers))
        self.bar.update(self.task, completed=num_ended, description=description, left=left)

    def conclude(self) -> None:
        """Show the counts at the end, and how to retry failed cells."""
        self.bar.stop()
        status = read_status(self.folder, self.grid)
        self.say(counts_line(status))
        if status.errors:
            logs = f"{self.folder}/cells/ID/worker.log"
            self.say(f"run the same command again to retry failed cells; their logs are {logs}")


def heading(grid: Grid) -> str:
    """Return suite, preset and data on one line."""
    return f"{grid.name} · {grid.presets} · {grid.data}"


def first_cells(grid: Grid) -> dict[str, Cell]:
    """Return the first cell of each id; rows with the same configuration share a run."""
    cells: dict[str, Cell] = {}
    for cell in grid.cells:
        cells.setdefault(cell.id, cell)
    return cells


def describe_score(result: Result) -> str:
    """Return accuracy and time of a finished run."""
    score = f"{result.target.last_five['mean']:.2f} %" if result.target else "no scored target"
    return f"{score}, {duration(result.seconds)}"


def counts_line(status: Status) -> str:
    """Return the counts as `3 done, 0 running, 1 failed, 2 missing`."""
    return ", ".join(f"{count} {state}" for state, count in status.counts.items())


def show_status(grid: Grid, status: Status) -> None:
    """Print counts, time left, running and failed cells."""
    say, cells = Screen().say, first_cells(grid)
    say(heading(grid), "bold")
    say(counts_line(status))
    left, workers = status.seconds_left(grid.cells), max(1, status.counts["running"])
    say("time left: unknown" if left is None else f"about {duration(left)} left with {workers} at a time")
    for cell, state in status.states.items():
        if state == "running":
            say(f"running  {cells[cell].title}")
    for cell, message in status.errors.items():
        say(f"failed   {cells[cell].title}: {message}", "red")
