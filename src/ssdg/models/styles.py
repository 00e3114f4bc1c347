"""Image style: statistics that describe it, and networks that change it (L2D, Wang et al.; DDAIG, Zhou et al.)."""

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

SCALES = 3  # each of half the side of the one before
FLOOR = 0.01  # added before a logarithm: values below it are noise
EARLY = 2  # stages of a backbone whose maps still tell texture and colour


def plain_statistics(x: Tensor) -> Tensor:
    """28 numbers of every image (B, 3, H, W) in [0, 1]; no weights, sides of 16 px or more.

    Of brightness and colourfulness (largest minus smallest channel): mean and deviation, and at three scales those of
    the gradient's length and the Laplacian. Logarithms, for contrasts differ by factors. No hue: a domain has many.
    """
    grey = x.mean(1, keepdim=True)
    colour = x.amax(1, keepdim=True) - x.amin(1, keepdim=True)
    found = [grey.mean((2, 3)), _log(grey.std((2, 3))), _log(colour.mean((2, 3))), _log(colour.std((2, 3)))]
    maps = torch.cat([grey, colour], dim=1)
    for _ in range(SCALES):
        for edges in (gradient_length(maps), laplacian(maps).abs()):
            found += [_log(edges.mean((2, 3))), _log(edges.std((2, 3)))]
        maps = F.avg_pool2d(maps, 2)
    return torch.cat(found, dim=1)


def gradient_length(maps: Tensor) -> Tensor:
    """|∇| by differences of neighbours: (B, C, H - 1, W - 1)."""
    right = maps[..., 1:, 1:] - maps[..., 1:, :-1]
    down = maps[..., 1:, 1:] - maps[..., :-1, 1:]
    return (right.square() + down.square()).sqrt()


def laplacian(maps: Tensor) -> Tensor:
    """Four times a pixel minus its neighbours: (B, C, H - 2, W - 2)."""
    sides = maps[..., 2:, 1:-1] + maps[..., :-2, 1:-1] + maps[..., 1:-1, 2:] + maps[..., 1:-1, :-2]
    return 4 * maps[..., 1:-1, 1:-1] - sides


def stage_statistics(backbone: nn.Module, x: Tensor) -> Tensor:
    """Mean and log deviation of every channel of the backbone's first maps, for images (B, 3, H, W) in [0, 1]."""
    seen: list[Tensor] = []
    stages: tuple[nn.Module, ...] = backbone.style_stages  # type: ignore[assignment]
    hooks = [stage.register_forward_hook(lambda _m, _i, maps: seen.append(maps)) for stage in stages[:EARLY]]
    try:
        backbone(x)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat([part for maps in seen for part in (maps.mean((2, 3)), _log(maps.std((2, 3))))], dim=1).float()


def _log(values: Tensor) -> Tensor:
    return (values + FLOOR).log()


KERNELS = (5, 9, 13, 17)  # px
GRID = 8  # cells a side of the learned scales and shifts
LEAST_SUM = 0.1  # of drawn weights, by size


@dataclass(frozen=True)
class Filters:
    """What stands around the learned styles: a colour mix (3, 3, 1, 1), for each kernel a filter down and one up
    (3, 3, k, k), and the weights (1 + kernels,) of all the branches, whose sum is 1."""

    colour: Tensor
    down: Sequence[Tensor]
    up: Sequence[Tensor]
    weights: Tensor


class StyleComplement(nn.Module):
    """Several branches, each filtering an image, giving it a learned style and filtering it back; then their mix.

    With its own filters, drawn once, and equal weights it is what the styles are learned with; `draw` gives new
    ones for training on its images. Scales and shifts vary over the image on a coarse grid, so that images may
    have any size above the largest kernel.
    """

    colour: Tensor

    def __init__(self, strength: float = 0.6) -> None:
        super().__init__()
        if not 0 < strength <= 1:
            raise UserError(f"the strength of a new style lies in (0, 1], not {strength}")
        self.strength = strength
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(len(KERNELS), 3, GRID, GRID))
        self.shift = nn.Parameter(0.1 * torch.randn(len(KERNELS), 3, GRID, GRID))
        self.register_buffer("colour", random_filter(1))
        for size in KERNELS:
            self.register_buffer(f"down{size}", random_filter(size))
            self.register_buffer(f"up{size}", random_filter(size))

    def own(self) -> Filters:
        """The filters that stay, all branches weighing the same."""
        buffers = dict(self.named_buffers())
        down, up = ([buffers[f"{way}{size}"] for size in KERNELS] for way in ("down", "up"))
        num_branches = 1 + len(KERNELS)
        return Filters(self.colour, down, up, self.colour.new_full((num_branches,), 1 / num_branches))

    def draw(self) -> Filters:
        """New filters and new weights ~ N(0, 1), which may be negative, divided by their sum."""
        weights = torch.randn(1 + len(KERNELS))
        total = weights.sum()
        weights = weights / torch.copysign(total.abs().clamp_min(LEAST_SUM), total)
        down, up = ([self._beside(random_filter(size)) for size in KERNELS] for _ in range(2))
        return Filters(self._beside(random_filter(1)), down, up, self._beside(weights))

    def _beside(self, drawn: Tensor) -> Tensor:
        return onto(drawn, self.colour.device, self.colour.dtype)

    def forward(self, x: Tensor, filters: Filters) -> Tensor:
        """Images (B, 3, H, W) in [0, 1] to such images: `strength` parts of the new style, the rest as they were."""
        if min(x.shape[2:]) <= max(KERNELS):
            raise UserError(
                f"L2D makes styles with filters of up to {max(KERNELS)} px and cannot take images of "
                f"{x.shape[2]}x{x.shape[3]} px; set a larger image size"
            )
        signed = 2 * x - 1
        mixed = filters.weights[0] * F.conv2d(signed, filters.colour).tanh()
        for number, (down, up) in enumerate(zip(filters.down, filters.up, strict=True)):
            maps = self.restyle(F.conv2d(signed, down), number)
            mixed = mixed + filters.weights[1 + number] * F.conv_transpose2d(maps, up).tanh()
        return self.strength * mixed.sigmoid() + (1 - self.strength) * x

    def restyle(self, maps: Tensor, number: int) -> Tensor:
        """Instance-normalised maps (B, 3, h, w) times the scale plus the shift of a branch."""
        scale, shift = (
            F.interpolate(grid[number : number + 1], size=maps.shape[2:], mode="bilinear", align_corners=False)
            for grid in (self.scale, self.shift)
        )
        return scale * F.instance_norm(maps) + shift


def random_filter(size: int) -> Tensor:
    """Uniform within ±1/√fan_in, PyTorch's own start of a convolution: (3, 3, size, size)."""
    bound = (3 * size * size) ** -0.5
    return torch.empty(3, 3, size, size).uniform_(-bound, bound)


INITIAL_STD = 0.02  # of all weights: the perturbation starts near zero, far from the flat ends of tanh
NUM_BLOCKS = 3
# Torch's 1e-5 lets seven norms in a row blow up the rounding of a one-coloured image: gradients of 1e6, here below 1.
EPS = 1e-3


class InstanceNorm(nn.Module):
    """Every map of every image with mean 0 and variance 1 over its positions; a third faster than torch's."""

    def forward(self, maps: Tensor) -> Tensor:
        """(B, C, h, w) to the same shape."""
        _, variance, centered = centered_moments(maps)
        return centered * (variance + EPS).rsqrt()


class PerturbationNet(nn.Module):
    """Images (B, 3, H, W), of at least 2 px, to a perturbation of the same shape in (−1, 1).

    A 3x3 convolution, residual blocks and 1x1 convolutions, all at full resolution, with instance norms that have
    neither parameters nor state: it treats every image alone, and alike while training and later.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, width), InstanceNorm(), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList(residual(width) for _ in range(NUM_BLOCKS))
        mixed = nn.Conv2d(width, width, 1, bias=False)
        self.last = nn.Sequential(mixed, InstanceNorm(), nn.ReLU(inplace=True), nn.Conv2d(width, 3, 1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=INITIAL_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """The perturbation of each image."""
        maps = self.stem(full_precision(x))
        for block in self.blocks:
            maps = maps + block(maps)
        return self.last(maps).tanh()  # type: ignore[no-any-return]


def residual(width: int) -> nn.Module:
    """What a block adds to its input."""
    first, second = convolution(width, width), convolution(width, width)
    return nn.Sequential(first, InstanceNorm(), nn.ReLU(inplace=True), second, InstanceNorm())


def convolution(inputs: int, outputs: int) -> nn.Module:
    """3x3, of the same size, mirrored at the border; the norm that follows takes any bias away."""
    return nn.Conv2d(inputs, outputs, 3, padding=1, padding_mode="reflect", bias=False)
