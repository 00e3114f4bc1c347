"""APL, adversarial pseudo labeling: one labeler per unlabeled domain."""

from __future__ import annotations

from collections.abc import Mapping

from ...data.sets import LabeledSet, MixedSet, Task, concat_labeled
from ..api import Build, Learner, Trainer, argmax_rule, find_method
from .settings import EidSettings


def build_labelers(task: Task, build: Build, cfg: EidSettings, *, cycle: int) -> dict[str, Learner]:
    """A fresh labeler for every unlabeled domain; `cycle` tells apart those of a run with `reinit`."""
    learner = find_method(cfg.apl, family="DA").learner
    suffix = f"/{cycle}" if cycle > 1 else ""
    return {
        name: build(f"apl/{name}{suffix}", learner, cfg.labeler, backbone=cfg.apl_backbone, weights=cfg.apl_weights)
        for name in task.unlabeled
    }


def pseudo_label(
    task: Task,
    trainer: Trainer,
    labelers: Mapping[str, Learner],
    source: LabeledSet | MixedSet,
    cfg: EidSettings,
    *,
    cycle: int,
) -> LabeledSet:
    """Train each labeler from the source to its own domain and label that domain (Eq. APL)."""
    method, labeled = find_method(cfg.apl, family="DA"), []
    for name, pool in task.unlabeled.items():
        inputs = method.inputs(source, pool, cfg.labeler)
        trainer.train(f"apl/{name}", labelers[name], inputs, cfg.labeler, round=cycle, lr_scale=1 / cycle**2)
        labels = trainer.label(f"apl/{name}", labelers[name], pool, argmax_rule, round=cycle)
        labeled.append(pool.labeled_by(labels))
    return concat_labeled(labeled)
