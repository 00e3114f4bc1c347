"""How far a grid is: cells by state, and the time left by what cells like them have taken."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from .folder import STATES, Cell, Grid, State, cell_folder, error_of, state_of

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
