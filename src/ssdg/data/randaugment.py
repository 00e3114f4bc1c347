"""RandAugment and Cutout with parameters of each sample's own (ranges: FixMatch, appendix).

`level` is a uniform number in [0, 1) per sample; every op below maps it to its own range. Parameters live
on the CPU, so choosing the rows of an op never waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ..devices import onto

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
