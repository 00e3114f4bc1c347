"""The paper's figures from a benchmark folder, as PNG or SVG. Every mean is over runs that all its rows have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from ...errors import UserError
from ...files import atomic_path
from ..folder import PER_CELL, GridRow, Number, Result, Results
from .results_table import paper_numbers
from .significance import Place


@dataclass(frozen=True)
class Curve:
    """Means against a setting or a cycle; `deviations` over the seeds, where every seed has the same tasks."""

    name: str
    x: list[Any]
    means: list[float]
    deviations: list[float | None]
    papers: list[float | None]


@dataclass(frozen=True)
class Cloud:
    """One row: pseudo-label accuracy and target accuracy of each of its runs, and the mean of them."""

    name: str
    points: list[tuple[float, float]]
    center: tuple[float, float]


def label_accuracy(result: Result) -> dict[int, float]:
    """Percent of the pseudo-labels that are right by cycle, the unlabeled domains averaged; unknown ones left out."""
    found: dict[int, list[float]] = {}
    for audit in result["pseudo_labels"]:
        for row in audit["domains"].values() if audit["key"].startswith("apl/") else ():
            if row.get("accuracy") is not None:
                found.setdefault(int(audit["round"]), []).append(float(row["accuracy"]))
    return {cycle: mean(values) for cycle, values in found.items()}


def label_curves(results: Results) -> tuple[list[Curve], set[Place]]:
    """Pseudo-label accuracy per cycle of every row with a labeler, and the runs that it is the mean of."""
    rows = _labeled_rows(results)
    places, curves = shared_places(rows), []
    for name, labels in rows.items():
        cycles = sorted(set.intersection(*(set(labels[place]) for place in places)))
        values = [{place: labels[place][cycle] for place in places} for cycle in cycles]
        curves.append(_curve(name, cycles, values, [None] * len(cycles)))
    return curves, places


def label_clouds(results: Results, number: Number) -> tuple[list[Cloud], set[Place]]:
    """Pseudo-label accuracy of the last cycle against target accuracy, and the runs that are shown."""
    rows = _labeled_rows(results)
    places, clouds = shared_places(rows), []
    for name, labels in rows.items():
        scores = results.scores(name, number)
        points = [(labels[place][max(labels[place])], scores[place]) for place in sorted(places)]
        clouds.append(Cloud(name, points, (mean(x for x, _ in points), mean(y for _, y in points))))
    return clouds, places


def _labeled_rows(results: Results) -> dict[str, dict[Place, dict[int, float]]]:
    rows = {row.name: _labels(results, row.name) for row in results.grid.rows}
    if not any(rows.values()):
        raise UserError("no finished run of this benchmark has pseudo-labels whose truth is known")
    return {name: labels for name, labels in rows.items() if labels}


def _labels(results: Results, row: str) -> dict[Place, dict[int, float]]:
    cells = [cell for cell in results.grid.of(row) if cell.id in results.found]
    known = {(cell.task, cell.seed): label_accuracy(results.found[cell.id]) for cell in cells}
    return {place: labels for place, labels in known.items() if labels}


def shared_places(rows: Mapping[str, Iterable[Place]]) -> set[Place]:
    """The tasks and seeds that all these rows have."""
    places = set.intersection(*(set(row) for row in rows.values()))
    if not places:
        raise UserError(f"no task and seed is done for all of {', '.join(rows)}; let the benchmark go on")
    return places


def setting_curves(results: Results, key: str, number: Number, *, paper: bool) -> tuple[list[Curve], set[Place]]:
    """Accuracy against a setting: one curve for rows that differ in nothing else."""
    sweeps = _sweeps(results, key)
    scores = {row.name: results.scores(row.name, number) for rows in sweeps.values() for row in rows.values()}
    places, curves = shared_places(scores), []
    for name, rows in zip(_names([json.loads(rest) for rest in sweeps]), sweeps.values(), strict=True):
        papers = [_paper_mean(results, row, places) if paper else None for row in rows.values()]
        values = [{place: scores[row.name][place] for place in places} for row in rows.values()]
        curves.append(_curve(name, list(rows), values, papers))
    return curves, places


def _sweeps(results: Results, key: str) -> dict[str, dict[Any, GridRow]]:
    """Rows by their value of a setting, numbers in order, grouped by all their other settings."""
    groups: dict[str, dict[Any, GridRow]] = {}
    for row in results.grid.rows:
        done = [cell.config for cell in results.grid.of(row.name) if cell.id in results.found]
        if done and key in done[0]:
            rest = {name: value for name, value in done[0].items() if name not in (key, *PER_CELL)}
            groups.setdefault(json.dumps(rest, sort_keys=True), {})[done[0][key]] = row
    sweeps = {rest: rows for rest, rows in groups.items() if len(rows) > 1}
    if not sweeps:
        raise UserError(f"no two finished rows of '{results.grid.name}' differ in {key} and in nothing else")
    return {rest: _sorted(rows) for rest, rows in sweeps.items()}


def _sorted(rows: dict[Any, GridRow]) -> dict[Any, GridRow]:
    names = any(isinstance(value, str) for value in rows)
    return rows if names else dict(sorted(rows.items()))


def _names(configs: list[dict[str, Any]]) -> list[str]:
    """What tells configurations apart; a single one is told by its method."""
    keys = sorted({key for config in configs for key in config if config[key] != configs[0].get(key)})
    return [", ".join(f"{key}={config.get(key)}" for key in keys) or str(config["method"]) for config in configs]


def _paper_mean(results: Results, row: GridRow, places: set[Place]) -> float | None:
    table = (row.paper or {}).get("table", results.grid.table)
    known = paper_numbers(table, row.paper) if row.paper and table else {}
    tasks = {task for task, _ in places}
    return mean(known[task] for task in tasks) if tasks <= known.keys() else None


def _curve(name: str, x: list[Any], values: list[dict[Place, float]], papers: list[float | None]) -> Curve:
    return Curve(name, x, [mean(known.values()) for known in values], [_deviation(v) for v in values], papers)


def _deviation(values: Mapping[Place, float]) -> float | None:
    tasks, seeds = {task for task, _ in values}, {seed for _, seed in values}
    if len(seeds) < 2 or len(tasks) * len(seeds) != len(values):
        return None
    return stdev(mean(values[task, seed] for task in tasks) for seed in seeds)


# Okabe and Ito: told apart by colour-blind readers; markers tell them apart in print.
INK = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "os^DvPX"
SUFFIXES = (".png", ".svg")
Kind = Literal["pseudo-labels", "labels-target", "cycles", "clean-rate", "mix"]
SETTINGS: dict[Kind, tuple[str, str]] = {
    "cycles": ("cycles", "cycles"),
    "clean-rate": ("clean_rate", "clean rate of EID"),
    "mix": ("mix", "how EID mixes"),
}
TARGET: dict[Number, str] = {
    "last-five": "target accuracy, %, last five epochs",
    "final": "target accuracy, %, last epoch",
}


def draw(results: Results, kind: Kind, path: Path, number: Number, *, paper: bool = False) -> Path:
    """Draw one of the figures into `path`."""
    check_picture(path)
    with canvas(path, figsize=(6.4, 3.6)) as (figure, axes):
        if kind == "pseudo-labels":
            places = _pseudo_labels(axes, results)
        elif kind == "labels-target":
            places = _labels_target(axes, results, number)
        else:
            places = _setting(axes, results, kind, number, paper)
        axes.set_title(_title(results, places), loc="left", fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            figure.legend(loc="outside right upper", frameon=False)
    return path


def check_picture(path: Path) -> None:
    """Refuse a name that tells no format."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(
            f"'{path}' is no picture that can be drawn; give a name that ends with {' or '.join(SUFFIXES)}"
        )


@contextmanager
def canvas(path: Path, columns: int = 1, rows: int = 1, *, figsize: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes; it is written when nothing went wrong, as PNG or SVG by its name."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("a figure needs matplotlib: pip install 'ssdg[figures]'") from None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "ssdg", "svg.fonttype": "none"}):
        figure = Figure(figsize=figsize, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(rows, columns)
        form = path.suffix.lower().lstrip(".")
        undated = {"Date": None} if form == "svg" else {}
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format=form, dpi=200, metadata=undated)


def _title(results: Results, places: set[Place]) -> str:
    tasks, seeds = len({task for task, _ in places}), len({seed for _, seed in places})
    told = f"{results.grid.name}: {tasks} task{'s' * (tasks > 1)}, {seeds} seed{'s' * (seeds > 1)}"
    return told if tasks * seeds == len(places) else f"{told}, {len(places)} runs"


def _pseudo_labels(axes: Any, results: Results) -> set[Place]:
    curves, places = label_curves(results)
    axes.set(xlabel="cycle", ylabel="pseudo-labels that are right, %")
    _lines(axes, curves)
    axes.set_xticks(sorted({cycle for curve in curves for cycle in curve.x}))
    return places


def _labels_target(axes: Any, results: Results, number: Number) -> set[Place]:
    clouds, places = label_clouds(results, number)
    for place, cloud in enumerate(clouds):
        look = _look(place)
        axes.scatter(*zip(*cloud.points, strict=True), s=16, alpha=0.45, linewidths=0, **look)
        axes.scatter(*cloud.center, s=90, edgecolors="white", linewidths=1.2, zorder=3, label=cloud.name, **look)
    axes.set(xlabel="pseudo-labels that are right in the last cycle, %; large: means", ylabel=TARGET[number])
    return places


def _setting(axes: Any, results: Results, kind: Kind, number: Number, paper: bool) -> set[Place]:
    key, label = SETTINGS[kind]
    curves, places = setting_curves(results, key, number, paper=paper)
    axes.set(xlabel=label, ylabel=TARGET[number])
    _lines(axes, curves)
    values = list(dict.fromkeys(x for curve in curves for x in curve.x))
    axes.set_xticks(values)
    if isinstance(values[0], str):
        axes.margins(x=0.15)
    return places


def _look(place: int) -> dict[str, str]:
    return {"color": INK[place % len(INK)], "marker": MARKERS[place % len(MARKERS)]}


def _lines(axes: Any, curves: list[Curve]) -> None:
    for place, curve in enumerate(curves):
        look, names = _look(place), isinstance(curve.x[0], str)  # no line between names
        spread = None if None in curve.deviations else curve.deviations
        line = "" if names else "-"
        axes.errorbar(curve.x, curve.means, spread, linestyle=line, capsize=3, label=curve.name, **look)
        known = [(x, value) for x, value in zip(curve.x, curve.papers, strict=True) if value is not None]
        if known:
            hollow = {"fillstyle": "none", "alpha": 0.7, "linestyle": "" if names else "--"}
            axes.errorbar(*zip(*known, strict=True), label=f"{curve.name}, paper", **hollow, **look)
    if any(None not in curve.deviations for curve in curves):
        axes.set_xlabel(f"{axes.get_xlabel()}; bars: standard deviation over seeds")
