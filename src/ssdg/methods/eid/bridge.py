"""EID, the evolving intermediate domain between the labeled domain and the clean set of the unlabeled ones."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...data.sets import LabeledSet, MixedSet, Task
from ...losses.selection import clean_mask
from ..api import Learner, Trainer
from .settings import EidSettings


def first_source(task: Task, cfg: EidSettings) -> LabeledSet | MixedSet:
    """Return the source of cycle 1: the labeled domain, whose images the release mixes with each other even then."""
    if not cfg.any_pair:
        return task.labeled
    return intermediate_domain(task.labeled, empty_subset(task.labeled), cfg)


def evolve(
    task: Task,
    trainer: Trainer,
    dual: Learner,
    cfg: EidSettings,
    *,
    cycle: int,
    is_rejected: NDArray[np.bool_] | None = None,
) -> LabeledSet | MixedSet:
    """Select the clean set by agreement and small loss and mix it with the labeled domain (Eq. mixup).

    The pool is all unlabeled domains together, as the paper's D_U is: a domain with confident predictions
    contributes more to the clean set. If the networks agree on no image at all, the next cycle starts like the first.
    `is_rejected` marks images of the pool that an open-set labeler rejected.
    """
    eligible = None
    if is_rejected is not None and not cfg.clean_rejected:
        eligible = torch.from_numpy(~is_rejected)

    def rule(logits: Tensor) -> tuple[Tensor, Tensor]:
        is_clean = clean_mask(
            logits, cfg.clean_rate, choice=cfg.clean_choice, first_only=cfg.first_only, eligible=eligible
        )
        return logits[0].argmax(-1), is_clean

    pool = task.pool
    labels = trainer.label("eid", dual, pool, rule, round=cycle, kind="clean-set", title="clean set (EID)")
    if not labels.keep.any():
        return first_source(task, cfg)
    return intermediate_domain(task.labeled, pool.labeled_by(labels), cfg)


def intermediate_domain(labeled: LabeledSet, clean: LabeledSet, cfg: EidSettings) -> MixedSet:
    """Return the mix of both sets that the settings define."""
    return MixedSet(labeled, clean, cfg.mix, cfg.mix_alpha, cfg.any_pair)


def empty_subset(labeled: LabeledSet) -> LabeledSet:
    """Return a set without images, like `labeled` otherwise."""
    none = np.zeros(0, np.intp)
    return LabeledSet(labeled.images.take(none), labeled.y[none], labeled.domain[none], labeled.trusted[none])
