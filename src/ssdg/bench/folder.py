"""The folder of a grid: `suite.json` and `cells/<id>/`. The state of a cell is which of its files exist."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import UserError
from ..files import is_locked, locked, remove_leftovers, write_json

State = Literal["done", "running", "failed", "missing"]
STATES: tuple[State, ...] = ("done", "running", "failed", "missing")
Flat = dict[str, Any]  # settings side by side, as `RunConfig.flat` gives them
PER_CELL = ("data", "labeled", "unlabeled", "target", "seed")  # what may differ between cells of a row
STRICT = ConfigDict(extra="forbid")  # a file with more in it is not written anew without it


@dataclass(frozen=True)
class GridRow:
    """A row of the table: its label, its family, and where the paper has its numbers."""

    __pydantic_config__: ClassVar = STRICT

    name: str
    family: str
    paper: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Cell:
    """One run of a grid, in the folder `cells/<id>`. Rows that resolve to the same configuration share it."""

    __pydantic_config__: ClassVar = STRICT

    id: str
    row: str
    task: str
    seed: int
    config: Flat

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.row} · {self.task} · seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What `suite.json` holds. The orders are those of the whole suite, of which rows and tasks may be a part."""

    __pydantic_config__: ClassVar = STRICT

    format: Literal[1]
    name: str
    table: str | None = None
    data: str
    preset: str
    settings: Flat = field(default_factory=dict)  # given for all rows
    rows: tuple[GridRow, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    row_order: tuple[str, ...] = field(default=(), compare=False)
    task_order: tuple[str, ...] = field(default=(), compare=False)

    @property
    def presets(self) -> str:
        """For people: the preset, or those of rows that have their own."""
        names = list(dict.fromkeys(str(cell.config.get("preset", self.preset)) for cell in self.cells))
        return f"preset{'s' * (len(names) > 1)} {' and '.join(names)}"

    def of(self, row: str) -> list[Cell]:
        """The cells of a row."""
        return [cell for cell in self.cells if cell.row == row]

    def as_json(self) -> Flat:
        """For `suite.json`."""
        return {key: value for key, value in asdict(self).items() if not key.endswith("_order")}


def cell_folder(folder: Path, cell: str) -> Path:
    """The run folder of a cell."""
    return folder / "cells" / cell


def lock_of(folder: Path, cell: str) -> Path:
    """Held by the worker of a cell from its first moment to its last."""
    return cell_folder(folder, cell) / ".cell.lock"


def lock_of_launcher(folder: Path, host: str) -> Path:
    """Held by the launcher of a folder on a machine; a folder without this file is not the one it works in."""
    return folder / f".launcher-{host}.lock"


def error_of(folder: Path, cell: str) -> Path:
    """Why the cell failed, in a sentence."""
    return cell_folder(folder, cell) / "error.txt"


def state_of(folder: Path, cell: str) -> State:
    """What the files say; a result is written last."""
    if (cell_folder(folder, cell) / "result.json").exists():
        return "done"
    if is_locked(lock_of(folder, cell)):
        return "running"
    return "failed" if error_of(folder, cell).exists() else "missing"


def read_grid(folder: Path) -> Grid:
    """What `suite.json` says, or a sentence on what is wrong with it."""
    path, remedy = folder / "suite.json", "give another --out, or delete this file and start the suite again"
    try:
        grid = TypeAdapter(Grid).validate_json(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        told = f"'{folder}' is not a benchmark folder (it has no suite.json)"
        raise UserError(f"{told}; start one with ssdg bench SUITE --out {folder}") from None
    except (ValidationError, UnicodeDecodeError) as error:
        raise UserError(f"'{path}' is damaged or of another version ({_first(error)}); {remedy}") from None
    names = {row.name for row in grid.rows}
    if strange := [cell for cell in grid.cells if cell.row not in names or cell.task not in grid.tasks]:
        told = f"a cell of row '{strange[0].row}' and task '{strange[0].task}', which it does not list"
        raise UserError(f"'{path}' has {told}; {remedy}")
    return grid


def _first(error: ValidationError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return " ".join(f"{place} {first['msg']}".split())


def claim(folder: Path, asked: Grid) -> None:
    """Make the folder this grid's, or let it grow by the cells that are asked for now."""
    with locked(folder / ".suite.lock"):
        remove_leftovers(folder / "suite.json")
        grid = joined(read_grid(folder), asked, folder) if (folder / "suite.json").exists() else asked
        write_json(folder / "suite.json", grid.as_json())


def joined(before: Grid, now: Grid, folder: Path) -> Grid:
    """The cells of both, where they belong to the same suite."""
    check_same(before, now, folder)
    rows = {row.name: row for row in (*before.rows, *now.rows)}
    cells = {(cell.seed, cell.task, cell.row): cell for cell in (*before.cells, *now.cells)}
    row_names = in_order(rows, now.row_order)
    tasks = in_order(dict.fromkeys((*before.tasks, *now.tasks)), now.task_order)
    seeds = sorted({*before.seeds, *now.seeds})
    keys = [(seed, task, row) for seed in seeds for task in tasks for row in row_names]
    return replace(
        now,
        rows=tuple(rows[name] for name in row_names),
        tasks=tuple(tasks),
        seeds=tuple(seeds),
        cells=tuple(cells[key] for key in keys if key in cells),
    )


def in_order(names: Any, order: tuple[str, ...]) -> list[str]:
    """As the whole suite has them; others last."""
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def check_same(before: Grid, now: Grid, folder: Path) -> None:
    """A folder holds one suite with one set of settings: numbers of two would be averaged into one."""
    told = differences(about(before), about(now))
    for row in now.rows:
        mine, theirs = (row_settings(grid, row.name) for grid in (now, before))
        told += differences(theirs, mine) if theirs else []
    if told:
        raise UserError(f"{folder} holds another benchmark ({', '.join(told[:3])}); give another --out")


def about(grid: Grid) -> Flat:
    """What all cells have in common."""
    return {"suite": grid.name, "table": grid.table, "data": grid.data, "preset": grid.preset, **grid.settings}


def row_settings(grid: Grid, row: str) -> Flat:
    """What all cells of a row have in common; nothing for a row that the grid has not."""
    cells = grid.of(row)
    return {key: value for key, value in cells[0].config.items() if key not in PER_CELL} if cells else {}


def differences(before: Flat, now: Flat) -> list[str]:
    """`lr=0.1 there, 0.2 now` for every key that differs; files and folders may have moved."""
    keys = [key for key in before.keys() | now.keys() if last_part(before.get(key)) != last_part(now.get(key))]
    return [f"{key}={before.get(key)!r} there, {now.get(key)!r} now" for key in sorted(keys)]


def last_part(value: Any) -> Any:
    """Of a path; of nothing else."""
    return Path(value).name if isinstance(value, str) else value


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
