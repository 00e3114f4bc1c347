"""A benchmark folder: `suite.json` and `cells/<id>/`. Which files of a cell exist is its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..errors import UserError, brief
from ..files import file_name, is_locked, locked, read_bytes, remove_free_lock, remove_leftovers, write_json
from ..schema import Result, damaged, first_problem, read_json

State = Literal["done", "running", "failed", "missing"]
STATES: tuple[State, ...] = ("done", "running", "failed", "missing")
Flat = dict[str, Any]  # settings as `RunConfig.flat` returns them
PER_CELL = ("data", "labeled", "unlabeled", "target", "seed")  # settings that may differ between cells of a row
STRICT = ConfigDict(extra="forbid")  # rewriting a file would drop unknown keys


@dataclass(frozen=True)
class GridRow:
    """A row of the table: label, family, and where to find the paper's numbers."""

    __pydantic_config__: ClassVar = STRICT

    name: str
    family: str
    paper: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Cell:
    """One run of a grid, in the folder `cells/<id>`. Rows with the same resolved configuration share it."""

    __pydantic_config__: ClassVar = STRICT

    id: str
    row: str
    task: str
    seed: int
    config: Flat

    @property
    def title(self) -> str:
        """Row, task and seed, for messages."""
        return f"{self.row} · {self.task} · seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Contents of `suite.json`. The orders are those of the whole suite, of which a grid may be a part."""

    __pydantic_config__: ClassVar = STRICT

    format: Literal[1]
    name: str
    table: str | None = None
    data: str
    preset: str
    settings: Flat = field(default_factory=dict)  # overrides for all rows
    rows: tuple[GridRow, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    row_order: tuple[str, ...] = field(default=(), compare=False)
    task_order: tuple[str, ...] = field(default=(), compare=False)

    @property
    def presets(self) -> str:
        """The preset, or those of rows that have their own, for messages."""
        names = list(dict.fromkeys(str(cell.config.get("preset", self.preset)) for cell in self.cells))
        return f"preset{'s' * (len(names) > 1)} {' and '.join(names)}"

    def of(self, row: str) -> list[Cell]:
        """Return the cells of a row."""
        return [cell for cell in self.cells if cell.row == row]

    def as_json(self) -> Flat:
        """Return the contents of `suite.json`."""
        return {key: value for key, value in asdict(self).items() if not key.endswith("_order")}


def cell_folder(folder: Path, cell: str) -> Path:
    """Return the run folder of a cell."""
    return folder / "cells" / cell


def lock_of(folder: Path, cell: str) -> Path:
    """Return the lock that the worker of a cell holds as long as it runs."""
    return cell_folder(folder, cell) / ".cell.lock"


def lock_of_launcher(folder: Path, host: str) -> Path:
    """Return the lock that the launcher on a machine holds; a folder without it is not the one it works in."""
    return folder / f".launcher-{host}.lock"


def error_of(folder: Path, cell: str) -> Path:
    """Return the file that says in one sentence why a cell failed."""
    return cell_folder(folder, cell) / "error.txt"


def state_of(folder: Path, cell: str) -> State:
    """Return the state of a cell from its files; the result is written last."""
    if (cell_folder(folder, cell) / "result.json").exists():
        return "done"
    if is_locked(lock_of(folder, cell)):
        return "running"
    return "failed" if error_of(folder, cell).exists() else "missing"


def remove_leftovers_of_worker(folder: Path, cell: str) -> None:
    """Remove what the worker of a finished cell left, if it was killed between its result and its end."""
    run_folder = cell_folder(folder, cell)
    remove_leftovers(run_folder / "*")
    for lock in (run_folder / ".lock", lock_of(folder, cell)):
        remove_free_lock(lock)
    error_of(folder, cell).unlink(missing_ok=True)


def read_grid(folder: Path) -> Grid:
    """Read `suite.json`; raise `UserError` if it is missing or damaged."""
    path, remedy = folder / "suite.json", "use another --out, or delete this file and start the suite again"
    try:
        grid = TypeAdapter(Grid).validate_json(read_bytes(path))
    except (FileNotFoundError, NotADirectoryError):
        problem = f"'{folder}' is not a benchmark folder (it has no suite.json)"
        raise UserError(f"{problem}; start one with ssdg bench SUITE --out {folder}") from None
    except ValidationError as error:
        raise damaged(path, first_problem(error), remedy) from None
    names = {row.name for row in grid.rows}
    if unlisted := [cell for cell in grid.cells if cell.row not in names or cell.task not in grid.tasks]:
        cell = f"a cell of row '{unlisted[0].row}' and task '{unlisted[0].task}', which it does not list"
        raise UserError(f"'{path}' has {cell}; {remedy}")
    return grid


def claim(folder: Path, grid: Grid) -> None:
    """Write the grid to a new folder, or add its cells to the grid of an existing one."""
    with locked(folder / ".suite.lock"):
        remove_leftovers(folder / "suite.json")
        merged = joined(read_grid(folder), grid, folder) if (folder / "suite.json").exists() else grid
        write_json(folder / "suite.json", merged.as_json())


def joined(before: Grid, now: Grid, folder: Path) -> Grid:
    """Return the cells of both grids, which must belong to the same suite."""
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


def in_order(names: Iterable[str], order: tuple[str, ...]) -> list[str]:
    """Sort names by the order of the whole suite, unknown ones last."""
    return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def check_same(before: Grid, now: Grid, folder: Path) -> None:
    """Require one suite with one set of settings per folder, as a table averages over all cells of a row."""
    changes = differences(shared_settings(before), shared_settings(now))
    for row in now.rows:
        settings = row_settings(before, row.name)
        changes += differences(settings, row_settings(now, row.name)) if settings else []
    if changes:
        raise UserError(f"{folder} holds another benchmark ({', '.join(changes[:3])}); use another --out")


def shared_settings(grid: Grid) -> Flat:
    """Return what all cells have in common."""
    return {"suite": grid.name, "table": grid.table, "data": grid.data, "preset": grid.preset, **grid.settings}


def row_settings(grid: Grid, row: str) -> Flat:
    """Return the settings that all cells of a row have in common; none for an unknown row."""
    cells = grid.of(row)
    return {key: value for key, value in cells[0].config.items() if key not in PER_CELL} if cells else {}


def differences(before: Flat, now: Flat) -> list[str]:
    """Return `lr=0.1 there, 0.2 now` for every key that differs; files and folders may have moved."""
    keys = [key for key in before.keys() | now.keys() if last_part(before.get(key)) != last_part(now.get(key))]
    return [f"{key}={brief(before.get(key))} there, {brief(now.get(key))} now" for key in sorted(keys)]


def last_part(value: Any) -> Any:
    """Return the file name of a path, and any other value as it is."""
    return file_name(value) if isinstance(value, str) else value


Number = Literal["last-five", "final"]
Network = Literal["1", "2", "mean"]  # which network a table scores


@dataclass(frozen=True)
class Results:
    """A grid and the results of its finished cells."""

    grid: Grid
    by_cell: Mapping[str, Result]  # by id of the cell

    def count_cells(self) -> tuple[int, int]:
        """Return the number of finished cells, and that of all cells."""
        return sum(cell.id in self.by_cell for cell in self.grid.cells), len(self.grid.cells)

    def accuracy(self, cell: Cell, number: Number, network: Network = "mean") -> float | None:
        """Return the accuracy (%) of a network on the target; None if the cell is not finished.

        `mean` averages the networks' probabilities. A method with fewer networks is scored by its mean.
        """
        scores = self.by_cell[cell.id].target if cell.id in self.by_cell else None
        if scores is None:
            return None
        by_network = scores.final if number == "final" else scores.last_five
        return by_network.get(f"network_{network}", by_network["mean"])

    def scores(self, row: str, number: Number, network: Network = "mean") -> dict[tuple[str, int], float]:
        """Return the known accuracies of a row by task and seed."""
        known = {(cell.task, cell.seed): self.accuracy(cell, number, network) for cell in self.grid.of(row)}
        return {key: value for key, value in known.items() if value is not None}


def read_results(folder: Path) -> Results:
    """Read a benchmark folder; cells without a result are left out."""
    grid = read_grid(folder)
    paths = {cell.id: cell_folder(folder, cell.id) / "result.json" for cell in grid.cells}
    return Results(grid, {name: read_result(path) for name, path in paths.items() if path.exists()})


def read_result(path: Path) -> Result:
    """Read the `result.json` of a finished cell, which must have a scored target."""
    remedy = f"delete the folder '{path.parent}' and run the suite again"
    result = read_json(path, Result, remedy=remedy)
    if result.target is None or not all("mean" in part for part in (result.target.final, result.target.last_five)):
        raise UserError(f"'{path}' has no scored target; {remedy}")
    return result
