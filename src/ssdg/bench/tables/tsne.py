"""The paper's t-SNE figure of one run: per cycle, features of a labeler's domains and of the unseen domain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.sets import ImageTable, MixedSet, Rows
from ...data.streams import EVAL_BATCH, evaluation_batches
from ...engine.plan import plan
from ...engine.replay import PastRun, open_past_run
from ...engine.samples import Features, FinishedStage, first_mixed, pooled_features, without_augmentation
from ...errors import UserError, unknown
from ...methods.api import Learner
from ...schema import Audit
from ...seeds import numpy_rng
from .paper_figures import COLORS, MARKERS, canvas, tsne_points

GROUPS = ("labeled", "unlabeled", "intermediate")
MIN_IMAGES = 4  # in a panel
STEPS = 1000  # of gradient descent
PANEL_SIZE, MIN_WIDTH = 2.3, 6.4  # inches; the captions fit into MIN_WIDTH
MAX_CLASSES = 20  # in the legend
NOTE = (
    "t-SNE of pooled features, each panel by itself: axes have no unit, and sizes and gaps of clusters mean little."
)
TRUTH_NOTE = "Colors of the lower row are true classes, which training never used."
Points = NDArray[np.float32]  # (images, 2)


@dataclass(frozen=True, eq=False)
class LabelerView:
    """Features of a labeler at the end of a cycle."""

    cycle: int
    groups: dict[str, Features]  # by GROUPS; "intermediate" is missing if the cycle starts from the labeled domain
    accuracy: float | None  # of its pseudo-labels, in %, if known


@dataclass(frozen=True, eq=False)
class TargetView:
    """Features of the unseen domain in network 1 at the end of a cycle."""

    cycle: int
    features: Features
    accuracy: float | None  # of network 1 on the whole domain, in %


@dataclass(frozen=True, eq=False)
class Evolution:
    """Features of a run, cycle by cycle."""

    method: str
    seed: int
    labeled: str
    unlabeled: tuple[str, ...]
    labeler_domain: str  # the unlabeled domain whose labeler is shown
    target: str | None
    product: str  # title of the stage whose networks the run ships
    classes: tuple[str, ...]
    y: NDArray[np.int64]  # true classes of the target in the order of its features; -1: unknown
    labelers: tuple[LabelerView, ...]
    targets: tuple[TargetView, ...]


def compute_evolution(
    folder: Path,
    *,
    unlabeled: str | None = None,
    images: int,
    cache: Path | None = None,
    device: str = "auto",
    plugin: Path | None = None,
) -> Evolution:
    """Compute features of a run for up to `images` images per cycle, which are the same in every cycle.

    A third of a labeler's images belongs to each group. The true classes of the target are used for `y` and to
    select as many images of every class, and for nothing else.
    """
    past = open_past_run(folder, cache=cache, device=device, plugin=plugin)
    domain = choose_labeler_domain(past, unlabeled)
    collector = FeatureCollector(past, domain, images)
    audits = past.replay(collector.add_stage)
    accuracies = label_accuracies(collector, audits)
    if not accuracies:
        raise UserError(
            f"method '{past.config.method}' of the run in '{folder}' has no labeler; use a run of eid with a labeler "
            "of each domain, such as apl=mcd, or with apl=self and two cycles or more"
        )
    labelers = [replace(view, accuracy=accuracies.get(view.cycle)) for view in collector.labelers]
    target = past.problem.target
    return Evolution(
        method=past.config.method,
        seed=past.config.seed,
        labeled=past.problem.domains[0],
        unlabeled=past.problem.domains[1:],
        labeler_domain=domain,
        target=target.name if target else None,
        product=collector.product,
        classes=past.problem.task.classes,
        y=target.y[collector.target_rows] if target else np.zeros(0, np.int64),
        labelers=tuple(labelers),
        targets=tuple(collector.targets),
    )


def choose_labeler_domain(past: PastRun, name: str | None) -> str:
    """Return the unlabeled domain `name`, by default the first."""
    names = list(past.problem.task.unlabeled)
    if not names:
        raise UserError(f"the run in '{past.folder}' has no unlabeled domain and no labeler; use a run of eid")
    if name is not None and name not in names:
        raise unknown("unlabeled domain of this run", name, names)
    return name or names[0]


def label_accuracies(collector: FeatureCollector, audits: list[Audit]) -> dict[int, float | None]:
    """Return the accuracy (%) of the labels that the networks of each cycle assigned, None if the truth is unknown.

    Labelers label at the end of a cycle, networks that label themselves at the start of the next one.
    """
    domain, keys = collector.domain, collector.keys
    if collector.has_labeler:
        return {audit.round: audit.domains[domain].accuracy for audit in audits if audit.key in keys}
    labelings = [audit for audit in audits if audit.kind == "pseudo-labels" and domain in audit.domains]
    return {audit.round - 1: audit.domains[domain].accuracy for audit in labelings if audit.stage in keys}


class FeatureCollector:
    """Collects features from the stages of a replayed run.

    If no stage trains a labeler of the domain, the product may label it itself: its stages are the labeler's then.
    """

    def __init__(self, past: PastRun, domain: str, images: int) -> None:
        task, target = past.problem.task, past.problem.target
        self.domain, self.product, self.target = domain, "", target
        self.keys: set[str] = set()  # of the stages that train the labeler
        self.has_labeler = any(self._is_labeler(stage.key) for stage in plan(past.config, task))
        self.pipelines = past.pipelines
        self.num_each = images // len(GROUPS)
        pool = task.unlabeled[domain]
        self.tables = {
            "labeled": task.labeled.images.take(balanced_rows(task.labeled.y, self.num_each)),
            "unlabeled": pool.images.take(balanced_rows(np.zeros(len(pool), np.int64), self.num_each)),
        }
        self.target_rows = balanced_rows(target.y, images) if target else np.zeros(0, np.intp)
        self.labelers: list[LabelerView] = []
        self.targets: list[TargetView] = []

    def add_stage(self, stage: FinishedStage) -> None:
        """Collect features if the stage trains the labeler or the product."""
        request = stage.request
        if self._is_labeler(request.key) or (request.product and not self.has_labeler):
            self.keys.add(request.key)
            groups = {name: self._features(request.learner, table) for name, table in self.tables.items()}
            if isinstance(request.inputs.labeled, MixedSet):
                pipeline = without_augmentation(self.pipelines.of(request.learner))
                mixed = first_mixed(stage, request.inputs.labeled, self.num_each, pipeline)
                groups["intermediate"] = pooled_features(request.learner, (batch.x for batch in mixed))
            self.labelers.append(LabelerView(request.round, groups, None))
        if request.product and self.target is not None:
            self.product = request.title
            scores = stage.meta.history[-1].target
            features = self._features(request.learner, self.target.images.take(self.target_rows))
            self.targets.append(TargetView(request.round, features, scores[0] if scores else None))

    def _is_labeler(self, key: str) -> bool:
        return key.partition("/")[2] == self.domain

    def _features(self, learner: Learner, table: ImageTable) -> Features:
        return pooled_features(learner, evaluation_batches(table, EVAL_BATCH, self.pipelines.of(learner)))


def balanced_rows(y: NDArray[np.int64], num: int) -> Rows:
    """Return up to `num` sorted rows, balanced over the classes as far as possible, drawn from a fixed seed."""
    rng = numpy_rng("figure", len(y))
    rank = np.empty(len(y), np.intp)  # of a row in the random order of its class
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        rank[rows] = rng.permutation(len(rows))
    return np.sort(np.lexsort((rng.random(len(y)), rank))[:num])


def draw_evolution(run: Evolution, path: Path) -> Path:
    """Draw the cycles of a run and write the figure to `path`."""
    above = [embed(np.concatenate(list(view.groups.values()))) for view in run.labelers]
    below = [embed(view.features) for view in run.targets]
    rows, columns = 1 + bool(below), max(len(above), len(below))
    size = (max(PANEL_SIZE * columns + 2.0, MIN_WIDTH), (PANEL_SIZE + 0.3) * rows + 0.7)
    with canvas(path, columns, rows, figsize=size) as (figure, axes):
        panels = np.atleast_1d(axes).reshape(rows, columns)
        for panel in panels.flat:
            panel.set(xticks=[], yticks=[], box_aspect=1)
            panel.spines[:].set_color("0.8")
        for panel, view, points in zip(panels[0], run.labelers, above, strict=False):
            _draw_labeler(panel, view, points)
        panels[0, 0].set_ylabel(f"labeler of {run.labeler_domain}")
        names = _group_names(run)
        _legend(panels[0, -1], [_dots(COLORS[index], "o") for index in range(len(names))], names)
        if below:
            for panel, target, points in zip(panels[1], run.targets, below, strict=False):
                _draw_target(panel, target, points, run.y)
            panels[1, 0].set_ylabel(f"{run.product}, network 1, on {run.target}")
            _class_legend(panels[1, -1], run)
        figure.suptitle(_title(run), fontsize="medium")
        notes = [NOTE, TRUTH_NOTE] if below and (run.y >= 0).any() else [NOTE]
        figure.supxlabel("\n".join(notes), fontsize="x-small")
    return path


def embed(features: Features) -> Points:
    """Return the t-SNE of (images, features). PCA init, fixed seed and one thread make it deterministic."""
    num_images = len(features)
    if num_images < MIN_IMAGES:
        raise UserError(f"a t-SNE needs {MIN_IMAGES} images or more, not {num_images}; use more --images")
    try:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):  # sums over several threads are not reproducible
            return tsne_points(features, max_iter=STEPS)
    except ImportError:
        raise UserError("a t-SNE needs scikit-learn; run pip install 'ssdg[figures]'") from None


def _draw_labeler(axes: Any, view: LabelerView, points: Points) -> None:
    start = 0
    for name, features in view.groups.items():
        part = points[start : start + len(features)]
        axes.scatter(*part.T, s=7, alpha=0.6, linewidths=0, color=COLORS[GROUPS.index(name)])
        start += len(features)
    accuracy = "" if view.accuracy is None else f": {view.accuracy:.1f} % label accuracy"
    axes.set_title(f"cycle {view.cycle}{accuracy}", fontsize="small")


def _draw_target(axes: Any, view: TargetView, points: Points, y: NDArray[np.int64]) -> None:
    for label in np.unique(y):
        axes.scatter(*points[y == label].T, s=7, alpha=0.7, linewidths=0, **_style(int(label)))
    accuracy = "" if view.accuracy is None else f": {view.accuracy:.1f} % accuracy"
    axes.set_title(f"cycle {view.cycle}{accuracy}", fontsize="small")


def _style(label: int) -> dict[str, str]:
    """Return color and marker of a class: colors vary first, then markers; gray if the class is unknown."""
    if label < 0:
        return {"color": "0.6", "marker": "o"}
    return {"color": COLORS[label % len(COLORS)], "marker": MARKERS[label // len(COLORS) % len(MARKERS)]}


def _group_names(run: Evolution) -> list[str]:
    mixed = [view.cycle for view in run.labelers if "intermediate" in view.groups]
    names = [f"labeled: {run.labeled}", f"unlabeled: {run.labeler_domain}"]
    return [*names, *([f"intermediate domain,\nfrom cycle {mixed[0]} on"] if mixed else [])]


def _class_legend(axes: Any, run: Evolution) -> None:
    if len(run.classes) > MAX_CLASSES:
        return
    labels = [int(label) for label in np.unique(run.y)]
    names = [run.classes[label] if label >= 0 else "unknown class" for label in labels]
    styles = [_style(label) for label in labels]
    _legend(axes, [_dots(style["color"], style["marker"]) for style in styles], names)


def _dots(color: str, marker: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", color=color, marker=marker, markersize=4)


def _legend(axes: Any, handles: list[Any], names: list[str]) -> None:
    position = {"loc": "upper left", "bbox_to_anchor": (1.02, 1.0), "borderaxespad": 0.0}
    axes.legend(handles, names, frameon=False, fontsize="small", handletextpad=0.2, **position)


def _title(run: Evolution) -> str:
    unseen = f", unseen {run.target}" if run.target else ""
    return f"{run.method}: labeled {run.labeled}, unlabeled {' and '.join(run.unlabeled)}{unseen}; seed {run.seed}"
