"""The paper's t-SNE figure of one run: per cycle a labeler's view of its domains, and the unseen domain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.sets import ImageTable, MixedSet, Rows
from ...data.streams import EVAL_BATCH, evaluation_batches
from ...engine.features import Features, Passed, first_mixed, plain, pooled
from ...engine.replay import Past, open_past
from ...engine.run import pipeline_of
from ...errors import UserError, unknown
from ...methods.api import Learner
from ...seeds import numpy_rng
from .paper_figures import INK, MARKERS, canvas

GROUPS = ("labeled", "unlabeled", "intermediate")


@dataclass(frozen=True, eq=False)
class LabelerView:
    """A labeler at the end of a cycle; `accuracy` is the percent of its pseudo-labels that are right, if known."""

    cycle: int
    groups: dict[str, Features]  # by GROUPS; no intermediate domain where the cycle started from the labeled one
    accuracy: float | None


@dataclass(frozen=True, eq=False)
class TargetView:
    """The unseen domain in network 1 at the end of a cycle; `accuracy` is its percent right on all of it."""

    cycle: int
    features: Features
    accuracy: float | None


@dataclass(frozen=True, eq=False)
class Evolution:
    """A run cycle by cycle. `y` are the target's true classes in the order of its features, -1 where not known."""

    method: str
    seed: int
    labeled: str
    unlabeled: tuple[str, ...]
    shown: str  # the unlabeled domain whose labeler is looked at
    target: str | None
    product: str  # the stage whose networks are used in the end
    classes: tuple[str, ...]
    y: NDArray[np.int64]
    labelers: tuple[LabelerView, ...]
    targets: tuple[TargetView, ...]


def evolution_of(
    folder: Path, *, unlabeled: str | None = None, images: int, cache: Path | None = None, device: str = "auto"
) -> Evolution:
    """Features of a run's cycles for up to `images` images a cycle; which ones is fixed, and alike in every cycle.

    A labeler sees a third of them of each kind. The true classes of the target only say which images are taken,
    as many of every class, and what `y` tells.
    """
    past = open_past(folder, cache=cache, device=device)
    domain = labeler_domain(past, unlabeled)
    watcher = Watcher(past, domain, images)
    audits = past.replay(watcher.look)
    known = {audit["round"]: audit["domains"] for audit in audits if audit["key"] == watcher.key}
    labelers = [replace(v, accuracy=known[v.cycle][domain].get("accuracy")) for v in watcher.labelers]
    if not labelers:
        raise UserError(
            f"the run in '{folder}' is of method '{past.config.method}', which has no labeler; give one of eid"
        )
    target = past.problem.target
    return Evolution(
        method=past.config.method,
        seed=past.config.seed,
        labeled=past.problem.domains[0],
        unlabeled=past.problem.domains[1:],
        shown=domain,
        target=target.name if target else None,
        product=watcher.product,
        classes=past.problem.task.classes,
        y=target.y[watcher.target_rows] if target else np.zeros(0, np.int64),
        labelers=tuple(labelers),
        targets=tuple(watcher.targets),
    )


def labeler_domain(past: Past, asked: str | None) -> str:
    """The unlabeled domain that is asked for, or the first."""
    names = list(past.problem.task.unlabeled)
    if not names:
        raise UserError(f"the run in '{past.folder}' has no unlabeled domain, so no labeler; give one of eid")
    if asked is not None and asked not in names:
        raise unknown("unlabeled domain of this run", asked, names)
    return asked or names[0]


class Watcher:
    """Takes features of the stages that a figure shows as they pass."""

    def __init__(self, past: Past, domain: str, images: int) -> None:
        task, target = past.problem.task, past.problem.target
        self.key, self.product, self.target = f"apl/{domain}", "", target
        self.pipeline = plain(pipeline_of(past.config, past.problem, past.machine))
        self.num_each = images // len(GROUPS)
        pool = task.unlabeled[domain]
        self.tables = {
            "labeled": task.labeled.images.take(balanced_rows(task.labeled.y, self.num_each)),
            "unlabeled": pool.images.take(balanced_rows(np.zeros(len(pool), np.int64), self.num_each)),
        }
        self.target_rows = balanced_rows(target.y, images) if target else np.zeros(0, np.intp)
        self.labelers: list[LabelerView] = []
        self.targets: list[TargetView] = []

    def look(self, stage: Passed) -> None:
        """Keep what the figure shows of a stage."""
        if stage.key == self.key:
            groups = {name: self._features(stage.learner, table) for name, table in self.tables.items()}
            if isinstance(stage.inputs.labeled, MixedSet):
                mixed = first_mixed(stage, stage.inputs.labeled, self.num_each, self.pipeline)
                groups["intermediate"] = pooled(stage.learner, (batch.x for batch in mixed))
            self.labelers.append(LabelerView(stage.round, groups, None))
        if stage.product and self.target is not None:
            self.product = stage.key
            scores = stage.meta["history"][-1].get("target")
            features = self._features(stage.learner, self.target.images.take(self.target_rows))
            self.targets.append(TargetView(stage.round, features, scores[0] if scores else None))

    def _features(self, learner: Learner, table: ImageTable) -> Features:
        return pooled(learner, evaluation_batches(table, EVAL_BATCH, self.pipeline))


def balanced_rows(y: NDArray[np.int64], num: int) -> Rows:
    """Up to `num` rows, as many of every class as there are, drawn from a fixed seed, in order."""
    rng = numpy_rng("figure", len(y))
    turn = np.empty(len(y), np.intp)  # the how-manieth of its class a row is drawn
    for label in np.unique(y):
        here = np.flatnonzero(y == label)
        turn[here] = rng.permutation(len(here))
    return np.sort(np.lexsort((rng.random(len(y)), turn))[:num])


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
