"""APL, adversarial pseudo labeling: one labeler per unlabeled domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...data.sets import LabeledSet, MixedSet, Task, concat_labeled
from ...errors import UserError
from ..api import Build, Learner, Method, Settings, Trainer, argmax_rule


class Rejecting:
    """An open-set learner as one whose last class is 'unknown'."""

    def __init__(self, learner: Any) -> None:
        self.nets, self.opts, self.step = learner.nets, learner.opts, learner.step
        self.logits = learner.open_logits


def known_rule(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest known class, kept where no class is likelier; the last of (networks, n, K + 1) is 'unknown'."""
    probs = logits.softmax(-1).mean(0)
    known = probs[:, :-1].max(-1)
    return known.indices, torch.as_tensor(known.values >= probs[:, -1])


@dataclass(frozen=True)
class Labeling:
    """How unlabeled domains are labeled: a DA method with its settings and, if it has one, a backbone of its own."""

    method: Method
    settings: Settings
    backbone: str | None = None
    weights: str | None = None

    def build(self, task: Task, build: Build, *, cycle: int = 1) -> dict[str, Learner]:
        """A fresh labeler for every unlabeled domain that needs one; `cycle` tells apart those of a fresh start."""
        suffix = f"/{cycle}" if cycle > 1 else ""
        own = {"backbone": self.backbone, "weights": self.weights}
        return {
            name: build(f"apl/{name}{suffix}", self.method.learner, self.settings, **own)  # type: ignore[arg-type]
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
    ) -> LabeledSet:
        """Train each labeler from the source to its own domain and label that domain (Eq. APL).

        A crawl keeps its web-labels where they are retained and, where they are refined, in the first cycle. What a
        labeler of open sets takes for unknown is left out.
        """
        labeled, rate = [], 1 / cycle**2
        for name, pool in task.unlabeled.items():
            if name in task.web and (cycle == 1 or task.web_label == "retained"):
                labeled.append(pool.labeled_as(task.web[name]))
                continue
            key, labeler = f"apl/{name}", labelers[name]
            inputs = self.method.inputs(source, pool, self.settings)
            trainer.train(key, labeler, inputs, self.settings, round=cycle, lr_scale=rate, product=product)
            is_open = hasattr(labeler, "open_logits")
            voter, rule = (Rejecting(labeler), known_rule) if is_open else (labeler, argmax_rule)
            labeled.append(pool.labeled_by(trainer.label(key, voter, pool, rule, round=cycle)))
        pseudo = concat_labeled(labeled)
        if not len(pseudo):
            raise UserError(
                f"in cycle {cycle} {self.method.name} took every unlabeled image for unknown; "
                "lower its weight with labeler.weight, or give apl=mcd, which rejects none"
            )
        return pseudo
