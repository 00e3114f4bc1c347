"""How far two classifiers disagree."""

from __future__ import annotations

from torch import Tensor

from .shapes import require_rows


def l1_discrepancy(probs_a: Tensor, probs_b: Tensor) -> Tensor:
    """d(p, q) = 1/K Σ_k |p_k − q_k|, averaged over the batch (Saito et al. 2018, Eq. 2). In [0, 2/K]."""
    require_rows(probs_a, "l1_discrepancy")
    return (probs_a - probs_b).abs().mean()
