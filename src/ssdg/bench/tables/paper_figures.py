"""The paper's figures from a benchmark folder, as PNG or SVG. Every mean is over runs that all its rows have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...files import atomic_path
from ...schema import Result
from ..folder import PER_CELL, GridRow, Number, Results
from .results_table import row_paper_numbers
from .significance import TaskSeed

# Okabe and Ito: distinguishable with color blindness; markers distinguish them in print.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "os^DvPX"
SUFFIXES = (".png", ".svg")
Kind = Literal["pseudo-labels", "labels-target", "cycles", "clean-rate", "mix"]
SWEPT_SETTINGS: dict[Kind, tuple[str, str]] = {  # key and axis label
    "cycles": ("cycles", "cycles"),
    "clean-rate": ("clean_rate", "clean rate of EID"),
    "mix": ("mix", "mixing of EID"),
}
TARGET_LABELS: dict[Number, str] = {
    "last-five": "target accuracy (%), last five epochs",
    "final": "target accuracy (%), last epoch",
}
Runs = set[TaskSeed]  # that a figure shows
PERPLEXITY = 30.0  # of a t-SNE, scikit-learn's default; less for few images


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
    """One row: pseudo-label accuracy and target accuracy of each of its runs, and their means."""

    name: str
    points: list[tuple[float, float]]
    center: tuple[float, float]


def draw_figure(results: Results, kind: Kind, path: Path, number: Number, *, paper: bool = False) -> Path:
    """Draw one of the figures and write it to `path`."""
    check_figure_path(path)
    with canvas(path, figsize=(6.4, 3.6)) as (figure, axes):
        if kind == "pseudo-labels":
            runs = _draw_pseudo_labels(axes, results)
        elif kind == "labels-target":
            runs = _draw_labels_against_target(axes, results, number)
        else:
            runs = _draw_sweep(axes, results, kind, number, paper)
        axes.set_title(_title(results, runs), loc="left", fontsize="medium")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9")
        axes.set_axisbelow(True)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            figure.legend(loc="outside right upper", frameon=False)
    return path


def check_figure_path(path: Path) -> None:
    """Raise `UserError` if the suffix is not that of a supported image format."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"cannot draw a figure to '{path}'; use a file name that ends in {' or '.join(SUFFIXES)}")


@contextmanager
def canvas(path: Path, columns: int = 1, rows: int = 1, *, figsize: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes; write it as PNG or SVG, by the suffix of `path`, if no error occurs."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("a figure needs matplotlib; run pip install 'ssdg[figures]'") from None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "ssdg", "svg.fonttype": "none"}):
        figure = Figure(figsize=figsize, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure, figure.subplots(rows, columns)
        form = path.suffix.lower().lstrip(".")
        metadata = {"Date": None} if form == "svg" else {}  # a date would change the bytes
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format=form, dpi=200, metadata=metadata)


def _title(results: Results, runs: Runs) -> str:
    num_tasks, num_seeds = len({task for task, _ in runs}), len({seed for _, seed in runs})
    counts = f"{num_tasks} task{'s' * (num_tasks > 1)}, {num_seeds} seed{'s' * (num_seeds > 1)}"
    missing = "" if num_tasks * num_seeds == len(runs) else f", {len(runs)} runs"
    return f"{results.grid.name}: {counts}{missing}"


def _draw_pseudo_labels(axes: Any, results: Results) -> Runs:
    curves, runs = label_curves(results)
    axes.set(xlabel="cycle", ylabel="pseudo-label accuracy (%)")
    _draw_curves(axes, curves)
    axes.set_xticks(sorted({cycle for curve in curves for cycle in curve.x}))
    return runs


def _draw_labels_against_target(axes: Any, results: Results, number: Number) -> Runs:
    clouds, runs = label_clouds(results, number)
    for index, cloud in enumerate(clouds):
        style = _style(index)
        axes.scatter(*zip(*cloud.points, strict=True), s=16, alpha=0.45, linewidths=0, **style)
        axes.scatter(*cloud.center, s=90, edgecolors="white", linewidths=1.2, zorder=3, label=cloud.name, **style)
    axes.set(xlabel="pseudo-label accuracy (%) in the last cycle; large: means", ylabel=TARGET_LABELS[number])
    return runs


def _draw_sweep(axes: Any, results: Results, kind: Kind, number: Number, paper: bool) -> Runs:
    key, label = SWEPT_SETTINGS[kind]
    curves, runs = setting_curves(results, key, number, paper=paper)
    axes.set(xlabel=label, ylabel=TARGET_LABELS[number])
    _draw_curves(axes, curves)
    values = list(dict.fromkeys(x for curve in curves for x in curve.x))
    axes.set_xticks(values)
    if isinstance(values[0], str):
        axes.margins(x=0.15)
    return runs


def _draw_curves(axes: Any, curves: list[Curve]) -> None:
    for index, curve in enumerate(curves):
        style, is_categorical = _style(index), isinstance(curve.x[0], str)  # categories are not connected
        deviations = None if None in curve.deviations else curve.deviations
        line = "" if is_categorical else "-"
        axes.errorbar(curve.x, curve.means, deviations, linestyle=line, capsize=3, label=curve.name, **style)
        known = [(x, value) for x, value in zip(curve.x, curve.papers, strict=True) if value is not None]
        if known:
            hollow = {"fillstyle": "none", "alpha": 0.7, "linestyle": "" if is_categorical else "--"}
            axes.errorbar(*zip(*known, strict=True), label=f"{curve.name}, paper", **hollow, **style)
    if any(None not in curve.deviations for curve in curves):
        axes.set_xlabel(f"{axes.get_xlabel()}; bars: standard deviation over seeds")


def _style(index: int) -> dict[str, str]:
    return {"color": COLORS[index % len(COLORS)], "marker": MARKERS[index % len(MARKERS)]}


def label_curves(results: Results) -> tuple[list[Curve], Runs]:
    """Return the pseudo-label accuracy per cycle of every row with a labeler, and the runs it is averaged over."""
    rows = _label_accuracies(results)
    runs, curves = shared_runs(rows), []
    for name, labels in rows.items():
        cycles = sorted(set.intersection(*(set(labels[run]) for run in runs)))
        values = [{run: labels[run][cycle] for run in runs} for cycle in cycles]
        curves.append(_curve(name, cycles, values, [None] * len(cycles)))
    return curves, runs


def label_clouds(results: Results, number: Number) -> tuple[list[Cloud], Runs]:
    """Return pseudo-label accuracy in the last cycle against target accuracy, and the runs shown."""
    rows = _label_accuracies(results)
    runs, clouds = shared_runs(rows), []
    for name, labels in rows.items():
        scores = results.scores(name, number)
        points = [(labels[run][max(labels[run])], scores[run]) for run in sorted(runs)]
        clouds.append(Cloud(name, points, (mean(x for x, _ in points), mean(y for _, y in points))))
    return clouds, runs


def setting_curves(results: Results, key: str, number: Number, *, paper: bool) -> tuple[list[Curve], Runs]:
    """Return target accuracy against a setting: one curve per set of rows that differ in nothing else."""
    sweeps = _sweeps(results, key)
    scores = {row.name: results.scores(row.name, number) for rows in sweeps.values() for row in rows.values()}
    runs, curves = shared_runs(scores), []
    for name, rows in zip(_sweep_names([json.loads(rest) for rest in sweeps]), sweeps.values(), strict=True):
        papers = [_paper_mean(results, row, runs) if paper else None for row in rows.values()]
        values = [{run: scores[row.name][run] for run in runs} for row in rows.values()]
        curves.append(_curve(name, list(rows), values, papers))
    return curves, runs


def shared_runs(rows: Mapping[str, Iterable[TaskSeed]]) -> Runs:
    """Return the tasks and seeds that all these rows have."""
    runs = set.intersection(*(set(row) for row in rows.values()))
    if not runs:
        raise UserError(f"no task and seed is done for all of {', '.join(rows)}; resume the benchmark")
    return runs


def _label_accuracies(results: Results) -> dict[str, dict[TaskSeed, dict[int, float]]]:
    """Return pseudo-label accuracy by row, run and cycle; omit rows and runs for which it is unknown."""
    rows: dict[str, dict[TaskSeed, dict[int, float]]] = {}
    for row in results.grid.rows:
        for cell in results.grid.of(row.name):
            if cell.id in results.by_cell and (labels := label_accuracy(results.by_cell[cell.id])):
                rows.setdefault(row.name, {})[cell.task, cell.seed] = labels
    if not rows:
        raise UserError("no finished run of this benchmark has pseudo-labels with known ground truth")
    return rows


def label_accuracy(result: Result) -> dict[int, float]:
    """Return pseudo-label accuracy (%) by cycle, averaged over the unlabeled domains for which it is known."""
    by_cycle: dict[int, list[float]] = {}
    for audit in result.pseudo_labels:
        for domain in audit.domains.values() if audit.kind == "pseudo-labels" else ():
            if domain.accuracy is not None:
                by_cycle.setdefault(audit.round, []).append(domain.accuracy)
    return {cycle: mean(values) for cycle, values in by_cycle.items()}


def _sweeps(results: Results, key: str) -> dict[str, dict[Any, GridRow]]:
    """Return rows by their value of a setting, numbers in order, grouped by all their other settings as JSON."""
    groups: dict[str, dict[Any, GridRow]] = {}
    for row in results.grid.rows:
        configs = [cell.config for cell in results.grid.of(row.name) if cell.id in results.by_cell]
        if configs and key in configs[0]:
            rest = {name: value for name, value in configs[0].items() if name not in (key, *PER_CELL)}
            groups.setdefault(json.dumps(rest, sort_keys=True), {})[configs[0][key]] = row
    sweeps = {rest: rows for rest, rows in groups.items() if len(rows) > 1}
    if not sweeps:
        raise UserError(f"no two finished rows of '{results.grid.name}' differ only in {key}")
    return {rest: _sort_numbers(rows) for rest, rows in sweeps.items()}


def _sort_numbers(rows: dict[Any, GridRow]) -> dict[Any, GridRow]:
    is_categorical = any(isinstance(value, str) for value in rows)
    return rows if is_categorical else dict(sorted(rows.items()))


def _sweep_names(configs: list[dict[str, Any]]) -> list[str]:
    """Name configurations by the settings in which they differ, or by their method if there is only one."""
    keys = sorted({key for config in configs for key in config if config[key] != configs[0].get(key)})
    return [", ".join(f"{key}={config.get(key)}" for key in keys) or str(config["method"]) for config in configs]


def _paper_mean(results: Results, row: GridRow, runs: Runs) -> float | None:
    numbers, tasks = row_paper_numbers(row, results.grid), {task for task, _ in runs}
    return mean(numbers[task] for task in tasks) if tasks <= numbers.keys() else None


def _curve(name: str, x: list[Any], values: list[dict[TaskSeed, float]], papers: list[float | None]) -> Curve:
    return Curve(name, x, [mean(point.values()) for point in values], [_deviation(v) for v in values], papers)


def _deviation(values: Mapping[TaskSeed, float]) -> float | None:
    tasks, seeds = {task for task, _ in values}, {seed for _, seed in values}
    if len(seeds) < 2 or len(tasks) * len(seeds) != len(values):
        return None
    return stdev(mean(values[task, seed] for task in tasks) for seed in seeds)


def tsne_points(features: NDArray[np.float32], *, max_iter: int) -> NDArray[np.float32]:
    """Return the t-SNE (n, 2) of features (n, d), with PCA initialization and a fixed seed. Needs scikit-learn."""
    from sklearn.manifold import TSNE

    num_images = len(features)
    if not np.ptp(features, axis=0).any():  # a collapsed network: identical points have nothing to spread
        return np.zeros((num_images, 2), np.float32)
    perplexity = min(PERPLEXITY, (num_images - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=0, max_iter=max_iter)
    return np.asarray(tsne.fit_transform(features), np.float32)
