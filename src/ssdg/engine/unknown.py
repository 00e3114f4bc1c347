"""The answer 'unknown': a score of how known an image looks, and its thresholds by held-out images."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from .rejection import Scores


def known_scores(logits: Tensor) -> Scores:
    """How known each image looks: (n,), in nats, from logits (networks, n, K); 0 where all classes are as likely.

    s(x) = mean over the networks of KL(uniform ‖ p(x)) = log Σ_k exp z_k − mean_k z_k − log K. Without the mean of
    the logits this is the energy of Liu et al. (NeurIPS 2020); but cross-entropy leaves that mean to chance.
    """
    log_probs = logits.double().log_softmax(-1)
    scores: Scores = -log_probs.mean((0, 2)).numpy() - math.log(logits.shape[-1])
    return np.nan_to_num(scores, copy=False, nan=0.0, posinf=0.0)  # logits that are not finite tell nothing
