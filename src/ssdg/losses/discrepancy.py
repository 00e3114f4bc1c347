"""Discrepancies between two predictions (MCD) and between two samples (maximum mean discrepancy, MMD).

`mk_mmd` and `joint_mmd` are quadratic unbiased estimates (U-statistics): all pairs of different samples within a
domain, all pairs across domains. For two samples of one distribution they are near zero and as often negative as
positive. `class_mmd` is the biased estimate (V-statistic): it includes pairs of a sample with itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from ..errors import UserError
from .classification import require_rows

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the kernels of `class_mmd`, in mean squared distances of the class


def l1_discrepancy(probs_a: Tensor, probs_b: Tensor) -> Tensor:
    """d(p, q) = 1/K Σ_k |p_k − q_k|, averaged over the batch (Saito et al. 2018, Eq. 2). In [0, 2/K]."""
    require_rows(probs_a, "l1_discrepancy")
    return (probs_a - probs_b).abs().mean()


def mk_mmd(first: Tensor, second: Tensor, num_kernels: int = 5) -> Tensor:
    """MMD of one layer under several Gaussian kernels of equal weight (Long et al. 2015): (n, F) and (m, F)."""
    return joint_mmd([(first, second)], num_kernels)


def joint_mmd(layers: Sequence[tuple[Tensor, Tensor]], num_kernels: int = 5) -> Tensor:
    """MMD of the joint distributions of several layers (Long et al. 2017): its kernel is the product over layers.

    `layers` holds (first domain, second domain) for each layer: (n, F) and (m, F), with the same n and m for all.
    """
    num_first, num_second = (len(part) for part in layers[0])
    if min(num_first, num_second) < 2:
        raise UserError(
            f"a discrepancy needs at least two images of each domain in a batch, not {num_first} and {num_second}; "
            "raise batch, or train with fewer processes"
        )
    kernels = [gaussian_kernels(torch.cat(pair), num_kernels) for pair in layers]
    return mmd_from_kernel(reduce(torch.mul, kernels), num_first)


def gaussian_kernels(values: Tensor, num_kernels: int = 5) -> Tensor:
    """k(a, b) = 1/m Σ_u exp(−|a − b|² / γ_u) of all pairs of rows (n, F): (n, n), in (0, 1].

    The m = `num_kernels` bandwidths are the mean of |a − b|² over pairs of different rows times powers of two
    around 1 (1/4, 1/2, 1, 2, 4 for m = 5). They are constants to the gradient.
    """
    centered = values - values.detach().mean(0)  # preserves distances and reduces rounding errors
    squared = torch.cdist(centered, centered).square()
    num_pairs = len(values) * (len(values) - 1)
    # The floor is for identical rows, which have no scale.
    mean = (squared.detach().sum() / num_pairs).clamp_min(torch.finfo(values.dtype).eps)
    powers = (2.0 ** (u - (num_kernels - 1) / 2) for u in range(num_kernels))
    return torch.stack([torch.exp(-squared / (power * mean)) for power in powers]).mean(0)


def mmd_from_kernel(kernel: Tensor, num_first: int) -> Tensor:
    """E k(a, a') + E k(b, b') − 2 E k(a, b) with a ≠ a', b ≠ b', from the kernel of all rows, those of a first."""
    first, second = kernel[:num_first, :num_first], kernel[num_first:, num_first:]
    return _mean_off_diagonal(first) + _mean_off_diagonal(second) - 2 * kernel[:num_first, num_first:].mean()


def _mean_off_diagonal(kernel: Tensor) -> Tensor:
    size = len(kernel)
    return (kernel.sum() - kernel.diagonal().sum()) / (size * (size - 1))


def class_mmd(z: Tensor, other: Tensor, y: Tensor, widths: Sequence[float] = WIDTHS) -> Tensor:
    """Squared MMD between `z` and `other` (B, D) within each class, averaged over the classes present.

    `y` (B,) holds the classes of both. Kernels Σ_w exp(−d² / (w · d̄²)), where d̄² is the mean over pairs of
    different samples of the class, both versions pooled, and takes no gradient. Zero for equal latents, at most
    twice the number of widths.
    """
    require_rows(z, "class_mmd")
    count = len(z)
    squares = squared_distances(torch.cat([z, other]))
    same_class = (y[:, None] == y).to(z.dtype)
    class_size = same_class.sum(1)  # of each sample's class
    pair_sums = squares.detach().view(2, count, 2, count).sum((0, 2))  # both versions of both samples
    mean = same_class @ (pair_sums * same_class).sum(1) / (2 * class_size * (2 * class_size - 1))
    mean = mean.clamp_min(torch.finfo(z.dtype).tiny ** 0.5).repeat(2)[:, None]  # equal latents have no scale
    kernel = sum(((-squares / (width * mean)).exp() for width in widths), torch.zeros_like(squares))
    blocks = kernel.view(2, count, 2, count)
    gaps = blocks[0, :, 0] + blocks[1, :, 1] - blocks[0, :, 1] - blocks[1, :, 0]
    # Each class weighs 1, so its n² pairs weigh 1/n² each, and there are Σ_i 1/n_i classes.
    return (gaps * same_class / class_size.square()[:, None]).sum() / (1 / class_size).sum()


def squared_distances(rows: Tensor) -> Tensor:
    """|r_i − r_j|² for all pairs of (n, D); centering the rows first preserves precision far from the origin."""
    rows = rows - rows.mean(0)
    lengths = rows.square().sum(1)
    return (lengths[:, None] + lengths - 2 * rows @ rows.T).clamp_min(0)
