"""What the networks of a run make of its images, cycle by cycle: pooled features of their backbones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data.sets import ImageTable, MixedSet, Rows
from ..data.streams import evaluation_batches
from ..errors import UserError, unknown
from ..methods.api import Learner
from ..seeds import numpy_rng
from .evaluate import EVAL_BATCH
from .pooled import Features, Passed, first_mixed, plain, pooled
from .replay import Past, open_past
from .run import pipeline_of

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
