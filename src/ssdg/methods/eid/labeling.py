"""APL, adversarial pseudo labeling: one labeler per unlabeled domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.sets import LabeledSet, MixedSet, Task, concat_labeled
from ...errors import UserError
from ..api import Build, Learner, Method, Settings, Trainer, argmax_rule


@dataclass(frozen=True)
class Labeling:
    """How unlabeled domains are labeled: a DA method with its settings and, optionally, its own backbone."""

    method: Method
    settings: Settings
    backbone: str | None = None
    weights: str | None = None

    def build(self, task: Task, build: Build, *, cycle: int = 1) -> dict[str, Learner]:
        """Build a labeler for every unlabeled domain that needs one; `cycle` distinguishes those of a fresh start."""
        suffix = f"/{cycle}" if cycle > 1 else ""
        return {
            name: build(
                f"apl/{name}{suffix}",
                self.method.learner,
                self.settings,
                backbone=self.backbone,
                weights=self.weights,
            )
            for name in task.unlabeled
            if not (name in task.web and task.web_label == "retained")
        }

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

        A crawl keeps its web-labels where they are retained and, where they are refined, in the first cycle. Images
        that an open-set labeler rejects are left out; the second result marks them in the order of `task.pool`.
        """
        labeled, rejected = [], []
        for name, pool in task.unlabeled.items():
            if name in task.web and (cycle == 1 or task.web_label == "retained"):
                labeled.append(pool.labeled_as(task.web[name]))
                rejected.append(np.zeros(len(pool), np.bool_))
                continue
            key, labeler = f"apl/{name}", labelers[name]
            trainer.train(
                key,
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
            labels = trainer.label(key, voter, pool, rule, round=cycle, title="labelers (APL)")
            labeled.append(pool.labeled_by(labels))
            rejected.append(~labels.keep)
        pseudo = concat_labeled(labeled)
        if not len(pseudo):
            raise UserError(
                f"{self.method.name} rejected every unlabeled image in cycle {cycle}; "
                "lower its weight with labeler.weight, or use apl=mcd, which rejects none"
            )
        return pseudo, np.concatenate(rejected)


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
