"""Randomized views: copies of an image whose style differs strongly from the original.

A recipe lists the operations and their strengths. Frozen trunks compute a view once per image and store its features,
so it depends on the image and its seed only, never on the batch (up to float32 rounding, below 1e-5). Other networks
get new views in every batch. The operations are pure functions of images (B, 3, H, W) on any device and parameters
(B, ...) on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..devices import onto
from ..seeds import derive_seed
from .augment import check_bytes, to_float
from .sets import AugmentKind

ViewKind = Literal["affine", "convolution", "edges", "lines"]  # each includes an affine map
MIN_LINE, MAX_LINE = 1 / 240, 1 / 96  # of the side: 0.8 to 2 of 192 px
KERNEL_SIZES = (1, 3, 5, 7)
MAX_KERNEL = max(KERNEL_SIZES)
COLUMNS = 4  # of pixels that a convolution computes together
CHUNK_PIXELS = 2**16  # of the images that are changed together on a CPU


@dataclass(frozen=True)
class Recipe:
    """The operations of randomized views: rates in [0, 1] and the largest change of each.

    Views cycle through `kinds` where they are stored and draw from them otherwise.
    """

    kinds: tuple[ViewKind, ...] = ("affine", "convolution", "convolution", "edges", "lines")
    view_rate: float = 0.8  # share of the training images that are replaced by a view, if none are stored
    mirror: bool = True  # mirror half of the images
    invert_rate: float = 0.0
    gray_rate: float = 0.3
    contrast: float = 0.5
    brightness: float = 0.2  # of each channel
    rotation: float = torch.pi / 12  # radians
    min_scale: float = 0.75  # of the region that a view shows: zooms in by up to 1.33
    max_scale: float = 1.0
    shear: float = 0.1
    shift: float = 0.1  # of the side


PHOTO = Recipe()
# A mirrored character may be another one, so characters are never mirrored.
UNMIRRORED = Recipe(mirror=False)
CHARACTERS = Recipe(
    kinds=("convolution",),
    view_rate=0.7,
    mirror=False,
    invert_rate=0.5,
    gray_rate=0.0,
    contrast=0.6,
    brightness=0.3,
    max_scale=1.25,
    shear=0.2,
    shift=0.075,
)
RANDOMIZED: tuple[AugmentKind, ...] = ("photo-views", "character-views")
# The recipe of views by `augment`. `photo` and `none` use views only where a frozen trunk stores them.
RECIPES: dict[AugmentKind, Recipe] = {
    "photo": PHOTO,
    "none": UNMIRRORED,
    "photo-views": PHOTO,
    "character-views": CHARACTERS,
}

# Columns of `Draws.uniform`.
AFFINE = slice(0, 6)  # mirror, rotation, scale, shear, shift right, shift down
GRAY = 6
CONTRAST = 7
BRIGHTNESS = slice(8, 11)  # one per channel
KERNEL_SIZE = 11
KEEP = 12
NUM_UNIFORM = 13
KERNEL_SHAPE = (3, 3, MAX_KERNEL, MAX_KERNEL)


@dataclass(frozen=True, eq=False)
class Draws:
    """Hold the random numbers of a batch, one row per sample, on the CPU."""

    uniform: Tensor  # (B, NUM_UNIFORM) in [0, 1)
    normal: Tensor  # (B, 3, 3, 7, 7), standard normal
    invert: Tensor  # (B,) in [0, 1)


@dataclass(frozen=True, eq=False)
class Parameters:
    """Hold the parameters of the views of a batch, one row per sample, on the CPU."""

    is_inverted: Tensor  # (B,)
    contrast: Tensor  # (B,)
    brightness: Tensor  # (B, 3)
    is_gray: Tensor  # (B,)
    matrices: Tensor  # (B, 2, 3)
    size: Tensor  # (B,), among KERNEL_SIZES
    weight: Tensor  # (B, 3, 3, 7, 7)
    keep: Tensor  # (B,)
    line: Tensor  # (B,), of the side

    def __getitem__(self, rows: slice | Tensor) -> Parameters:
        """Return the parameters of these samples."""
        return Parameters(*(getattr(self, field.name)[rows] for field in fields(self)))


def draw(seeds: Sequence[int]) -> Draws:
    """Draw the numbers of sample i from a generator that is seeded by `seeds[i]` alone.

    CPU generators use the lower 32 bits of a seed.
    """
    if not seeds:
        raise ValueError("expected at least one seed, got none")
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    uniform = torch.stack([torch.rand(NUM_UNIFORM, generator=generator) for generator in generators])
    normal = torch.stack([torch.randn(KERNEL_SHAPE, generator=generator) for generator in generators])
    return Draws(uniform, normal, torch.cat([torch.rand(1, generator=generator) for generator in generators]))


def view_seeds(digest: NDArray[np.uint8], index: int) -> list[int]:
    """Return a 63-bit seed for view `index` of each image, derived from its digest (B, 16) and the index."""
    if digest.dtype != np.uint8 or digest.ndim != 2 or digest.shape[1] != 16:
        raise ValueError(f"expected uint8 digests (B, 16), got {digest.dtype} {digest.shape}")
    return [derive_seed("view", index, row.tobytes().hex()) for row in digest]


def view_kind(index: int, recipe: Recipe = PHOTO) -> ViewKind:
    """Return the kind of stored view `index`, which counts from 1; the kinds repeat after the last."""
    if index < 1:
        raise ValueError(f"view index must be at least 1, got {index}")
    return recipe.kinds[(index - 1) % len(recipe.kinds)]


def randomized_view(
    x: Tensor, index: int, seeds: Sequence[int], recipe: Recipe = PHOTO, *, chunk: int | None = None
) -> Tensor:
    """Return stored view `index` of a uint8 batch (B, H, W, 3) as float32 (B, 3, H, W), channels_last.

    `seeds` holds one seed per sample (see `view_seeds`). Convolutions may leave [0, 1]; the other kinds do not.
    With `chunk=1`, a view has the same bits in every batch of this size.
    """
    kind = view_kind(index, recipe)
    check_bytes(x)
    if len(seeds) != len(x):
        raise ValueError(f"expected one seed per image, got {len(seeds)} seeds for {len(x)} images")
    return _in_chunks(x, kind, parameters_of(draw(seeds), recipe), chunk)


def random_views(x: Tensor, recipe: Recipe, generator: torch.Generator, *, rate: float | None = None) -> Tensor:
    """Return a new view of each uint8 image (B, H, W, 3) as float32 (B, 3, H, W), channels_last.

    An image stays plain with probability 1 − `rate`, by default the recipe's. All random numbers come from
    `generator`, one row per sample, so a view does not depend on the other samples.
    """
    rate = recipe.view_rate if rate is None else rate
    images = to_float(x)
    pixels = images.permute(0, 2, 3, 1)
    uniform = torch.rand(len(x), NUM_UNIFORM + 3, generator=generator)
    draws = Draws(uniform[:, 3:], torch.randn(len(x), *KERNEL_SHAPE, generator=generator), uniform[:, 2])
    parameters = parameters_of(draws, recipe)
    choice = (uniform[:, 1] * len(recipe.kinds)).long()
    for kind in sorted({*recipe.kinds}):
        is_kind = torch.isin(choice, torch.tensor([i for i, k in enumerate(recipe.kinds) if k == kind]))
        rows = ((uniform[:, 0] < rate) & is_kind).nonzero()[:, 0]
        if len(rows):
            device_rows = onto(rows, x.device)
            view = _in_chunks(x.index_select(0, device_rows), kind, parameters[rows])
            pixels.index_copy_(0, device_rows, view.permute(0, 2, 3, 1))
    return images


def _in_chunks(x: Tensor, kind: ViewKind, parameters: Parameters, chunk: int | None = None) -> Tensor:
    """Return views of uint8 images, made `chunk` images at a time: by default, as many as fit into a CPU's caches."""
    if chunk is None:
        chunk = max(1, CHUNK_PIXELS // x[0, ..., 0].numel()) if x.device.type == "cpu" else len(x)
    views = torch.empty(x.shape, device=x.device).permute(0, 3, 1, 2)
    for start in range(0, len(x), chunk):
        rows = slice(start, start + chunk)
        views[rows] = change(to_planes(x[rows]), kind, parameters[rows])
    return views


def to_planes(x: Tensor) -> Tensor:
    """Convert uint8 images (B, H, W, 3) to contiguous float32 (B, 3, H, W): operations are faster on planes."""
    return to_float(x.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1))


def apply_recipe(x: Tensor, kind: ViewKind, draws: Draws, recipe: Recipe) -> Tensor:
    """Change images (B, 3, H, W) in [0, 1]: colors, then position, then texture."""
    return change(x, kind, parameters_of(draws, recipe))


def parameters_of(draws: Draws, recipe: Recipe) -> Parameters:
    """Map random numbers to the parameters of views."""
    uniform = draws.uniform
    return Parameters(
        draws.invert < recipe.invert_rate,
        *jitter_strengths(uniform, recipe),
        affine_matrices(uniform[:, AFFINE], recipe),
        kernel_sizes(uniform[:, KERNEL_SIZE]),
        draws.normal,
        uniform[:, KEEP],
        line_widths(uniform[:, KERNEL_SIZE]),
    )


def change(x: Tensor, kind: ViewKind, parameters: Parameters) -> Tensor:
    """Change images (B, 3, H, W) in [0, 1] by these parameters: colors, then position, then texture."""
    if kind == "edges":
        return edges(affine(x, parameters.matrices))
    if kind == "lines":
        return lines(affine(x, parameters.matrices), parameters.line)
    if parameters.is_inverted.any():
        x = torch.where(onto(parameters.is_inverted, x.device).view(-1, 1, 1, 1), 1 - x, x)
    x = jitter(x, parameters.contrast, parameters.brightness, parameters.is_gray)
    view = affine(x, parameters.matrices)
    if kind == "convolution":
        return random_convolution(view, parameters.size, parameters.weight, parameters.keep)
    return view


def jitter_strengths(uniform: Tensor, recipe: Recipe = PHOTO) -> tuple[Tensor, Tensor, Tensor]:
    """Map uniform numbers (B, NUM_UNIFORM) to contrast (B,), brightness (B, 3) and `is_gray` (B,)."""
    contrast = 1 + recipe.contrast * _signed(uniform[:, CONTRAST])
    return contrast, recipe.brightness * _signed(uniform[:, BRIGHTNESS]), uniform[:, GRAY] < recipe.gray_rate


def kernel_sizes(uniform: Tensor) -> Tensor:
    """Map uniform numbers (B,) to kernel sizes, each equally likely."""
    return torch.tensor(KERNEL_SIZES)[(uniform * len(KERNEL_SIZES)).long()]


def line_widths(uniform: Tensor) -> Tensor:
    """Map uniform numbers (B,) to the standard deviation of the blur that finds lines, as a fraction of the side."""
    return MIN_LINE + (MAX_LINE - MIN_LINE) * uniform


def _signed(uniform: Tensor) -> Tensor:
    """Map [0, 1) to [-1, 1)."""
    return 2 * uniform - 1


def affine_matrices(uniform: Tensor, recipe: Recipe = PHOTO) -> Tensor:
    """Map uniform numbers (B, 6) to maps from output to input positions, in units of half a side: (B, 2, 3).

    The columns are mirror, rotation, scale, shear, shift right and shift down. A map shears, rotates and scales about
    the center and then shifts; it mirrors the output of half of the samples if `recipe.mirror`.
    """
    is_mirrored = (uniform[:, 0] < 0.5) & recipe.mirror
    rotation, scale, shear, right, down = uniform[:, 1:].unbind(1)
    angle = recipe.rotation * _signed(rotation)
    cos, sin = angle.cos(), angle.sin()
    slope = recipe.shear * _signed(shear)
    size = recipe.min_scale + (recipe.max_scale - recipe.min_scale) * scale
    sign = torch.where(is_mirrored, -1.0, 1.0)
    rows = [
        torch.stack([size * cos * sign, size * (slope * cos - sin), 2 * recipe.shift * _signed(right)], 1),
        torch.stack([size * sin * sign, size * (slope * sin + cos), 2 * recipe.shift * _signed(down)], 1),
    ]
    return torch.stack(rows, 1)


def affine(x: Tensor, matrices: Tensor) -> Tensor:
    """Warp each image by its map (2, 3) from output to input positions; repeat the edge pixel beyond the border."""
    on_device = onto(matrices, x.device, x.dtype)
    across, down = (_pixel_centers(side, x.device, x.dtype) for side in (x.shape[3], x.shape[2]))
    column, row, offset = (part.view(-1, 2, 1, 1) for part in on_device.unbind(2))
    # Ten times faster than affine_grid, and exact where matrix products are rounded to TF32.
    grid = across * column + (down.view(-1, 1) * row + offset)  # (B, 2, H, W)
    return F.grid_sample(x, grid.permute(0, 2, 3, 1), padding_mode="border", align_corners=False)


@lru_cache(maxsize=8)
def _pixel_centers(side: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the centers of `side` pixels, in [-1, 1]."""
    return ((torch.arange(side, device=device) + 0.5) * (2 / side) - 1).to(dtype)


def jitter(x: Tensor, contrast: Tensor, brightness: Tensor, is_gray: Tensor) -> Tensor:
    """Change the colors of images in [0, 1]; stay in [0, 1].

    Average the channels where `is_gray` (B,), scale the distance to the image's own mean by `contrast` (B,), and add
    `brightness` (B, 3) to the channels.
    """
    mean = x.mean((1, 2, 3), keepdim=True)  # the same for gray images
    if is_gray.any():
        gray = x.mean(1, keepdim=True)
        x = gray if is_gray.all() else torch.where(onto(is_gray, x.device).view(-1, 1, 1, 1), gray, x)
    scale = onto(contrast, x.device, x.dtype).view(-1, 1, 1, 1)
    offset = onto(brightness, x.device, x.dtype).view(-1, 3, 1, 1)
    return (x * scale + (mean * (1 - scale) + offset)).clamp_(0, 1)


def random_convolution(x: Tensor, size: Tensor, weight: Tensor, keep: Tensor) -> Tensor:
    """Mix each image with a convolution of it by a random kernel (Xu et al., 2021); the result is not clamped.

    `size` (B,) is among KERNEL_SIZES. The kernel is the center of `weight` (B, 3, 3, 7, 7), standard normal, divided
    by sqrt(3) size: its entries have variance 1 / (3 size^2). `keep` (B,) is the share of the image in the mix.
    Pixels are mapped to [-1, 1] first, so the zero padding is gray.
    """
    sides = sorted({*size.tolist()})
    if not {*sides} <= {*KERNEL_SIZES}:
        raise ValueError(f"kernel sizes must be among {KERNEL_SIZES}, got {sides}")
    layout = torch.contiguous_format if sides == [1] else torch.channels_last  # as the faster convolution needs it
    y = (2 * x).sub_(1).contiguous(memory_format=layout)
    if len(sides) == 1:
        filtered = _convolve(y, weight, sides[0])
    else:
        filtered = torch.empty_like(y)
        for side in sides:
            rows = (size == side).nonzero()[:, 0]
            device_rows = onto(rows, x.device)
            filtered.index_copy_(0, device_rows, _convolve(y.index_select(0, device_rows), weight[rows], side))
    share = onto(keep, x.device, x.dtype).view(-1, 1, 1, 1)
    return filtered.lerp_(y, share).add_(1).div_(2)


def _convolve(x: Tensor, weight: Tensor, side: int) -> Tensor:
    """Convolve image i of x (n, 3, H, W) with the kernel of this size in `weight[i]` (3, 3, 7, 7), zero-padded."""
    num, _, height, width = x.shape
    first = (MAX_KERNEL - side) // 2
    center = weight[..., first : first + side, first : first + side] / (3**0.5 * side)
    center = onto(center, x.device, x.dtype)
    if side == 1:
        return torch.bmm(center.flatten(2), x.contiguous().flatten(2)).view(x.shape)
    # CPUs compute 16 output channels at once: 12, which are four columns of pixels, take little longer than three.
    wide = center.new_zeros(num, COLUMNS, 3, 3, side, side + COLUMNS - 1)
    for column in range(COLUMNS):
        wide[:, column, ..., column : column + side] = center
    padded = F.pad(x, (0, -width % COLUMNS)) if width % COLUMNS else x
    # A reshaped single image would have strides that the convolution does not recognize as channels last.
    stacked = padded.reshape(1, -1, *padded.shape[2:]) if num > 1 else padded
    stacked = stacked.contiguous(memory_format=torch.channels_last)
    out = F.conv2d(stacked, wide.flatten(0, 2), stride=(1, COLUMNS), padding=side // 2, groups=num)
    # In channels-last order, the columns of pixels are where they belong.
    pixels = out.permute(2, 3, 0, 1).reshape(height, -1, num, COLUMNS * 3).permute(2, 0, 1, 3)
    return pixels.reshape(num, height, -1, 3)[:, :, :width].permute(0, 3, 1, 2)


def edges(x: Tensor) -> Tensor:
    """Draw the edges of each image dark on white: Sobel magnitudes relative to half the image's largest."""
    gray = x.mean(1, keepdim=True)
    padded = F.pad(_smooth(gray), (1, 1, 1, 1), mode="replicate")
    tall = torch.add(padded[:, :, :-2], padded[:, :, 1:-1], alpha=2).add_(padded[:, :, 2:])
    wide = torch.add(padded[..., :-2], padded[..., 1:-1], alpha=2).add_(padded[..., 2:])
    across, down = tall[..., 2:] - tall[..., :-2], wide[:, :, 2:] - wide[:, :, :-2]
    magnitude = across.square_().add_(down.square_()).sqrt_()
    half = magnitude.amax((2, 3), keepdim=True).clamp_min_(1e-3) / 2
    return (1 - magnitude.div_(half).clamp_(0, 1)).expand_as(x)


def _smooth(x: Tensor) -> Tensor:
    """Average each pixel and its neighbors inside the image: the bits of avg_pool2d in a third of its time."""
    height, width = x.shape[2:]
    padded = F.pad(x, (1, 1, 1, 1))
    total = padded[..., :height, :width].clone()
    for row, column in [(i, j) for i in range(3) for j in range(3)][1:]:
        total.add_(padded[..., row : row + height, column : column + width])
    tall, wide = (_num_neighbors(side, x.device, x.dtype) for side in (height, width))
    return total.div_(tall.view(-1, 1) * wide)


@lru_cache(maxsize=8)
def _num_neighbors(side: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return how many of a pixel and its two neighbors are inside a row of `side` pixels."""
    count = torch.full((side,), 3, device=device, dtype=dtype)
    count[0] -= 1
    count[-1] -= 1
    return count


WIDER = 1.6  # ratio of the two blurs
LINE_THRESHOLD = 0.7  # standard deviations
LINE_SHARPNESS = 2.0
MIN_SIGMA = 0.5  # px: a narrower blur changes nothing


def lines(x: Tensor, width: Tensor) -> Tensor:
    """Draw each image in dark lines on white: an extended difference of Gaussians (Winnemöller et al., 2012).

    `width` (B,) is the standard deviation of the narrower blur, as a fraction of the side. Pixels become lines if
    they are darker than their surroundings by more than a threshold.
    """
    gray = x.mean(1, keepdim=True)
    sigma = (width * x.shape[-1]).clamp_min(MIN_SIGMA)
    difference = blur(gray, sigma) - blur(gray, WIDER * sigma)
    relative = difference / difference.std((2, 3), keepdim=True).clamp_min(1e-3)
    return torch.tanh(LINE_SHARPNESS * (relative + LINE_THRESHOLD).clamp(max=0)).add(1).expand_as(x)


def blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Blur image i of x (B, 1, H, W) by a Gaussian of `sigma[i]` pixels; the border repeats the edge pixel."""
    largest = WIDER * max(MIN_SIGMA, MAX_LINE * x.shape[-1])
    radius = math.ceil(2 * largest)  # the same for all, so batches do not matter
    offset = torch.arange(-radius, radius + 1)
    weight = (-(offset**2) / (2 * sigma.square()[:, None])).softmax(-1)
    kernel = onto(weight, x.device, x.dtype).view(len(x), 1, 1, -1)
    stacked = F.pad(x, (radius,) * 4, mode="replicate").view(1, len(x), *(side + 2 * radius for side in x.shape[2:]))
    across = F.conv2d(stacked, kernel, groups=len(x))
    return F.conv2d(across, kernel.transpose(2, 3), groups=len(x)).view_as(x)
