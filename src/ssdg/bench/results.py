"""What a benchmark folder holds: `suite.json`, and the `result.json` of every cell that has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from .folder import Cell, Grid, cell_folder, read_grid

Number = Literal["last-five", "final"]
Result = dict[str, Any]


class Results:
    """A grid and the results that are there, by the id of their cell."""

    def __init__(self, grid: Grid, found: Mapping[str, Result]) -> None:
        self.grid = grid
        self.found = found

    def accuracy(self, cell: Cell, number: Number) -> float | None:
        """Percent right on the target, the networks' probabilities averaged; None for a cell that is not done."""
        if cell.id not in self.found:
            return None
        return float(self.found[cell.id]["target"][number.replace("-", "_")]["mean"])

    def scores(self, row: str, number: Number) -> dict[tuple[str, int], float]:
        """What is known of a row, by task and seed."""
        known = {(cell.task, cell.seed): self.accuracy(cell, number) for cell in self.grid.of(row)}
        return {place: value for place, value in known.items() if value is not None}


def read_results(folder: Path) -> Results:
    """Read a benchmark folder; cells without a result are left out."""
    grid = read_grid(folder)
    paths = {cell.id: cell_folder(folder, cell.id) / "result.json" for cell in grid.cells}
    return Results(grid, {name: read_result(path) for name, path in paths.items() if path.exists()})


def read_result(path: Path) -> Result:
    """A finished run's `result.json`, which must have a scored target."""
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
        float(result["target"]["final"]["mean"])
        float(result["target"]["last_five"]["mean"])
        int(result["target"]["epochs_averaged"])
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"'{path}' is damaged or has no scored target; delete the folder '{path.parent}' and run the suite again"
        ) from None
    return dict(result)
