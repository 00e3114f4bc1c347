"""Weak and strong views of whole batches on their device: flips and shifts, RandAugment, Cutout.

Every random number comes from a CPU generator, one row per sample, so a view depends neither on the device nor on
the other samples of the batch. RandAugment's `level` is uniform in [0, 1) per sample; every operation maps it to
its range (FixMatch, appendix). Parameters stay on the CPU, so selecting the rows of an operation never waits
for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from ..devices import onto
from ..errors import unknown
from .sets import AugmentKind

MAX_SHIFT = 1 / 8  # of the side, as FixMatch's random translation
DIGIT_SHIFT = 1 / 16  # 2 of 32 px, as in Mean Teacher and MixMatch on SVHN
NUM_CUTOUT_PARAMS = 3  # size, center row, center column


def to_float(x: Tensor) -> Tensor:
    """Convert uint8 images (B, H, W, 3) to float32 (B, 3, H, W) in [0, 1], channels_last: the memory order stays."""
    check_bytes(x)
    return x.permute(0, 3, 1, 2).float().div_(255)


def shift_flip(x: Tensor, dy: Tensor, dx: Tensor, flip: Tensor) -> Tensor:
    """Flip image i horizontally where `flip[i]`, then shift it `dy[i]` pixels down and `dx[i]` to the right.

    x is (B, H, W, C) of any type on any device, the others are (B,) on the CPU. The uncovered border repeats the edge
    pixel. Whole rows are copied and columns gathered at once: 1.6 times faster than gathering single pixels.
    """
    num, height, width, channels = x.shape
    first_row = torch.arange(num, device=x.device)[:, None] * height
    rows = first_row + onto(_source_index(height, dy), x.device)
    columns = _source_index(width, dx)
    columns = onto(torch.where(flip[:, None], width - 1 - columns, columns), x.device)
    cells = (columns[:, :, None] * channels + torch.arange(channels, device=x.device)).view(num, 1, -1)
    moved = x.reshape(num * height, width * channels).index_select(0, rows.view(-1))
    return moved.view(num, height, -1).gather(2, cells.expand(-1, height, -1)).view_as(x)


def _source_index(side: int, shift: Tensor) -> Tensor:
    """Return the index that each of `side` positions reads from after a shift by `shift` (B,): (B, side)."""
    return (torch.arange(side) - shift[:, None]).clamp_(0, side - 1)


def random_shift_flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each uint8 image (H, W, 3) by up to an eighth of its side; flip it with probability 0.5."""
    check_bytes(x)
    uniform = torch.rand(len(x), 3, generator=generator)
    return shift_flip(x, *_integer_shifts(uniform, x, MAX_SHIFT), uniform[:, 2] < 0.5)


def second_view(x: Tensor, kind: AugmentKind, generator: torch.Generator) -> Tensor:
    """Return another weak view of a uint8 batch as floats, for methods that compare two views.

    Photos are shifted and flipped again. Digits, which have no other augmentation, are shifted by up to two of 32
    pixels.
    """
    if kind == "photo":
        return weak_view(x, kind, generator)
    check_bytes(x)
    uniform = torch.rand(len(x), 2, generator=generator)
    return to_float(shift_flip(x, *_integer_shifts(uniform, x, DIGIT_SHIFT), torch.zeros(len(x), dtype=torch.bool)))


def _integer_shifts(uniform: Tensor, x: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Map two columns of uniform numbers in [0, 1) to pixels down and right, each within ±`rate` of the side."""
    limit = [int(side * rate) for side in x.shape[1:3]]
    dy, dx = ((uniform[:, axis] * (2 * limit[axis] + 1)).long() - limit[axis] for axis in (0, 1))
    return dy, dx


def strong_view(
    x: Tensor,
    generator: torch.Generator,
    num_ops: int = 2,
    *,
    geometric: bool = True,
    flip: bool = False,
) -> Tensor:
    """Return FixMatch's strong view: RandAugment with separate ops and magnitudes for each sample, then Cutout.

    x is (B, 3, H, W) in [0, 1], and so is the result, with the strides of x. `geometric=False` excludes rotation,
    shear and translation; `flip` mirrors half of the samples (not for digits). Differences from the paper: the
    geometric ops of a sample are one warp after its photometric ones, and the uncovered border is gray as in Cutout.
    """
    _check_floats(x)
    uniform = torch.rand(len(x), 2 * num_ops + NUM_CUTOUT_PARAMS + 1, generator=generator)
    choice, level, rest = uniform[:, :num_ops], uniform[:, num_ops : 2 * num_ops], uniform[:, 2 * num_ops :]
    mirror = (rest[:, -1] < 0.5) & flip
    view = rand_augment(x, choice, level, mirror, geometric=geometric)
    return torch.empty_like(x).copy_(cutout_(view, rest[:, :NUM_CUTOUT_PARAMS]))


def weak_view(x: Tensor, kind: AugmentKind, generator: torch.Generator) -> Tensor:
    """Return the weak view of a uint8 batch as floats: `photo` shifts and flips, `none` only converts (digits)."""
    if kind not in get_args(AugmentKind):
        raise unknown("augmentation", kind, get_args(AugmentKind))
    return to_float(random_shift_flip(x, generator) if kind == "photo" else x)


def check_bytes(x: Tensor) -> None:
    """Raise ValueError unless x is a batch of at least one uint8 image (B, H, W, 3)."""
    if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[-1] != 3 or not x.numel():
        raise ValueError(f"expected a batch of at least one uint8 image (B, H, W, 3), got {x.dtype} {tuple(x.shape)}")


def _check_floats(x: Tensor) -> None:
    if not x.is_floating_point() or x.ndim != 4 or x.shape[1] != 3 or not x.numel():
        raise ValueError(f"expected a batch of at least one float image (B, 3, H, W), got {x.dtype} {tuple(x.shape)}")


Op = Callable[[Tensor, Tensor], Tensor]  # images (n, 3, H, W) and levels (n, 1, 1, 1) -> images

GRAY = 0.5  # of Cutout's square and of the border that a warp uncovers
MAX_ROTATION = torch.pi / 6  # radians
MAX_SHEAR = 0.3
MAX_TRANSLATE = 0.3  # of the side
LUMA = (0.299, 0.587, 0.114)


def _gray(x: Tensor) -> Tensor:
    weights = onto(torch.tensor(LUMA, dtype=x.dtype), x.device).view(1, 3, 1, 1)
    return (x * weights).sum(1, keepdim=True)


def _fade(x: Tensor, target: Tensor, level: Tensor) -> Tensor:
    """Keep 5 to 95 % of x and take the rest from `target`."""
    return torch.lerp(target.expand_as(x), x, 0.05 + 0.9 * level)


def autocontrast(x: Tensor, level: Tensor) -> Tensor:
    """Stretch each channel of each image to [0, 1]; leave a constant channel unchanged."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-6), x)


def equalize(x: Tensor, level: Tensor) -> Tensor:
    """Flatten the histogram (256 bins) of each channel of each image; leave a constant channel unchanged."""
    bins = (x * 255).round().long().flatten(2)
    counts = torch.zeros(*bins.shape[:2], 256, dtype=torch.long, device=x.device)
    counts.scatter_add_(2, bins, torch.ones_like(bins))
    below = counts.cumsum(2) - counts
    top = below.gather(2, bins.amax(2, keepdim=True))  # pixels below the brightest bin
    table = (below / top.clamp_min(1)).clamp(max=1).to(x.dtype)
    return torch.where(top[..., None] > 0, table.gather(2, bins).view_as(x), x)


def solarize(x: Tensor, level: Tensor) -> Tensor:
    """Invert pixels brighter than `level`."""
    return x + (1 - 2 * x) * (x >= level)


def posterize(x: Tensor, level: Tensor) -> Tensor:
    """Keep the upper 4 to 8 bits."""
    step = 2 ** (4 - (level * 5).floor())  # 16 gray values down to 1
    return ((x * 255).round() / step).floor() * step / 255


def brightness(x: Tensor, level: Tensor) -> Tensor:
    """Fade to black."""
    return _fade(x, torch.zeros_like(x[:, :1]), level)


def contrast(x: Tensor, level: Tensor) -> Tensor:
    """Fade to the image's mean gray value."""
    return _fade(x, _gray(x).mean((2, 3), keepdim=True), level)


def color(x: Tensor, level: Tensor) -> Tensor:
    """Fade to grayscale."""
    return _fade(x, _gray(x), level)


def sharpness(x: Tensor, level: Tensor) -> Tensor:
    """Fade to a 3x3 blur."""
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    tall = padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]
    square = tall[..., :-2] + tall[..., 1:-1] + tall[..., 2:]
    return _fade(x, (square + 4 * x) / 13, level)  # weight 5 in the center, 1 around it


def identity(x: Tensor, level: Tensor) -> Tensor:
    """Return x unchanged."""
    return x


PHOTOMETRIC: tuple[Op, ...] = (
    identity,
    autocontrast,
    equalize,
    solarize,
    posterize,
    brightness,
    contrast,
    color,
    sharpness,
)
GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
OPS = (*(op.__name__ for op in PHOTOMETRIC), *GEOMETRIC)


def rand_augment(x: Tensor, choice: Tensor, level: Tensor, mirror: Tensor, *, geometric: bool) -> Tensor:
    """Apply separate ops to each sample.

    `choice` and `level` (B, num_ops) are uniform in [0, 1), on the CPU: the op and its magnitude; `mirror` (B,) marks
    the samples to flip horizontally. The result is a contiguous copy; x may have any strides.
    """
    num_choices = len(OPS) if geometric else len(PHOTOMETRIC)
    op_index = (choice * num_choices).long()
    x = x.clone(memory_format=torch.contiguous_format)  # contiguous planes: sub-batches are copied as blocks
    for slot in range(op_index.shape[1]):
        _apply_photometric(x, op_index[:, slot], level[:, slot])
    _apply_geometric(x, _matrices(op_index, level, mirror))
    return x.clamp_(0, 1)


def _apply_photometric(x: Tensor, op_index: Tensor, level: Tensor) -> None:
    """Change x in place, one sub-batch per op."""
    for index, op in enumerate(PHOTOMETRIC):
        rows = (op_index == index).nonzero()[:, 0]
        if op is not identity and len(rows):
            device_rows = onto(rows, x.device)
            row_levels = onto(level[rows], x.device, x.dtype).view(-1, 1, 1, 1)
            x.index_copy_(0, device_rows, op(x.index_select(0, device_rows), row_levels))


def _matrices(op_index: Tensor, level: Tensor, mirror: Tensor) -> Tensor:
    """Return the 2x3 map from output to input positions, in units of half a side, of each sample: (B, 2, 3)."""
    signed = 2 * level - 1
    total = torch.eye(3).repeat(len(op_index), 1, 1)
    total[mirror, 0, 0] = -1
    for slot in range(op_index.shape[1]):
        amount = {name: signed[:, slot] * (op_index[:, slot] == OPS.index(name)) for name in GEOMETRIC}
        angle = amount["rotate"] * MAX_ROTATION
        matrix = torch.eye(3).repeat(len(op_index), 1, 1)
        matrix[:, 0, 0] = matrix[:, 1, 1] = angle.cos()
        matrix[:, 0, 1] = MAX_SHEAR * amount["shear_x"] - angle.sin()
        matrix[:, 1, 0] = MAX_SHEAR * amount["shear_y"] + angle.sin()
        matrix[:, 0, 2] = 2 * MAX_TRANSLATE * amount["translate_x"]
        matrix[:, 1, 2] = 2 * MAX_TRANSLATE * amount["translate_y"]
        total = total @ matrix
    return total[:, :2]


def _apply_geometric(x: Tensor, matrices: Tensor) -> None:
    """Warp, in place, the samples whose matrix is not the identity."""
    rows = (matrices != torch.eye(3)[:2]).any(2).any(1).nonzero()[:, 0]
    if len(rows):
        device_rows = onto(rows, x.device)
        grid = _grid(onto(matrices[rows], x.device, x.dtype), *x.shape[2:])
        shifted = x.index_select(0, device_rows).sub_(GRAY)  # so that zero padding becomes gray
        x.index_copy_(0, device_rows, F.grid_sample(shifted, grid, align_corners=False).add_(GRAY))


def _grid(matrices: Tensor, height: int, width: int) -> Tensor:
    """Return the position that each output pixel reads from, in [-1, 1] inside the image: (n, H, W, 2)."""
    across, down = (_pixel_centers(side, matrices) * 2 - 1 for side in (width, height))
    column, row, offset = (part.view(-1, 1, 1, 2) for part in matrices.unbind(2))
    return across.view(-1, 1) * column + (down.view(-1, 1, 1) * row + offset)


def _pixel_centers(side: int, like: Tensor) -> Tensor:
    """Return the centers of `side` pixels, in units of the side."""
    return (torch.arange(side, device=like.device, dtype=like.dtype) + 0.5) / side


def cutout_(x: Tensor, uniform: Tensor) -> Tensor:
    """Gray out, in place, a square of up to half the side at a random position of each image.

    `uniform` (B, 3), in [0, 1): side, center row, center column.
    """
    height, width = x.shape[2:]
    half = uniform[:, :1] * 0.25  # of the side
    rows = onto(_is_within(height, uniform[:, 1:2], half), x.device)
    columns = onto(_is_within(width, uniform[:, 2:3], half), x.device)
    hole = (rows[:, None, :, None] & columns[:, None, None, :]).to(x.dtype)
    return x.mul_(1 - hole).add_(hole, alpha=GRAY)  # exact, and six times faster than masked_fill_


def _is_within(side: int, center: Tensor, half: Tensor) -> Tensor:
    """Return which pixel centers are within `half` of `center`, both (B, 1) in units of the side: (B, side)."""
    return (_pixel_centers(side, center) - center).abs() < half
