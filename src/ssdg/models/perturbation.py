"""A network that changes the style of images and not what they show: the DoTNet of DDAIG (Zhou et al., 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from .layers import centered_moments
from .parts import full_precision

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
