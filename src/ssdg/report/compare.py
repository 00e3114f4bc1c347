"""Compare several runs, or the rows of a benchmark: tables, overlaid curves, settings side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from ..bench.folder import STATES, Cell, Results, error_of, read_results, row_settings, state_of
from ..bench.tables.results_table import AVERAGE, AVERAGE_OF_MEAN, Entry, Line, make_table
from ..files import read_text
from ..schema import Epoch
from . import summary
from .curves import EPOCHS, PERCENT, Figure, line, rounded
from .run_folder import Run

MAX_NAMED_CELLS = 8  # of each state
Table = dict[str, Any]


def compare_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """Return a table of runs, one per row, with their curves and settings."""
    curves = [_overlay("Test accuracy (%)", {run.name: _target_curve(run.product) for run in runs})]
    settings = settings_tables({run.name: run.config for run in runs})
    return {"title": "Comparison", "table": _runs_table(runs), "settings": settings, "curves": _nonempty(curves)}


RUN_COLUMNS = [
    "run",
    "test accuracy (%)",
    "last five epochs (%)",
    "held-out labeled (%)",
    "time, s",
    "method",
    "task",
    "seed",
    "state",
]


def _runs_table(runs: Sequence[Run]) -> Table:
    rows = []
    for run in runs:
        result, task = run.result, f"{run.task.labeled} → {run.task.target or '-'}"
        last_five = result.target.last_five.get("mean") if result and result.target else None
        scores = [run.accuracy("target"), last_five, run.accuracy("validation")]
        time = {"text": f"{result.seconds:,.0f}", "sort": result.seconds} if result else None
        facts = [str(run.config.get("method")), task, str(run.config.get("seed"))]
        rows.append([run.name, *scores, time, *facts, summary.state_of(run)])
    return {"caption": "Runs", "columns": RUN_COLUMNS, "rows": rows, "notes": []}


def _target_curve(rows: Sequence[Epoch]) -> list[float | None]:
    return [row.target[-1] if row.target else None for row in rows]


def _overlay(title: str, curves: Mapping[str, list[float | None]]) -> Figure:
    """Overlay curves of different lengths over the epochs of all cycles."""
    known = {name: values for name, values in curves.items() if any(value is not None for value in values)}
    length = max(map(len, known.values()), default=0)
    series = {name: [*values, *[None] * (length - len(values))] for name, values in known.items()}
    names = [f"epoch {number}" for number in range(1, length + 1)]
    return line(title, names, series, x=EPOCHS, y="accuracy (%)", bounds=PERCENT, least=10.0)


def _nonempty(figures: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure["series"]]


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten settings; those of a group are named like `labeler.lr`."""
    settings: dict[str, Any] = {}
    for key, value in config.items():
        settings |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return settings


def settings_tables(configs: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Return the settings that differ, and, collapsed, those that only some runs have."""
    flattened = {name: flat(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for config in flattened.values() for key in config)
    values = {key: {repr(config[key]) for config in flattened.values() if key in config} for key in keys}
    differing = [key for key in keys if len(values[key]) > 1]
    partial = [key for key in keys if len(values[key]) == 1 and any(key not in c for c in flattened.values())]
    same = f"{len(keys) - len(differing) - len(partial)} other settings are equal."
    tables = (("Differing settings", differing, False), ("Settings not shared by all", partial, True))
    return [
        {
            "caption": caption,
            "columns": ["setting", *flattened],
            "rows": [[key, *(_text(config, key) for config in flattened.values())] for key in chosen],
            "notes": [] if closed else [same],
            "closed": closed,
        }
        for caption, chosen, closed in tables
        if chosen
    ]


def _text(config: Mapping[str, Any], key: str) -> str:
    return "-" if key not in config else "none" if config[key] is None else str(config[key])


def compare_benchmark(folder: Path) -> dict[str, Any]:
    """Return the table of a benchmark folder with the paper's numbers, unfinished cells, and curves by task."""
    results = read_results(folder)
    grid, table = results.grid, make_table(results, "last-five", paper=True)
    papers = [entry.paper for row in table.lines for entry in row.entries.values() if entry.paper is not None]
    view = {
        "caption": f"Test accuracy (%){', and in small print the paper’s and the difference' if papers else ''}",
        "columns": ["method", *(column.replace(">", " → ") for column in table.columns)],
        "rows": [_line(row, table.columns, results) for row in table.lines],
        "first": [n for n, column in enumerate(table.columns, start=1) if column in (AVERAGE, AVERAGE_OF_MEAN)],
        "notes": [*_notes(table.notes, bool(papers)), *_unfinished(folder, grid.cells)],
    }
    configs = {row.name: row_settings(grid, row.name) for row in grid.rows}
    curves = [
        _overlay(f"Test accuracy (%), {task.replace('>', ' → ')}", _curves(results, task)) for task in grid.tasks
    ]
    settings = settings_tables(configs)
    title = f"Benchmark {folder.resolve().name}"
    return {"title": title, "table": view, "settings": settings, "curves": _nonempty(curves)}


def _notes(notes: Sequence[str], has_papers: bool) -> list[str]:
    return [note for note in notes if has_papers or not note.startswith("The paper's")]


def _line(row: Line, columns: Sequence[str], results: Results) -> list[Any]:
    planned = {column: [cell for cell in results.grid.of(row.name) if cell.task == column] for column in columns}
    return [{"text": row.name, "sort": row.name}, *(_entry(row.entries[c], len(planned[c])) for c in columns)]


def _entry(entry: Entry, planned: int) -> dict[str, Any]:
    """Return `61.20 ± 0.51`, and in small print the paper's number and the difference."""
    paper = "" if entry.paper is None else f"{entry.paper:.2f}"
    if entry.mean is None:
        return {"text": "-", "sort": None, "mark": "missing", "small": paper, "title": "no finished cell"}
    spread = "" if entry.deviation is None else f" ± {entry.deviation:.2f}"
    short = f" ({len(entry.values)} of {planned})" if 0 < len(entry.values) < planned else ""
    small = paper and f"{paper} {entry.mean - (entry.paper or 0):+.2f}".replace("-", "−")
    text = f"{entry.mean:.2f}{spread}{short}"
    return {"text": text, "sort": rounded(entry.mean), "mark": entry.mark or None, "small": small}


def _unfinished(folder: Path, cells: Sequence[Cell]) -> list[str]:
    """Return how many cells are in which state, and which ones failed or are missing."""
    states = {cell.id: state_of(folder, cell.id) for cell in cells}
    counts = [f"{n} {state}" for state in STATES if (n := list(states.values()).count(state))]
    notes = [f"Cells: {', '.join(counts)}."]
    for state in ("failed", "missing"):
        matches = [cell for cell in cells if states[cell.id] == state]
        parts = [cell.title + _reason(folder, cell, state) for cell in matches[:MAX_NAMED_CELLS]]
        more = f"; and {len(matches) - MAX_NAMED_CELLS} more" if len(matches) > MAX_NAMED_CELLS else ""
        notes += [f"{state.capitalize()}: {'; '.join(parts)}{more}."] if matches else []
    return notes


def _reason(folder: Path, cell: Cell, state: str) -> str:
    if state != "failed":
        return ""
    return f" ({' '.join(read_text(error_of(folder, cell.id), errors='replace').split())})"


def _curves(results: Results, task: str) -> dict[str, list[float | None]]:
    """Return the mean over seeds after each epoch by row, as far as all seeds go."""
    curves: dict[str, list[float | None]] = {}
    for row in results.grid.rows:
        cells = [cell for cell in results.grid.of(row.name) if cell.task == task and cell.id in results.by_cell]
        seeds = [[e.target[-1] for e in results.by_cell[cell.id].epochs if e.target] for cell in cells]
        if seeds := [values for values in seeds if values]:
            curves[row.name] = [mean(values) for values in zip(*seeds, strict=False)]
    return curves
