"""APL, adversarial pseudo labeling: one labeler per unlabeled domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...data.sets import LabeledSet, MixedSet, Task, concat_labeled
from ..api import Build, Learner, Method, Settings, Trainer, argmax_rule


@dataclass(frozen=True)
class Labeling:
    """How unlabeled domains are labeled: a DA method with its settings and, if it has one, a backbone of its own."""

    method: Method
    settings: Settings
    backbone: str | None = None
    weights: str | None = None

    def build(self, task: Task, build: Build, *, cycle: int = 1) -> dict[str, Learner]:
        """A fresh labeler for every unlabeled domain; `cycle` tells apart those of a run that starts each anew."""
        suffix = f"/{cycle}" if cycle > 1 else ""
        own = {"backbone": self.backbone, "weights": self.weights}
        return {
            name: build(f"apl/{name}{suffix}", self.method.learner, self.settings, **own)  # type: ignore[arg-type]
            for name in task.unlabeled
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
        """Train each labeler from the source to its own domain and label that domain (Eq. APL)."""
        labeled, rate = [], 1 / cycle**2
        for name, pool in task.unlabeled.items():
            key, labeler = f"apl/{name}", labelers[name]
            inputs = self.method.inputs(source, pool, self.settings)
            trainer.train(key, labeler, inputs, self.settings, round=cycle, lr_scale=rate, product=product)
            labels = trainer.label(key, labeler, pool, argmax_rule, round=cycle)
            labeled.append(pool.labeled_by(labels))
        return concat_labeled(labeled)
