"""Losses that look at gradients: agreement of groups (Mansilla et al. 2021), RSC's masks (Huang et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from .classification import require_rows


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


def num_dropped(total: int, rate: float) -> int:
    """The count nearest to `rate`·`total`, but at least one, and one of several is always kept."""
    return min(total - 1, max(1, round(rate * total)))


def spatial_mask(maps: Tensor, grads: Tensor, rate: float) -> Tensor:
    """False at the share `rate` of positions that add most to the score: (B, 1, h, w).

    A position adds Σ_c z_c g_c, with z the `maps` (B, C, h, w) and g the gradient of the score by them. After a
    mean over positions g is the same at all of them, so z must tell them apart, as in the authors' release.
    """
    require_rows(maps, "spatial_mask")
    wide = torch.promote_types(maps.dtype, torch.float32)
    scores = (maps * grads).sum(1, dtype=wide).flatten(1)
    return keep_low(scores, rate).view(len(maps), 1, *maps.shape[2:])


def channel_mask(grads: Tensor, rate: float) -> Tensor:
    """False at the share `rate` of channels with the largest mean gradient over positions: (B, C, 1, 1)."""
    require_rows(grads, "channel_mask")
    wide = torch.promote_types(grads.dtype, torch.float32)
    return keep_low(grads.mean((2, 3), dtype=wide), rate)[..., None, None]


def keep_low(scores: Tensor, rate: float) -> Tensor:
    """False at the share `rate` of largest scores in every row of (B, n), True elsewhere (Eq. 2)."""
    top = scores.detach().topk(num_dropped(scores.shape[1], rate), dim=1).indices
    return torch.ones_like(scores, dtype=torch.bool).scatter(1, top, False)


def hit_hardest(probs: Tensor, masked_probs: Tensor, rate: float) -> Tensor:
    """True for the share `rate` of samples whose probability of the true class falls most by masking: (B,).

    Both arguments are (B,): the probability of the true class before and after.
    """
    require_rows(probs, "hit_hardest")
    falls = (probs - masked_probs).detach()
    hit = torch.zeros_like(falls, dtype=torch.bool)
    hit[falls.topk(max(1, round(rate * len(falls)))).indices] = True
    return hit
