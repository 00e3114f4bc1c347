"""Weak and strong views of whole batches on their device: flips and shifts, RandAugment, Cutout.

Every random number comes from a CPU generator, one row per sample, so a view depends neither on the device nor on
the other samples of the batch. RandAugment's `level` is uniform in [0, 1) per sample, and every operation maps it to
its own range (FixMatch, appendix). Parameters stay on the CPU, so selecting the rows of an operation never waits for
the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from ..devices import onto
from ..errors import unknown

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


Op = Callable[[Tensor, Tensor], Tensor]  # images (n, 3, H, W) and levels (n, 1, 1, 1) -> images

GREY = 0.5  # of Cutout's square and of the border that a warp uncovers
MAX_TURN = torch.pi / 6
MAX_SHEAR = 0.3
MAX_TRANSLATE = 0.3  # of the side
LUMA = (0.299, 0.587, 0.114)


def _grey(x: Tensor) -> Tensor:
    weights = onto(torch.tensor(LUMA, dtype=x.dtype), x.device).view(1, 3, 1, 1)
    return (x * weights).sum(1, keepdim=True)


def _fade(x: Tensor, towards: Tensor, level: Tensor) -> Tensor:
    """Keep 5 to 95 % of x, the rest from `towards`."""
    return torch.lerp(towards.expand_as(x), x, 0.05 + 0.9 * level)


def autocontrast(x: Tensor, level: Tensor) -> Tensor:
    """Stretch each channel of each image to [0, 1]; a flat channel stays."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-6), x)


def equalize(x: Tensor, level: Tensor) -> Tensor:
    """Flatten the histogram (256 bins) of each channel of each image; a flat channel stays."""
    bins = (x * 255).round().long().flatten(2)
    counts = torch.zeros(*bins.shape[:2], 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(2, bins, torch.ones_like(bins))
    below = counts.cumsum(2) - counts
    top = below.gather(2, bins.amax(2, keepdim=True))  # pixels below the brightest bin
    table = (below / top.clamp_min(1)).clamp(max=1).to(x.dtype)
    return torch.where(top[..., None] > 0, table.gather(2, bins).view_as(x), x)


def solarize(x: Tensor, level: Tensor) -> Tensor:
    """Invert what is brighter than `level`."""
    return x + (1 - 2 * x) * (x >= level)


def posterize(x: Tensor, level: Tensor) -> Tensor:
    """Keep the upper 4 to 8 bits."""
    step = 2 ** (4 - (level * 5).floor())  # 16 grey values down to 1
    return ((x * 255).round() / step).floor() * step / 255


def brightness(x: Tensor, level: Tensor) -> Tensor:
    """Fade to black."""
    return _fade(x, torch.zeros_like(x[:, :1]), level)


def contrast(x: Tensor, level: Tensor) -> Tensor:
    """Fade to the image's mean grey."""
    return _fade(x, _grey(x).mean((2, 3), keepdim=True), level)


def colour(x: Tensor, level: Tensor) -> Tensor:
    """Fade to grey values."""
    return _fade(x, _grey(x), level)


def sharpness(x: Tensor, level: Tensor) -> Tensor:
    """Fade to a 3x3 blur."""
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    tall = padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]
    square = tall[..., :-2] + tall[..., 1:-1] + tall[..., 2:]
    return _fade(x, (square + 4 * x) / 13, level)  # weights 1 around a 5


def identity(x: Tensor, level: Tensor) -> Tensor:
    """Nothing."""
    return x


PHOTOMETRIC: tuple[Op, ...] = (
    identity,
    autocontrast,
    equalize,
    solarize,
    posterize,
    brightness,
    contrast,
    colour,
    sharpness,
)
GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
OPS = (*(op.__name__ for op in PHOTOMETRIC), *GEOMETRIC)


def rand_augment(x: Tensor, choice: Tensor, level: Tensor, mirror: Tensor, *, geometric: bool) -> Tensor:
    """Apply to each sample its own ops.

    `choice` and `level` (B, num_ops) are uniform in [0, 1), on the CPU: which op, and how strongly; `mirror`
    (B,) says which samples are flipped left-right. The result is a contiguous copy, x may have any strides.
    """
    num_choices = len(OPS) if geometric else len(PHOTOMETRIC)
    picked = (choice * num_choices).long()
    x = x.clone(memory_format=torch.contiguous_format)  # whole planes: sub-batches are copied as blocks
    for slot in range(picked.shape[1]):
        _photometric(x, picked[:, slot], level[:, slot])
    _geometric(x, _matrices(picked, level, mirror))
    return x.clamp_(0, 1)


def _photometric(x: Tensor, picked: Tensor, level: Tensor) -> None:
    """Change x in place, one sub-batch per op."""
    for number, op in enumerate(PHOTOMETRIC):
        rows = (picked == number).nonzero()[:, 0]
        if op is not identity and len(rows):
            here = onto(rows, x.device)
            level_here = onto(level[rows], x.device, x.dtype).view(-1, 1, 1, 1)
            x.index_copy_(0, here, op(x.index_select(0, here), level_here))


def _matrices(picked: Tensor, level: Tensor, mirror: Tensor) -> Tensor:
    """The 2x3 map from output to input places, in units of half a side, of each sample: (B, 2, 3)."""
    signed = 2 * level - 1
    total = torch.eye(3).repeat(len(picked), 1, 1)
    total[mirror, 0, 0] = -1
    for slot in range(picked.shape[1]):
        step = {name: signed[:, slot] * (picked[:, slot] == OPS.index(name)) for name in GEOMETRIC}
        turn = step["rotate"] * MAX_TURN
        one = torch.eye(3).repeat(len(picked), 1, 1)
        one[:, 0, 0] = one[:, 1, 1] = turn.cos()
        one[:, 0, 1] = MAX_SHEAR * step["shear_x"] - turn.sin()
        one[:, 1, 0] = MAX_SHEAR * step["shear_y"] + turn.sin()
        one[:, 0, 2] = 2 * MAX_TRANSLATE * step["translate_x"]
        one[:, 1, 2] = 2 * MAX_TRANSLATE * step["translate_y"]
        total = total @ one
    return total[:, :2]


def _geometric(x: Tensor, matrices: Tensor) -> None:
    """Warp in place those samples whose matrix is not the identity."""
    rows = (matrices != torch.eye(3)[:2]).any(2).any(1).nonzero()[:, 0]
    if len(rows):
        here = onto(rows, x.device)
        grid = _grid(onto(matrices[rows], x.device, x.dtype), *x.shape[2:])
        shifted = x.index_select(0, here).sub_(GREY)  # so that zeros from outside mean grey
        x.index_copy_(0, here, F.grid_sample(shifted, grid, align_corners=False).add_(GREY))


def _grid(matrices: Tensor, height: int, width: int) -> Tensor:
    """The place that each output pixel reads from, in [-1, 1] inside the image: (n, H, W, 2)."""
    across, down = (_centres(side, matrices) * 2 - 1 for side in (width, height))
    column, row, offset = (part.view(-1, 1, 1, 2) for part in matrices.unbind(2))
    return across.view(-1, 1) * column + (down.view(-1, 1, 1) * row + offset)


def _centres(side: int, like: Tensor) -> Tensor:
    """The centres of `side` pixels, in units of the side."""
    return (torch.arange(side, device=like.device, dtype=like.dtype) + 0.5) / side


def cutout_(x: Tensor, drawn: Tensor) -> Tensor:
    """Grey out, in place, a square of up to half the side at a random place of each image.

    `drawn` (B, 3), uniform in [0, 1): side, centre row, centre column.
    """
    height, width = x.shape[2:]
    half = drawn[:, :1] * 0.25  # of the side
    rows = onto(_near(height, drawn[:, 1:2], half), x.device)
    columns = onto(_near(width, drawn[:, 2:3], half), x.device)
    hole = (rows[:, None, :, None] & columns[:, None, None, :]).to(x.dtype)
    return x.mul_(1 - hole).add_(hole, alpha=GREY)  # exact, and six times faster here than masked_fill_


def _near(side: int, centre: Tensor, half: Tensor) -> Tensor:
    """Which pixel centres lie within `half` of `centre`, both (B, 1) in units of the side: (B, side)."""
    return (_centres(side, centre) - centre).abs() < half
