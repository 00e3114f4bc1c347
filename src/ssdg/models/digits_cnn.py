"""The small CNN of the Digits-DG benchmark (Zhou et al., DDAIG, 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from .common import Normalize, full_precision, initialize
from .frozen import Stages, behind_boundary, last_maps, whole_maps

WIDTH = 64


class DigitsCNN(nn.Module):
    """Four stages of a 3x3 convolution with 64 channels, ReLU and 2x2 max-pooling; no batch norm.

    Images of 32 px give 64 x 2 x 2 = 256 features: the four positions of the last maps are flattened, not averaged.
    """

    name = "digits-cnn"
    prefers_bf16 = True
    min_size = 32
    exact_size = True
    boundary: str | None = None
    num_features = WIDTH * 2 * 2

    def __init__(self) -> None:
        super().__init__()
        self.normalize = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            stage(channels) for channels in (3, WIDTH, WIDTH, WIDTH)
        )
        initialize(self)

    @property
    def style_stages(self) -> tuple[nn.Module, ...]:
        """The first three stages, whose outputs are (B, 64, h, w) maps with sides of 16, 8 and 4."""
        return behind_boundary(self, {"stage1": self.stage1, "stage2": self.stage2, "stage3": self.stage3})

    @property
    def sequence(self) -> Stages:
        """All modules in order, by stage."""
        stages = (self.stage1, self.stage2, self.stage3, self.stage4)
        return {"stem": (self.normalize,), **{f"stage{i}": (stage,) for i, stage in enumerate(stages, start=1)}}

    def maps(self, x: Tensor) -> Tensor:
        """Map images (B, 3, 32, 32) in [0, 1] to the last stage's maps (B, 64, 2, 2)."""
        return last_maps(self, x)

    def pool(self, maps: Tensor) -> Tensor:
        """Flatten all positions of all maps: (B, 256)."""
        return full_precision(maps).flatten(1)

    def features(self, x: Tensor) -> Tensor:
        """Map images to pooled features, whatever is frozen."""
        return self.pool(whole_maps(self, x))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, 32, 32) in [0, 1] to features (B, 256)."""
        return self.pool(self.maps(x))


def stage(in_channels: int) -> nn.Sequential:
    """Build convolution, max-pooling and ReLU: max and ReLU commute, and here ReLU has a quarter of the work."""
    conv = nn.Conv2d(in_channels, WIDTH, 3, padding=1)
    return nn.Sequential(conv, nn.MaxPool2d(2), nn.ReLU(inplace=True))
