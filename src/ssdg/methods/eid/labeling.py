"""APL, adversarial pseudo labeling: one labeler per unlabeled domain, or a joint one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.sets import LabeledSet, MixedSet, PseudoLabels, Task, UnlabeledSet, concat_labeled
from ...errors import UserError
from ..api import ALL_VIEWS, Build, Learner, Method, Settings, Trainer, argmax_rule


@dataclass(frozen=True)
class Labeling:
    """How unlabeled domains are labeled: a method with its settings and, optionally, its own backbone."""

    method: Method
    settings: Settings
    backbone: str | None = None
    weights: str | None = None

    def build(self, task: Task, build: Build, *, cycle: int = 1) -> dict[str, Learner]:
        """Build a labeler for every unlabeled domain that needs one; `cycle` distinguishes those of a fresh start."""
        suffix = f"/{cycle}" if cycle > 1 else ""
        names = [name for name in task.unlabeled if not (name in task.web and task.web_label == "retained")]
        if self.method.joint_labeler is not None:
            return dict.fromkeys(names, self._build_labeler(f"apl{suffix}", build)) if names else {}
        return {name: self._build_labeler(f"apl/{name}{suffix}", build) for name in names}

    def _build_labeler(self, key: str, build: Build) -> Learner:
        freeze = self.method.freeze
        learner, settings = self.method.learner, self.settings
        return build(key, learner, settings, backbone=self.backbone, weights=self.weights, freeze=freeze)

    def pseudo_label(
        self,
        task: Task,
        trainer: Trainer,
        labelers: Mapping[str, Learner],
        source: LabeledSet | MixedSet,
        *,
        cycle: int = 1,
        product: bool = False,
    ) -> tuple[LabeledSet, NDArray[np.bool_]]:
        """Train each labeler from the source to its own domain and label that domain (Eq. APL).

        A joint labeler is trained once, on all domains; it learns both sides of a mixed source as they are.
        A crawl keeps its web-labels where they are retained and, where they are refined, in the first cycle. Images
        that an open-set labeler rejects are left out; the second result marks them in the order of `task.pool`.
        """
        has_web_labels = {name for name in task.web if cycle == 1 or task.web_label == "retained"}
        pools = {name: pool for name, pool in task.unlabeled.items() if name not in has_web_labels}
        labels = self.label(pools, trainer, labelers, source, cycle=cycle, product=product)
        labeled, rejected = [], []
        for name, pool in task.unlabeled.items():
            is_labeled = name in labels
            labeled.append(pool.labeled_by(labels[name]) if is_labeled else pool.labeled_as(task.web[name]))
            rejected.append(~labels[name].keep if is_labeled else np.zeros(len(pool), np.bool_))
        pseudo = concat_labeled(labeled)
        if not len(pseudo):
            raise UserError(
                f"{self.method.name} rejected every unlabeled image in cycle {cycle}; "
                "lower its weight with labeler.weight, or use apl=mcd, which rejects none"
            )
        return pseudo, np.concatenate(rejected)

    def label(
        self,
        pools: Mapping[str, UnlabeledSet],
        trainer: Trainer,
        labelers: Mapping[str, Learner],
        source: LabeledSet | MixedSet,
        *,
        cycle: int = 1,
        product: bool = False,
        key: str = "apl",
    ) -> dict[str, PseudoLabels]:
        """Train the labelers and return the labels of every pool; `key` begins the name of each labeling."""
        joint = self.method.joint_labeler
        if joint is not None and pools:
            learner, both = next(iter(labelers.values())), joined(source)
            joint(learner, both, pools, trainer, self.settings, cycle=cycle, product=product)
        labels = {}
        for name, pool in pools.items():
            labeler = labelers[name]
            if joint is None:
                trainer.train(
                    f"{key}/{name}",
                    labeler,
                    self.method.inputs(source, pool, self.settings),
                    self.settings,
                    round=cycle,
                    lr_scale=1 / cycle**2,
                    product=product,
                    title=f"labeler of {name}",
                    group="labelers",
                )
            is_open = hasattr(labeler, "open_logits")
            voter, rule = (Rejecting(labeler), known_rule) if is_open else (labeler, argmax_rule)
            views = 0 if joint is None else ALL_VIEWS
            title = "first labels" if key == "first" else "labelers (APL)"
            labels[name] = trainer.label(f"{key}/{name}", voter, pool, rule, round=cycle, title=title, views=views)
        return labels


def joined(source: LabeledSet | MixedSet) -> LabeledSet:
    """Return the images of a source unmixed: a closed solution has no steps in which to draw mixtures."""
    return concat_labeled([source.base, source.clean]) if isinstance(source, MixedSet) else source


class Rejecting:
    """An open-set learner as a learner whose last class is 'unknown'."""

    def __init__(self, learner: Any) -> None:
        self.nets, self.opts, self.step = learner.nets, learner.opts, learner.step
        self.logits = learner.open_logits


def known_rule(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the likeliest known class, selected where it beats 'unknown', the last of (networks, n, K + 1)."""
    probs = logits.softmax(-1).mean(0)
    known = probs[:, :-1].max(-1)
    return known.indices, torch.as_tensor(known.values >= probs[:, -1])
