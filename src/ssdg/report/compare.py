"""Several runs, or a benchmark: tables, curves laid over each other, settings side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from ..bench.folder import STATES, Cell, Result, Results, error_of, read_results, row_settings, state_of
from ..bench.tables.results_table import Entry, Line, make_table
from ..schema import Epoch
from . import summary
from .curves import Figure, line, number
from .run_folder import Run

PERCENT = (0.0, 100.0)
MOST_TOLD = 8  # cells that are named
Table = dict[str, Any]


def compare_runs(runs: Sequence[Run]) -> dict[str, Any]:
    """The runs of a page, one line each."""
    curves = [_overlay("Accuracy on the unseen domain", {run.name: _accuracies(run.product) for run in runs})]
    settings = settings_tables({run.name: run.config for run in runs})
    return {"title": "Comparison", "table": _runs_table(runs), "settings": settings, "curves": _drawn(curves)}


def _runs_table(runs: Sequence[Run]) -> Table:
    columns = [
        "run",
        "method",
        "task",
        "seed",
        "last epoch, %",
        "last five, %",
        "held-out labeled, %",
        "time, s",
        "state",
    ]
    rows = []
    for run in runs:
        result, task = run.result, f"{run.task.labeled} → {run.task.target or '-'}"
        found, held = (result.target, result.validation) if result else (None, None)
        scores = [
            found and found.final.get("mean"),
            found and found.last_five.get("mean"),
            held and held.final.get("mean"),
        ]
        time = {"text": summary.duration(result.seconds), "sort": result.seconds} if result else None
        about = [str(run.config.get("method")), task, str(run.config.get("seed"))]
        rows.append([run.name, *about, *scores, time, summary.state_of(run)])
    return {"caption": "Runs", "columns": columns, "rows": rows, "notes": []}


def _mean(scores: Mapping[str, float] | None) -> float | None:
    return number(scores.get("mean")) if scores else None


def _accuracies(rows: Sequence[Epoch]) -> list[float | None]:
    return [row.target[-1] if row.target else None for row in rows]


def _overlay(title: str, curves: Mapping[str, list[float | None]]) -> Figure:
    """Curves of unlike lengths over the epochs of all cycles."""
    known = {name: values for name, values in curves.items() if any(value is not None for value in values)}
    length = max(map(len, known.values()), default=0)
    series = {name: [*values, *[None] * (length - len(values))] for name, values in known.items()}
    names = [f"epoch {place}" for place in range(1, length + 1)]
    return line(title, names, series, x="epoch, cycle after cycle", y="percent right", bounds=PERCENT, least=10.0)


def _drawn(figures: Sequence[Figure]) -> list[Figure]:
    return [figure for figure in figures if figure["series"]]


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings side by side, groups as `labeler.lr`."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def settings_tables(configs: Mapping[str, Mapping[str, Any]]) -> list[Table]:
    """Settings in which they differ, and, closed below, those that only some of them have."""
    flattened = {name: flat(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for config in flattened.values() for key in config)
    values = {key: {repr(config[key]) for config in flattened.values() if key in config} for key in keys}
    differing = [key for key in keys if len(values[key]) > 1]
    partial = [key for key in keys if len(values[key]) == 1 and any(key not in c for c in flattened.values())]
    same = f"{len(keys) - len(differing) - len(partial)} other settings are the same."
    tables = (("Settings in which they differ", differing, False), ("Settings that only some have", partial, True))
    return [
        {
            "caption": caption,
            "columns": ["setting", *flattened],
            "rows": [[key, *(_word(config, key) for config in flattened.values())] for key in chosen],
            "notes": [] if closed else [same],
            "closed": closed,
        }
        for caption, chosen, closed in tables
        if chosen
    ]


def _word(config: Mapping[str, Any], key: str) -> str:
    return "-" if key not in config else "none" if config[key] is None else str(config[key])


def compare_benchmark(folder: Path) -> dict[str, Any]:
    """A benchmark folder: its table beside the paper's numbers, what is missing, and curves by task."""
    results = read_results(folder)
    grid, table = results.grid, make_table(results, "last-five", paper=True)
    papers = [entry.paper for row in table.lines for entry in row.entries.values() if entry.paper is not None]
    made = {
        "caption": f"{grid.name}: ours{', and below it the paper’s and the difference' if papers else ''}",
        "columns": ["method", *(column.replace(">", " → ") for column in table.columns)],
        "rows": [_line(row, table.columns, results) for row in table.lines],
        "notes": [*_kept_notes(table.notes, bool(papers)), *_unfinished(folder, grid.cells)],
    }
    configs = {row.name: row_settings(grid, row.name) for row in grid.rows}
    curves = [_overlay(f"Accuracy on {task.replace('>', ' → ')}", _curves(results, task)) for task in grid.tasks]
    settings = settings_tables(configs)
    title = f"Benchmark {folder.resolve().name}"
    return {"title": title, "table": made, "settings": settings, "curves": _drawn(curves)}


def _kept_notes(notes: Sequence[str], papers: bool) -> list[str]:
    return [note for note in notes if papers or not note.startswith("The paper's")]


def _line(row: Line, columns: Sequence[str], results: Results) -> list[Any]:
    planned = {column: [cell for cell in results.grid.of(row.name) if cell.task == column] for column in columns}
    return [{"text": row.name, "sort": row.name}, *(_entry(row.entries[c], len(planned[c])) for c in columns)]


def _entry(entry: Entry, planned: int) -> dict[str, Any]:
    """`61.20 ± 0.51` and below it the paper's number and the difference."""
    paper = "" if entry.paper is None else f"{entry.paper:.2f}"
    if entry.mean is None:
        return {"text": "-", "sort": None, "mark": "missing", "small": paper, "title": "no cell is done"}
    spread = "" if entry.deviation is None else f" ± {entry.deviation:.2f}"
    short = f" ({len(entry.values)} of {planned})" if 0 < len(entry.values) < planned else ""
    small = paper and f"{paper} {entry.mean - (entry.paper or 0):+.2f}".replace("-", "−")
    text = f"{entry.mean:.2f}{spread}{short}"
    return {"text": text, "sort": number(entry.mean), "mark": entry.mark or None, "small": small}


def _unfinished(folder: Path, cells: Sequence[Cell]) -> list[str]:
    """How many cells are in which state, and which ones failed or are missing."""
    states = {cell.id: state_of(folder, cell.id) for cell in cells}
    counts = [f"{n} {state}" for state in STATES if (n := sum(found == state for found in states.values()))]
    told = [f"Cells: {', '.join(counts)}."]
    for state in ("failed", "missing"):
        named = [cell for cell in cells if states[cell.id] == state]
        parts = [cell.title + _reason(folder, cell, state) for cell in named[:MOST_TOLD]]
        more = f"; and {len(named) - MOST_TOLD} more" if len(named) > MOST_TOLD else ""
        told += [f"{state.capitalize()}: {'; '.join(parts)}{more}."] if named else []
    return told


def _reason(folder: Path, cell: Cell, state: str) -> str:
    if state != "failed":
        return ""
    return f" ({' '.join(error_of(folder, cell.id).read_text(encoding='utf-8', errors='replace').split())})"


def _curves(results: Results, task: str) -> dict[str, list[float | None]]:
    """Per row the mean over the seeds of each epoch, as far as all seeds go."""
    found = {}
    for row in results.grid.rows:
        seeds = [results.found[c.id] for c in results.grid.of(row.name) if c.task == task and c.id in results.found]
        curves = [known for known in map(_epochs, seeds) if known]
        if curves:
            found[row.name] = [mean(values) for values in zip(*curves, strict=False)]
    return {name: list(values) for name, values in found.items()}


def _epochs(result: Result) -> list[float]:
    rows = result.get("epochs")
    scored = [row.get("target") for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return [float(values[-1]) for values in scored if isinstance(values, list) and values]
