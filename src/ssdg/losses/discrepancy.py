"""Distances between two predictions or two samples: classifier discrepancy and maximum mean discrepancies.

Every MMD here is the quadratic unbiased estimate (a U-statistic): all pairs of different samples within a domain, all
pairs across. It is near zero for two samples of one distribution, and then as often negative as positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from ..errors import UserError
from .classification import require_rows


def l1_discrepancy(probs_a: Tensor, probs_b: Tensor) -> Tensor:
    """d(p, q) = 1/K Σ_k |p_k − q_k|, averaged over the batch (Saito et al. 2018, Eq. 2). In [0, 2/K]."""
    require_rows(probs_a, "l1_discrepancy")
    return (probs_a - probs_b).abs().mean()


def gaussian_kernels(values: Tensor, num_kernels: int = 5) -> Tensor:
    """k(a, b) = 1/m Σ_u exp(−|a − b|² / γ_u) of all pairs of rows (n, F): (n, n), in (0, 1].

    The m = `num_kernels` bandwidths are the mean of |a − b|² over pairs of different rows times the powers of two
    around 1 (1/4, 1/2, 1, 2, 4 for m = 5). They are constants to the gradient.
    """
    centered = values - values.detach().mean(0)  # distances stay; less is lost to rounding
    squared = torch.cdist(centered, centered).square()
    num_pairs = len(values) * (len(values) - 1)
    # The floor is for rows that are all the same: they have no scale.
    mean = (squared.detach().sum() / num_pairs).clamp_min(torch.finfo(values.dtype).eps)
    powers = (2.0 ** (u - (num_kernels - 1) / 2) for u in range(num_kernels))
    return torch.stack([torch.exp(-squared / (power * mean)) for power in powers]).mean(0)


def mean_discrepancy(kernel: Tensor, num_first: int) -> Tensor:
    """E k(a, a') + E k(b, b') − 2 E k(a, b) with a ≠ a', b ≠ b', from the kernel of all rows, first those of a."""
    first, second = kernel[:num_first, :num_first], kernel[num_first:, num_first:]
    return _mean_of_pairs(first) + _mean_of_pairs(second) - 2 * kernel[:num_first, num_first:].mean()


def _mean_of_pairs(kernel: Tensor) -> Tensor:
    size = len(kernel)
    return (kernel.sum() - kernel.diagonal().sum()) / (size * (size - 1))


def joint_mmd(layers: Sequence[tuple[Tensor, Tensor]], num_kernels: int = 5) -> Tensor:
    """The MMD of joint distributions of several layers (Long et al. 2017): its kernel is the product over layers.

    `layers` holds (first domain, second domain) for every layer: (n, F) and (m, F), the same n and m in all.
    """
    num_first, num_second = (len(part) for part in layers[0])
    if min(num_first, num_second) < 2:
        raise UserError(
            f"a discrepancy needs at least two images of each domain in a batch, not {num_first} and {num_second}; "
            "raise batch, or train with fewer processes"
        )
    kernels = [gaussian_kernels(torch.cat(pair), num_kernels) for pair in layers]
    return mean_discrepancy(reduce(torch.mul, kernels), num_first)


def mk_mmd(first: Tensor, second: Tensor, num_kernels: int = 5) -> Tensor:
    """The MMD of one layer under several Gaussian kernels of equal weight (Long et al. 2015): (n, F) and (m, F)."""
    return joint_mmd([(first, second)], num_kernels)


WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the kernels, in mean squared distances of the class


def class_mmd(z: Tensor, other: Tensor, y: Tensor, widths: Sequence[float] = WIDTHS) -> Tensor:
    """Squared maximum mean discrepancy between `z` and `other` (B, D) within a class, mean over classes present.

    `y` (B,) are the classes of both. Kernels Σ_w exp(−d² / (w · d̄²)), where d̄² is the mean over pairs of
    different samples of the class, both versions together, and takes no gradient. Zero for equal latents, at most
    twice the number of widths.
    """
    require_rows(z, "class_mmd")
    count = len(z)
    squares = squared_distances(torch.cat([z, other]))
    same = (y[:, None] == y).to(z.dtype)
    size = same.sum(1)  # of a sample's class
    of_rows = squares.detach().view(2, count, 2, count).sum((0, 2))  # both versions of both samples
    mean = same @ (of_rows * same).sum(1) / (2 * size * (2 * size - 1))
    mean = mean.clamp_min(torch.finfo(z.dtype).tiny ** 0.5).repeat(2)[:, None]  # a class of equal latents has none
    kernel = sum(((-squares / (width * mean)).exp() for width in widths), torch.zeros_like(squares))
    blocks = kernel.view(2, count, 2, count)
    gaps = blocks[0, :, 0] + blocks[1, :, 1] - blocks[0, :, 1] - blocks[1, :, 0]
    # a class weighs 1, its n² pairs 1/n² each, and there are Σ_i 1/n_i classes
    return (gaps * same / size.square()[:, None]).sum() / (1 / size).sum()


def squared_distances(rows: Tensor) -> Tensor:
    """|r_i − r_j|² for all pairs of (n, D); rows are centered first, which keeps digits where all lie far off."""
    rows = rows - rows.mean(0)
    lengths = rows.square().sum(1)
    return (lengths[:, None] + lengths - 2 * rows @ rows.T).clamp_min(0)
