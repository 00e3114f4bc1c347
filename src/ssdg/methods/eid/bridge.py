"""EID, the evolving intermediate domain between the labeled domain and the clean part of the unlabeled ones."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from ...data.sets import LabeledSet, MixedSet, Task
from ...losses.selection import clean_mask
from ..api import Learner, Trainer
from .settings import EidSettings


def first_source(task: Task, cfg: EidSettings) -> LabeledSet | MixedSet:
    """Cycle 1 starts from the labeled domain; the release mixes its images with each other even then."""
    if not cfg.any_pair:
        return task.labeled
    return intermediate_domain(task.labeled, nothing_of(task.labeled), cfg)


def evolve(task: Task, trainer: Trainer, dual: Learner, cfg: EidSettings, *, cycle: int) -> LabeledSet | MixedSet:
    """Choose the clean set by agreement and small loss and mix it with the labeled domain (Eq. mixup).

    The pool is all unlabeled domains together, as the paper's D_U is: a domain that the networks are sure of
    gives more to the clean set. Where the networks agree on no image at all, the next cycle starts as the first did.
    """

    def rule(logits: Tensor) -> tuple[Tensor, Tensor]:
        keep = clean_mask(logits, cfg.clean_rate, choice=cfg.clean_choice, first_only=cfg.first_only)
        return logits[0].argmax(-1), keep

    pool = task.pool
    labels = trainer.label("eid", dual, pool, rule, round=cycle)
    if not labels.keep.any():
        return first_source(task, cfg)
    return intermediate_domain(task.labeled, pool.labeled_by(labels), cfg)


def intermediate_domain(labeled: LabeledSet, clean: LabeledSet, cfg: EidSettings) -> MixedSet:
    """The mix that the settings ask for."""
    return MixedSet(labeled, clean, cfg.mix, cfg.mix_alpha, cfg.any_pair)


def nothing_of(labeled: LabeledSet) -> LabeledSet:
    """The empty subset."""
    none = np.zeros(0, np.intp)
    return LabeledSet(labeled.images.take(none), labeled.y[none], labeled.domain[none], labeled.trusted[none])
