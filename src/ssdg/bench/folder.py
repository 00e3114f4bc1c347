"""The folder of a grid: `suite.json`, `cells/<id>/`. The state of a cell is which files exist."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from ..files import is_locked, locked, remove_leftovers, write_json

State = Literal["done", "running", "failed", "missing"]
STATES: tuple[State, ...] = ("done", "running", "failed", "missing")
Flat = dict[str, Any]  # settings side by side, as `RunConfig.flat` gives them
PER_CELL = ("data", "labeled", "unlabeled", "target", "seed")  # what may differ between cells of a row


@dataclass(frozen=True)
class Cell:
    """One run of a grid. Rows that resolve to the same configuration share it."""

    id: str
    row: str
    task: str
    seed: int
    config: Flat

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.row} · {self.task} · seed {self.seed}"


@dataclass(frozen=True)
class Grid:
    """What `suite.json` holds. The orders are those of the whole suite, of which rows and tasks may be a part."""

    name: str
    table: str | None
    data: str
    preset: str
    settings: Flat  # given for all rows
    rows: tuple[Flat, ...]  # name, family, paper
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    row_order: tuple[str, ...] = field(default=(), compare=False)
    task_order: tuple[str, ...] = field(default=(), compare=False)

    def as_json(self) -> dict[str, Any]:
        """For `suite.json`."""
        told = {key: value for key, value in asdict(self).items() if not key.endswith("_order")}
        return {"format": 1, **told}


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
    """What `suite.json` says."""
    path = folder / "suite.json"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told.pop("format") == 1:
            cells = tuple(Cell(**cell) for cell in told.pop("cells"))
            told |= {key: tuple(told[key]) for key in ("rows", "tasks", "seeds")}
            return Grid(**told, cells=cells)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"'{folder}' is not a benchmark folder (it has no suite.json); "
            f"start one with ssdg bench SUITE --out {folder}"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise UserError(f"'{path}' is damaged or of another version; give another --out, or delete this file")


def claim(folder: Path, asked: Grid) -> None:
    """Make the folder this grid's, or let it grow by the cells that are asked for now."""
    with locked(folder / ".suite.lock"):
        remove_leftovers(folder / "suite.json")
        grid = joined(read_grid(folder), asked, folder) if (folder / "suite.json").exists() else asked
        write_json(folder / "suite.json", grid.as_json())


def joined(before: Grid, now: Grid, folder: Path) -> Grid:
    """The cells of both, where they belong to the same suite."""
    check_same(before, now, folder)
    rows = {row["name"]: row for row in (*before.rows, *now.rows)}
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
        mine, theirs = (row_settings(grid, row["name"]) for grid in (now, before))
        told += differences(theirs, mine) if theirs else []
    if told:
        raise UserError(f"{folder} holds another benchmark ({', '.join(told[:3])}); give another --out")


def about(grid: Grid) -> Flat:
    """What all cells have in common."""
    return {"suite": grid.name, "table": grid.table, "data": grid.data, "preset": grid.preset, **grid.settings}


def row_settings(grid: Grid, row: str) -> Flat:
    """What all cells of a row have in common; nothing for a row that the grid has not."""
    first = next((cell for cell in grid.cells if cell.row == row), None)
    return {key: value for key, value in first.config.items() if key not in PER_CELL} if first else {}


def differences(before: Flat, now: Flat) -> list[str]:
    """`lr=0.1 there, 0.2 now` for every key that differs; files and folders may have moved."""
    keys = [key for key in before.keys() | now.keys() if last_part(before.get(key)) != last_part(now.get(key))]
    return [f"{key}={before.get(key)!r} there, {now.get(key)!r} now" for key in sorted(keys)]


def last_part(value: Any) -> Any:
    """Of a path; of nothing else."""
    return Path(value).name if isinstance(value, str) else value
