"""Where the gradients of several groups of images agree (Mansilla et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor

from .shapes import require_rows


def agreement(grads: Tensor) -> Tensor:
    """True where the components of all groups are positive or all negative: (groups, n) to (n,)."""
    require_rows(grads, "agreement")
    return (grads > 0).all(0) | (grads < 0).all(0)


def agreed_sum(grads: Tensor) -> Tensor:
    """Agr-Sum: the sum of the groups' components where their signs agree, zero elsewhere. (groups, n) to (n,)."""
    return torch.where(agreement(grads), grads.sum(0), 0.0)


def agreed_or_random(grads: Tensor, noise: Tensor) -> Tensor:
    """Agr-Rand: as `agreed_sum`, with `noise` (n,) ~ N(0, 1) instead of zeros, so that no weight stays dead.

    The noise is scaled by the mean size of the agreed components; where none agree, it is zero too.
    """
    agreed = agreement(grads)
    total = agreed_sum(grads)
    scale = total.abs().sum() / agreed.sum().clamp_min(1)
    return torch.where(agreed, total, scale * noise)
