"""The style-complement module of L2D (Wang et al., 2021): images of the same content in styles not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..devices import onto
from ..errors import UserError

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
