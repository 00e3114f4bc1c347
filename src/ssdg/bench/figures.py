"""The paper's figures that run files give: PNG or SVG, the same folder the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ..errors import UserError
from ..files import atomic_path
from .results import Number, Results
from .series import Curve, label_clouds, label_curves, setting_curves
from .statistics import Place

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
