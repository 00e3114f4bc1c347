"""Cross-entropy for class indices and soft labels, and the empty-batch check that all losses share."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def require_rows(values: Tensor, name: str) -> None:
    """Raise an error if the batch is empty: its mean would be NaN and spread silently."""
    if values.shape[0] == 0:
        raise ValueError(f"{name} needs at least one sample; the batch is empty")


def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """Mean over the batch of −Σ_k y_k log p_k; `y` is (B,) class indices or (B, K) soft labels (rows sum to 1)."""
    require_rows(logits, "cross_entropy")
    return F.cross_entropy(logits, y)


def cross_entropy_per_sample(logits: Tensor, y: Tensor) -> Tensor:
    """−Σ_k y_k log p_k of each sample: (B,)."""
    require_rows(logits, "cross_entropy_per_sample")
    return F.cross_entropy(logits, y, reduction="none")
