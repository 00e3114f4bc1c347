"""Functions of gradients: gradient surgery (Mansilla et al. 2021) and the masks of RSC (Huang et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from .classification import require_rows


def signs_agree(grads: Tensor) -> Tensor:
    """True where the components of all groups are positive or all are negative: (groups, n) to (n,)."""
    require_rows(grads, "signs_agree")
    return (grads > 0).all(0) | (grads < 0).all(0)


def agreed_sum(grads: Tensor) -> Tensor:
    """Agr-Sum: the sum of the groups' components where their signs agree, zero elsewhere. (groups, n) to (n,)."""
    return torch.where(signs_agree(grads), grads.sum(0), 0.0)


def agreed_or_random(grads: Tensor, noise: Tensor) -> Tensor:
    """Agr-Rand: like `agreed_sum`, with `noise` (n,) ~ N(0, 1) instead of zeros, so that no weight stays dead.

    The noise is scaled by the mean magnitude of the agreed components; if none agree, it is zero too.
    """
    agreed = signs_agree(grads)
    total = agreed_sum(grads)
    scale = total.abs().sum() / agreed.sum().clamp_min(1)
    return torch.where(agreed, total, scale * noise)


def spatial_mask(maps: Tensor, grads: Tensor, rate: float) -> Tensor:
    """False at the fraction `rate` of positions that contribute most to the score: (B, 1, h, w).

    A position contributes Σ_c z_c g_c, with z the `maps` (B, C, h, w) and g the gradient of the score with respect
    to them. Below a mean over positions g is the same everywhere, so z must distinguish them, as in the authors'
    release.
    """
    require_rows(maps, "spatial_mask")
    dtype = torch.promote_types(maps.dtype, torch.float32)
    scores = (maps * grads).sum(1, dtype=dtype).flatten(1)
    return mask_largest(scores, rate).view(len(maps), 1, *maps.shape[2:])


def channel_mask(grads: Tensor, rate: float) -> Tensor:
    """False at the fraction `rate` of channels with the largest mean gradient over positions: (B, C, 1, 1)."""
    require_rows(grads, "channel_mask")
    dtype = torch.promote_types(grads.dtype, torch.float32)
    return mask_largest(grads.mean((2, 3), dtype=dtype), rate)[..., None, None]


def mask_largest(scores: Tensor, rate: float) -> Tensor:
    """False at the fraction `rate` of largest scores in each row of (B, n), True elsewhere (Eq. 2)."""
    top = scores.detach().topk(num_masked(scores.shape[1], rate), dim=1).indices
    return torch.ones_like(scores, dtype=torch.bool).scatter(1, top, False)


def num_masked(total: int, rate: float) -> int:
    """The integer nearest to `rate`·`total`, at least 1, but never all of `total`."""
    return min(total - 1, max(1, round(rate * total)))


def largest_drops(probs: Tensor, masked_probs: Tensor, rate: float) -> Tensor:
    """True for the fraction `rate` of samples whose true-class probability masking lowers most: (B,).

    Both arguments are (B,): the probability of the true class before and after masking.
    """
    require_rows(probs, "largest_drops")
    drops = (probs - masked_probs).detach()
    selected = torch.zeros_like(drops, dtype=torch.bool)
    selected[drops.topk(max(1, round(rate * len(drops)))).indices] = True
    return selected
