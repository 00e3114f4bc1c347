"""How far the latents of two versions of the same images lie apart, class by class."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .shapes import require_rows

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
