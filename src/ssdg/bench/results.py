"""What a benchmark folder holds: `suite.json`, and the `result.json` of every cell that has one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import UserError

Number = Literal["last-five", "final"]
Result = dict[str, Any]


class SuiteRow(BaseModel):
    """A row of the table: its label, its family, and where the paper has its numbers."""

    model_config = ConfigDict(frozen=True)

    name: str
    family: str
    paper: Mapping[str, Any] | None = None


class SuiteCell(BaseModel):
    """One run: a row on a task with a seed, in the folder `cells/<id>`."""

    model_config = ConfigDict(frozen=True)

    id: str
    row: str
    task: str
    seed: int
    config: Mapping[str, Any]


class Suite(BaseModel):
    """`suite.json`: all the cells that there are or will be."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1]
    name: str
    table: str | None = None
    data: str | None = None
    preset: str
    rows: tuple[SuiteRow, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[SuiteCell, ...]

    def of(self, row: str) -> list[SuiteCell]:
        """The cells of a row."""
        return [cell for cell in self.cells if cell.row == row]


class Results:
    """A suite and the results that are there, by the id of their cell."""

    def __init__(self, suite: Suite, found: Mapping[str, Result]) -> None:
        self.suite = suite
        self.found = found

    def accuracy(self, cell: SuiteCell, number: Number) -> float | None:
        """Percent right on the target, the networks' probabilities averaged; None for a cell that is not done."""
        if cell.id not in self.found:
            return None
        return float(self.found[cell.id]["target"][number.replace("-", "_")]["mean"])

    def scores(self, row: str, number: Number) -> dict[tuple[str, int], float]:
        """What is known of a row, by task and seed."""
        known = {(cell.task, cell.seed): self.accuracy(cell, number) for cell in self.suite.of(row)}
        return {place: value for place, value in known.items() if value is not None}


def read_results(folder: Path) -> Results:
    """Read a benchmark folder; cells without a result are left out."""
    suite = read_suite(folder)
    paths = {cell.id: folder / "cells" / cell.id / "result.json" for cell in suite.cells}
    return Results(suite, {name: read_result(path) for name, path in paths.items() if path.exists()})


def read_suite(folder: Path) -> Suite:
    """The suite of a benchmark folder, or a sentence on what is wrong with it."""
    path = folder / "suite.json"
    try:
        suite = Suite.model_validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        told = f"'{folder}' is not a benchmark folder (it has no suite.json)"
        raise UserError(f"{told}; start one with ssdg bench SUITE --out {folder}") from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise UserError(
            f"'{path}' is damaged or of another version ({_first(error)}); start the suite again"
        ) from None
    names = {row.name for row in suite.rows}
    if strange := [cell for cell in suite.cells if cell.row not in names or cell.task not in suite.tasks]:
        told = f"a cell of row '{strange[0].row}' and task '{strange[0].task}', which it does not list"
        raise UserError(f"'{path}' has {told}; start the suite again")
    return suite


def _first(error: ValidationError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return " ".join(f"{place} {first['msg']}".split())


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
