"""Entropies of predictions."""

from __future__ import annotations

import torch
from torch import Tensor

from .shapes import require_rows


def entropy(probs: Tensor) -> Tensor:
    """−Σ_k p_k log p_k of every row: (B,), with 0 log 0 = 0. In [0, log K]."""
    require_rows(probs, "entropy")
    # The floor keeps the gradient finite at p = 0, where that of p log p is not.
    return -(probs * probs.clamp_min(torch.finfo(probs.dtype).tiny).log()).sum(-1)


def label_diversity(logits: Tensor) -> Tensor:
    """L_div (Eq. divloss): mean entropy of the predictions minus the entropy of the mean prediction.

    Lowest, −log K, when every prediction is certain and the classes are used equally.
    """
    require_rows(logits, "label_diversity")
    log_probs = logits.log_softmax(-1)
    probs = log_probs.exp()
    each = -(probs * log_probs).sum(-1)
    return each.mean() - entropy(probs.mean(0))
