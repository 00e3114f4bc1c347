"""ResNets (He et al., 2016) with torchvision's parameter names, so that its weight files load unchanged."""

from __future__ import annotations

from torch import Tensor, nn

from .common import IMAGENET_MEAN, IMAGENET_STD, LeanMaxPool2d, Normalize, initialize, mean_pool
from .frozen import Stages, behind_boundary, last_maps, whole_maps

WIDTHS = (64, 128, 256, 512)  # of the 3x3 convolutions in the four stages


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, h, w) to (B, width, h / stride, w / stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; the 3x3 convolution has the stride, as in torchvision."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, h, w) to (B, 4 width, h / stride, w / stride)."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)  # type: ignore[no-any-return]


Block = type[BasicBlock] | type[Bottleneck]
KINDS: dict[str, tuple[Block, tuple[int, int, int, int]]] = {
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
    "resnet101": (Bottleneck, (3, 4, 23, 3)),
}


class ResNet(nn.Module):
    """A ResNet without its classifier; `kind` is one of `KINDS`."""

    prefers_bf16 = True
    min_size = 32  # the total stride; smaller images leave the last stage less than one position
    exact_size = False
    boundary: str | None = None

    def __init__(self, kind: str) -> None:
        super().__init__()
        block, depths = KINDS[kind]
        self.name = kind
        self.num_features = WIDTHS[-1] * block.expansion
        self.normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD)
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = LeanMaxPool2d(3, stride=2, padding=1)
        inputs = (64, *(width * block.expansion for width in WIDTHS))
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            stage(block, inputs[i], WIDTHS[i], depths[i], stride=1 if i == 0 else 2) for i in range(4)
        )
        initialize(self)

    @property
    def style_stages(self) -> tuple[nn.Module, ...]:
        """The first three stages, whose outputs (B, C, h, w) have strides 4, 8 and 16."""
        return behind_boundary(self, {"stage1": self.layer1, "stage2": self.layer2, "stage3": self.layer3})

    @property
    def sequence(self) -> Stages:
        """All modules in order, by stage."""
        stem = (self.normalize, self.conv1, self.bn1, self.maxpool, self.relu)
        stages = (self.layer1, self.layer2, self.layer3, self.layer4)
        return {"stem": stem, **{f"stage{i}": (stage,) for i, stage in enumerate(stages, start=1)}}

    def maps(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) in [0, 1] to the last stage's maps (B, num_features, h, w)."""
        return last_maps(self, x)

    def pool(self, maps: Tensor) -> Tensor:
        """Average the maps over positions: (B, num_features)."""
        return mean_pool(maps)

    def features(self, x: Tensor) -> Tensor:
        """Map images to pooled features, whatever is frozen."""
        return self.pool(whole_maps(self, x))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) in [0, 1] to pooled features (B, num_features)."""
        return self.pool(self.maps(x))


def shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    """Return the projection of a shortcut that changes shape, or None if the input can be added unchanged."""
    if stride == 1 and in_channels == out_channels:
        return None
    conv = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out_channels))


def stage(block: Block, in_channels: int, width: int, depth: int, stride: int) -> nn.Sequential:
    """Return `depth` blocks, the first of which changes the shape."""
    first = block(in_channels, width, stride)
    rest = (block(width * block.expansion, width, 1) for _ in range(depth - 1))
    return nn.Sequential(first, *rest)
