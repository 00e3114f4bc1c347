"""Entropies of predictions."""

from __future__ import annotations

import torch
from torch import Tensor

from .shapes import require_rows


def entropy(probs: Tensor) -> Tensor:
    """−Σ_k p_k log p_k of every row: (B,), with 0 log 0 = 0. In [0, log K]."""
    return -torch.xlogy(probs, probs).sum(-1)


def label_diversity(logits: Tensor) -> Tensor:
    """L_div (Eq. divloss): mean entropy of the predictions minus the entropy of the mean prediction.

    Lowest, −log K, when every prediction is certain and the classes are used equally.
    """
    require_rows(logits, "label_diversity")
    log_probs = logits.log_softmax(-1)
    probs = log_probs.exp()
    # Through log-probabilities and a floor: the gradient of p log p is finite at p = 0.
    each = -(probs * log_probs).sum(-1)
    mean = probs.mean(0)
    overall = -(mean * mean.clamp_min(torch.finfo(mean.dtype).tiny).log()).sum()
    return each.mean() - overall
