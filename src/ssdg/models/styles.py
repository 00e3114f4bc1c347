"""Image style: statistics that describe it, and the networks that change it in L2D and DDAIG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..devices import onto
from ..errors import UserError
from .common import full_precision
from .layers import centered_moments

# Style statistics
NUM_SCALES = 3  # each halves the side of the one before
LOG_FLOOR = 0.01  # added before a logarithm: values below it are noise
NUM_EARLY_STAGES = 2  # stages of a backbone whose maps still show texture and color
# Style complement of L2D
KERNEL_SIZES = (5, 9, 13, 17)  # px
GRID_SIZE = 8  # cells a side of the learned scales and shifts
MIN_WEIGHT_SUM = 0.1  # magnitude of the sum of drawn weights
# Perturbation network of DDAIG
INITIAL_STD = 0.02  # of all weights: the perturbation starts near zero, far from the flat ends of tanh
NUM_BLOCKS = 3
# With PyTorch's 1e-5, seven norms in a row amplify the rounding errors of a one-color image: gradients reach 1e6 and
# stay below 1 with this value.
NORM_EPS = 1e-3


def plain_statistics(x: Tensor) -> Tensor:
    """Compute 28 statistics of each image (B, 3, H, W) in [0, 1], without a network; sides of 16 px or more.

    Of brightness and colorfulness (largest minus smallest channel): mean and deviation, and at three scales those of
    the gradient magnitude and the Laplacian. Logarithms, because contrasts differ by factors. No hue: a domain has
    many.
    """
    gray = x.mean(1, keepdim=True)
    color = x.amax(1, keepdim=True) - x.amin(1, keepdim=True)
    statistics = [gray.mean((2, 3)), _log(gray.std((2, 3))), _log(color.mean((2, 3))), _log(color.std((2, 3)))]
    maps = torch.cat([gray, color], dim=1)
    for _ in range(NUM_SCALES):
        for edges in (gradient_magnitude(maps), laplacian(maps).abs()):
            statistics += [_log(edges.mean((2, 3))), _log(edges.std((2, 3)))]
        maps = F.avg_pool2d(maps, 2)
    return torch.cat(statistics, dim=1)


def gradient_magnitude(maps: Tensor) -> Tensor:
    """|∇| from differences of neighbors: (B, C, H - 1, W - 1)."""
    right = maps[..., 1:, 1:] - maps[..., 1:, :-1]
    down = maps[..., 1:, 1:] - maps[..., :-1, 1:]
    return (right.square() + down.square()).sqrt()


def laplacian(maps: Tensor) -> Tensor:
    """Four times a pixel minus its neighbors: (B, C, H - 2, W - 2)."""
    neighbors = maps[..., 2:, 1:-1] + maps[..., :-2, 1:-1] + maps[..., 1:-1, 2:] + maps[..., 1:-1, :-2]
    return 4 * maps[..., 1:-1, 1:-1] - neighbors


def stage_statistics(backbone: nn.Module, x: Tensor) -> Tensor:
    """Compute mean and log deviation of each channel of the backbone's early maps; images (B, 3, H, W) in [0, 1]."""
    outputs: list[Tensor] = []
    stages: tuple[nn.Module, ...] = backbone.style_stages  # type: ignore[assignment]
    early = stages[:NUM_EARLY_STAGES]
    hooks = [stage.register_forward_hook(lambda _m, _i, maps: outputs.append(maps)) for stage in early]
    try:
        backbone(x)
    finally:
        for hook in hooks:
            hook.remove()
    parts = [part for maps in outputs for part in (maps.mean((2, 3)), _log(maps.std((2, 3))))]
    return torch.cat(parts, dim=1).float()


def _log(values: Tensor) -> Tensor:
    return (values + LOG_FLOOR).log()


@dataclass(frozen=True)
class Filters:
    """The random part of `StyleComplement`: filters around the learned styles, and weights of the branches.

    `color` (3, 3, 1, 1) mixes channels; `down` and `up` hold one filter (3, 3, k, k) per kernel size k; `weights`
    (1 + kernels,) sum to 1.
    """

    color: Tensor
    down: Sequence[Tensor]
    up: Sequence[Tensor]
    weights: Tensor


class StyleComplement(nn.Module):
    """The style-complement module of L2D (Wang et al. 2021): a weighted sum of branches.

    Each branch filters the image, gives it a learned style and filters it back. The styles are learned with
    `fixed_filters`, drawn once and equally weighted; training images are made with new filters from `draw_filters`.
    Scales and shifts vary over the image on a coarse grid, so images may have any size above the largest kernel.
    """

    colour: Tensor  # spelled as in the state dicts of saved models

    def __init__(self, strength: float = 0.6) -> None:
        super().__init__()
        if not 0 < strength <= 1:
            raise UserError(f"the strength of a new style must be in (0, 1], not {strength}")
        self.strength = strength
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(len(KERNEL_SIZES), 3, GRID_SIZE, GRID_SIZE))
        self.shift = nn.Parameter(0.1 * torch.randn(len(KERNEL_SIZES), 3, GRID_SIZE, GRID_SIZE))
        self.register_buffer("colour", random_filter(1))
        for size in KERNEL_SIZES:
            self.register_buffer(f"down{size}", random_filter(size))
            self.register_buffer(f"up{size}", random_filter(size))

    def fixed_filters(self) -> Filters:
        """Return the filters drawn at construction, with equal weights."""
        buffers = dict(self.named_buffers())
        down, up = ([buffers[f"{name}{size}"] for size in KERNEL_SIZES] for name in ("down", "up"))
        num_branches = 1 + len(KERNEL_SIZES)
        return Filters(self.colour, down, up, self.colour.new_full((num_branches,), 1 / num_branches))

    def draw_filters(self) -> Filters:
        """Draw new filters, and new weights ~ N(0, 1), which may be negative, divided by their sum."""
        weights = torch.randn(1 + len(KERNEL_SIZES))
        total = weights.sum()
        weights = weights / torch.copysign(total.abs().clamp_min(MIN_WEIGHT_SUM), total)
        down, up = ([self._to_device(random_filter(size)) for size in KERNEL_SIZES] for _ in range(2))
        return Filters(self._to_device(random_filter(1)), down, up, self._to_device(weights))

    def _to_device(self, tensor: Tensor) -> Tensor:
        return onto(tensor, self.colour.device, self.colour.dtype)

    def forward(self, x: Tensor, filters: Filters) -> Tensor:
        """Blend images (B, 3, H, W) in [0, 1] with their new style: `strength` of it, the rest of the original."""
        if min(x.shape[2:]) <= max(KERNEL_SIZES):
            raise UserError(
                f"L2D needs images larger than its {max(KERNEL_SIZES)} px filters, "
                f"not {x.shape[2]}x{x.shape[3]} px; set a larger image size"
            )
        signed = 2 * x - 1
        mixed = filters.weights[0] * F.conv2d(signed, filters.color).tanh()
        for branch, (down, up) in enumerate(zip(filters.down, filters.up, strict=True)):
            maps = self.restyle(F.conv2d(signed, down), branch)
            mixed = mixed + filters.weights[1 + branch] * F.conv_transpose2d(maps, up).tanh()
        return self.strength * mixed.sigmoid() + (1 - self.strength) * x

    def restyle(self, maps: Tensor, branch: int) -> Tensor:
        """Scale and shift instance-normalized maps (B, 3, h, w) by the learned style of a branch."""
        scale, shift = (
            F.interpolate(grid[branch : branch + 1], size=maps.shape[2:], mode="bilinear", align_corners=False)
            for grid in (self.scale, self.shift)
        )
        return scale * F.instance_norm(maps) + shift


def random_filter(size: int) -> Tensor:
    """Draw uniformly within ±1/√fan_in, PyTorch's initialization of a convolution: (3, 3, size, size)."""
    bound = (3 * size * size) ** -0.5
    return torch.empty(3, 3, size, size).uniform_(-bound, bound)


class InstanceNorm(nn.Module):
    """Instance normalization without parameters or state; a third faster than PyTorch's."""

    def forward(self, maps: Tensor) -> Tensor:
        """Normalize each map of (B, C, h, w) to mean 0 and variance 1 over its positions."""
        _, variance, centered = centered_moments(maps)
        return centered * (variance + NORM_EPS).rsqrt()


class PerturbationNet(nn.Module):
    """The perturbation network of DDAIG (Zhou et al. 2020): images to perturbations in (−1, 1).

    A 3x3 convolution, residual blocks and 1x1 convolutions, all at full resolution, with instance norms that have
    neither parameters nor state: images do not affect each other, and training and evaluation mode are the same.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, width), InstanceNorm(), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList(residual(width) for _ in range(NUM_BLOCKS))
        pointwise = nn.Conv2d(width, width, 1, bias=False)
        self.last = nn.Sequential(pointwise, InstanceNorm(), nn.ReLU(inplace=True), nn.Conv2d(width, 3, 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=INITIAL_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) of at least 2 px a side to perturbations of the same shape."""
        maps = self.stem(full_precision(x))
        for block in self.blocks:
            maps = maps + block(maps)
        return self.last(maps).tanh()  # type: ignore[no-any-return]


def residual(width: int) -> nn.Module:
    """Return the layers of a residual block, without the addition of its input."""
    first, second = convolution(width, width), convolution(width, width)
    return nn.Sequential(first, InstanceNorm(), nn.ReLU(inplace=True), second, InstanceNorm())


def convolution(in_channels: int, out_channels: int) -> nn.Module:
    """Return a 3x3 convolution with reflection padding and no bias, which the norm after it would cancel."""
    return nn.Conv2d(in_channels, out_channels, 3, padding=1, padding_mode="reflect", bias=False)
