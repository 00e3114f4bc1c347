"""Weak and strong views of whole batches, on their device.

Every random number comes from a CPU generator, one row per sample, so a view depends neither on the
device nor on the samples that stand beside it.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from ..devices import onto
from ..errors import unknown
from .randaugment import cutout_, rand_augment

Augment = Literal["photo", "none"]

MAX_SHIFT = 1 / 8  # of the side, as FixMatch's random translation
DIGIT_SHIFT = 1 / 16  # 2 of 32 px, as Mean Teacher and MixMatch move SVHN's digits
CUTOUT_NUMBERS = 3  # size, centre row, centre column


def to_float(x: Tensor) -> Tensor:
    """Images (B, H, W, 3) uint8 as (B, 3, H, W) float32 in [0, 1], channels_last: the memory order stays."""
    _check_bytes(x)
    return x.permute(0, 3, 1, 2).float().div_(255)


def shift_flip(x: Tensor, dy: Tensor, dx: Tensor, flip: Tensor) -> Tensor:
    """Mirror image i left-right where `flip[i]`, then move it `dy[i]` pixels down and `dx[i]` to the right.

    x (B, H, W, C) of any type on any device, the other three (B,) on the CPU. The uncovered border repeats
    the edge pixel. Rows are copied whole and columns by one gather: 1.6 times faster than a gather of pixels.
    """
    num, height, width, channels = x.shape
    first_row = torch.arange(num, device=x.device)[:, None] * height
    rows = first_row + onto(_clamped(height, dy), x.device)
    columns = _clamped(width, dx)
    columns = onto(torch.where(flip[:, None], width - 1 - columns, columns), x.device)
    cells = (columns[:, :, None] * channels + torch.arange(channels, device=x.device)).view(num, 1, -1)
    moved = x.reshape(num * height, width * channels).index_select(0, rows.view(-1))
    return moved.view(num, height, -1).gather(2, cells.expand(-1, height, -1)).view_as(x)


def _clamped(side: int, shift: Tensor) -> Tensor:
    """Where each of `side` places reads from after a move by `shift` (B,): (B, side)."""
    return (torch.arange(side) - shift[:, None]).clamp_(0, side - 1)


def weak_photo(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each uint8 image (H, W, 3) moved by up to an eighth of its side, and mirrored half of the time."""
    _check_bytes(x)
    drawn = torch.rand(len(x), 3, generator=generator)
    return shift_flip(x, *_whole_shifts(drawn, x, MAX_SHIFT), drawn[:, 2] < 0.5)


def second_view(x: Tensor, kind: Augment, generator: torch.Generator) -> Tensor:
    """Another weak view of a uint8 batch as floats, for methods that compare two.

    Photos are moved and mirrored anew. Digits, which have no other augmentation, are moved by up to two of 32 pixels.
    """
    if kind == "photo":
        return augment(x, kind, generator)
    _check_bytes(x)
    drawn = torch.rand(len(x), 2, generator=generator)
    return to_float(shift_flip(x, *_whole_shifts(drawn, x, DIGIT_SHIFT), torch.zeros(len(x), dtype=torch.bool)))


def _whole_shifts(drawn: Tensor, x: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Two columns of uniform numbers in [0, 1) as whole pixels down and right, each within ±`rate` of the side."""
    most = [int(side * rate) for side in x.shape[1:3]]
    dy, dx = ((drawn[:, axis] * (2 * most[axis] + 1)).long() - most[axis] for axis in (0, 1))
    return dy, dx


def strong(
    x: Tensor,
    generator: torch.Generator,
    num_ops: int = 2,
    *,
    geometric: bool = True,
    flip: bool = False,
) -> Tensor:
    """FixMatch's strong view: RandAugment with ops and magnitudes of each sample's own, then Cutout.

    x (B, 3, H, W) in [0, 1], and so is the result, with the strides of x. `geometric=False` leaves rotation,
    shear and translation out; `flip` mirrors half of the samples (not for digits). Differences from the
    paper: the geometric ops of a sample are one warp after its photometric ones, and the uncovered border is
    grey as in Cutout.
    """
    _check_floats(x)
    drawn = torch.rand(len(x), 2 * num_ops + CUTOUT_NUMBERS + 1, generator=generator)
    choice, level, rest = drawn[:, :num_ops], drawn[:, num_ops : 2 * num_ops], drawn[:, 2 * num_ops :]
    mirror = (rest[:, -1] < 0.5) & flip
    view = rand_augment(x, choice, level, mirror, geometric=geometric)
    return torch.empty_like(x).copy_(cutout_(view, rest[:, :CUTOUT_NUMBERS]))


def augment(x: Tensor, kind: Augment, generator: torch.Generator) -> Tensor:
    """The weak view of a uint8 batch as floats: `photo` moves and mirrors, `none` only converts (digits)."""
    if kind not in get_args(Augment):
        raise unknown("augmentation", kind, get_args(Augment))
    return to_float(weak_photo(x, generator) if kind == "photo" else x)


def _check_bytes(x: Tensor) -> None:
    if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[-1] != 3 or not x.numel():
        raise ValueError(f"expected a batch of at least one uint8 image (B, H, W, 3), got {x.dtype} {tuple(x.shape)}")


def _check_floats(x: Tensor) -> None:
    if not x.is_floating_point() or x.ndim != 4 or x.shape[1] != 3 or not x.numel():
        raise ValueError(f"expected a batch of at least one float image (B, 3, H, W), got {x.dtype} {tuple(x.shape)}")
