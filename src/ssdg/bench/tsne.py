"""The paper's t-SNE figure of one run: a labeler's view of its domains above, the unseen domain below, per cycle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.features import GROUPS, Evolution, LabelerView, TargetView
from ..engine.pooled import Features
from ..errors import UserError
from .figures import INK, MARKERS, canvas

Points = NDArray[np.float32]  # (images, 2)
FEWEST = 4  # images in a panel
PERPLEXITY = 30.0  # scikit-learn's default; less where there are few images
SEED = 0
PANEL, NARROWEST = 2.3, 6.4  # inches: a panel, and a figure whose captions fit
MOST_CLASSES = 20  # in the legend
NOTE = (
    "t-SNE of pooled features, each panel by itself: axes have no unit, and sizes and gaps of clusters mean little."
)
TRUTH = "Colours of the lower row are true classes, which training never saw."


def draw_evolution(run: Evolution, path: Path) -> Path:
    """Draw the cycles of a run into `path`."""
    above = [embed(np.concatenate(list(view.groups.values()))) for view in run.labelers]
    below = [embed(view.features) for view in run.targets]
    rows, columns = 1 + bool(below), max(len(above), len(below))
    size = (max(PANEL * columns + 2.0, NARROWEST), (PANEL + 0.3) * rows + 0.7)
    with canvas(path, columns, rows, figsize=size) as (figure, axes):
        panels = np.atleast_1d(axes).reshape(rows, columns)
        for panel in panels.flat:
            panel.set(xticks=[], yticks=[], box_aspect=1)
            panel.spines[:].set_color("0.8")
        for panel, view, points in zip(panels[0], run.labelers, above, strict=False):
            _draw_labeler(panel, view, points)
        panels[0, 0].set_ylabel(f"labeler of {run.shown}")
        names = _group_names(run)
        _legend(panels[0, -1], [_dots(INK[place], "o") for place in range(len(names))], names)
        if below:
            for panel, seen, points in zip(panels[1], run.targets, below, strict=False):
                _draw_target(panel, seen, points, run.y)
            panels[1, 0].set_ylabel(f"{_product(run)} on {run.target}")
            _class_legend(panels[1, -1], run)
        figure.suptitle(_title(run), fontsize="medium")
        figure.supxlabel("\n".join([NOTE, TRUTH] if below and (run.y >= 0).any() else [NOTE]), fontsize="x-small")
    return path


def embed(features: Features) -> Points:
    """A t-SNE of (images, features); PCA start, fixed seed and one thread: the same features give the same points."""
    try:
        from sklearn.manifold import TSNE
        from threadpoolctl import threadpool_limits
    except ImportError:
        raise UserError("a t-SNE needs scikit-learn: pip install 'ssdg[figures]'") from None
    count = len(features)
    if count < FEWEST:
        raise UserError(f"a t-SNE needs {FEWEST} images or more, not {count}; give more --images")
    if not np.ptp(features, axis=0).any():  # a network that sees no difference has nothing to spread
        return np.zeros((count, 2), np.float32)
    made = TSNE(perplexity=min(PERPLEXITY, (count - 1) / 3), init="pca", random_state=SEED)
    with threadpool_limits(1):  # sums of several threads are not the same twice
        return np.asarray(made.fit_transform(features), np.float32)


def _draw_labeler(axes: Any, view: LabelerView, points: Points) -> None:
    start = 0
    for name, features in view.groups.items():
        part = points[start : start + len(features)]
        axes.scatter(*part.T, s=7, alpha=0.6, linewidths=0, color=INK[GROUPS.index(name)])
        start += len(features)
    told = "" if view.accuracy is None else f": {view.accuracy:.1f} % of labels right"
    axes.set_title(f"cycle {view.cycle}{told}", fontsize="small")


def _draw_target(axes: Any, view: TargetView, points: Points, y: NDArray[np.int64]) -> None:
    for label in np.unique(y):
        axes.scatter(*points[y == label].T, s=7, alpha=0.7, linewidths=0, **_look(int(label)))
    told = "" if view.accuracy is None else f": {view.accuracy:.1f} % right"
    axes.set_title(f"cycle {view.cycle}{told}", fontsize="small")


def _look(label: int) -> dict[str, str]:
    """Colours first, then shapes; grey for images whose class is not known."""
    if label < 0:
        return {"color": "0.6", "marker": "o"}
    return {"color": INK[label % len(INK)], "marker": MARKERS[label // len(INK) % len(MARKERS)]}


def _group_names(run: Evolution) -> list[str]:
    mixed = [view.cycle for view in run.labelers if "intermediate" in view.groups]
    told = {"labeled": f"labeled: {run.labeled}", "unlabeled": f"unlabeled: {run.shown}"}
    return [*told.values(), *([f"intermediate domain,\nfrom cycle {mixed[0]} on"] if mixed else [])]


def _class_legend(axes: Any, run: Evolution) -> None:
    if len(run.classes) > MOST_CLASSES:
        return
    labels = [int(label) for label in np.unique(run.y)]
    names = [run.classes[label] if label >= 0 else "class not known" for label in labels]
    looks = [_look(label) for label in labels]
    _legend(axes, [_dots(look["color"], look["marker"]) for look in looks], names)


def _dots(color: str, marker: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", color=color, marker=marker, markersize=4)


def _legend(axes: Any, handles: list[Any], names: list[str]) -> None:
    place = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0), "borderaxespad": 0.0}
    axes.legend(handles, names, frameon=False, fontsize="small", handletextpad=0.2, **place)


def _product(run: Evolution) -> str:
    return f"{'DCG' if run.product == 'dcg' else 'product'}, network 1,"


def _title(run: Evolution) -> str:
    unseen = f", unseen {run.target}" if run.target else ""
    return f"{run.method}: labeled {run.labeled}, unlabeled {' and '.join(run.unlabeled)}{unseen}; seed {run.seed}"
