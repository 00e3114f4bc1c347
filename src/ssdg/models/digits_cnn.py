"""The small CNN of the Digits-DG benchmark (Zhou et al., DDAIG, 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from .common import Normalize, check_images, full_precision, initialize

WIDTH = 64


class DigitsCNN(nn.Module):
    """Four stages of a 3x3 convolution with 64 channels, ReLU and 2x2 max-pooling; no batch norm.

    Images of 32 px give 64 x 2 x 2 = 256 features: the four positions of the last maps are flattened, not averaged.
    """

    prefers_bf16 = True
    min_size = 32
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
        return (self.stage1, self.stage2, self.stage3)

    def maps(self, x: Tensor) -> Tensor:
        """Map images (B, 3, 32, 32) in [0, 1] to the last stage's maps (B, 64, 2, 2)."""
        check_images(x, "digits-cnn", size=self.min_size, exact=True)
        return self.stage4(self.stage3(self.stage2(self.stage1(self.normalize(x)))))  # type: ignore[no-any-return]

    def pool(self, maps: Tensor) -> Tensor:
        """Flatten all positions of all maps: (B, 256)."""
        return full_precision(maps).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, 32, 32) in [0, 1] to features (B, 256)."""
        return self.pool(self.maps(x))


def stage(in_channels: int) -> nn.Sequential:
    """Build convolution, max-pooling and ReLU: max and ReLU commute, and here ReLU has a quarter of the work."""
    conv = nn.Conv2d(in_channels, WIDTH, 3, padding=1)
    return nn.Sequential(conv, nn.MaxPool2d(2), nn.ReLU(inplace=True))
