"""The answer 'unknown': a score of how known an image looks, and its thresholds by held-out images."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from ..data.sets import LabeledSet
from ..data.streams import Pipeline
from ..methods.api import Learner
from .evaluate import all_logits
from .rejection import Rejection, Scores, choose_thresholds


def known_scores(logits: Tensor) -> Scores:
    """How known each image looks: (n,), in nats, from logits (networks, n, K); 0 where all classes are as likely.

    s(x) = mean over the networks of KL(uniform ‖ p(x)) = log Σ_k exp z_k − mean_k z_k − log K. Without the mean of
    the logits this is the energy of Liu et al. (NeurIPS 2020); but cross-entropy leaves that mean to chance.
    """
    log_probs = logits.double().log_softmax(-1)
    scores: Scores = -log_probs.mean((0, 2)).numpy() - math.log(logits.shape[-1])
    return np.nan_to_num(scores, copy=False, nan=0.0, posinf=0.0)  # logits that are not finite tell nothing


def choose_rejection(learner: Learner, held_out: LabeledSet | None, pipeline: Pipeline) -> Rejection | None:
    """The thresholds by the held-out images of the labeled domain; None where there are none."""
    if held_out is None or not len(held_out):
        return None
    return choose_thresholds(known_scores(all_logits(learner, held_out.images, pipeline)))
