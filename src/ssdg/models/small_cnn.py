"""Small CNNs for images of 32 px, trained from random weights."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from .common import LeanInstanceNorm2d, Normalize, full_precision, initialize
from .frozen import Stages, behind_boundary, last_maps, whole_maps


@dataclass(frozen=True)
class Kind:
    """The channels of the four stages, and the normalization layer of each; empty: none."""

    widths: tuple[int, int, int, int]
    norms: tuple[type[LeanInstanceNorm2d | nn.BatchNorm2d], ...] = ()


KINDS = {
    # of the Digits-DG benchmark (Zhou et al., DDAIG, 2020)
    "digits-cnn": Kind((64, 64, 64, 64)),
    # Instance norm early and batch norm later, as in IBN-Net (Pan et al., 2018): early maps lose their mean and
    # contrast, which differ between domains. Channels grow as maps shrink: it takes about as long as digits-cnn.
    "character-cnn": Kind(
        (32, 64, 128, 128), (LeanInstanceNorm2d, LeanInstanceNorm2d, nn.BatchNorm2d, nn.BatchNorm2d)
    ),
}


class SmallCNN(nn.Module):
    """Four stages of a 3x3 convolution, 2x2 max-pooling, normalization if the kind has it, and ReLU.

    The four positions of the last maps are flattened, not averaged. `kind` is one of `KINDS`.
    """

    prefers_bf16 = True
    min_size = 32
    exact_size = True
    boundary: str | None = None

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.name = kind
        widths, norms = KINDS[kind].widths, KINDS[kind].norms
        self.num_features = widths[-1] * 2 * 2
        self.normalize = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
        inputs = (3, *widths[:-1])
        self.stage1, self.stage2, self.stage3, self.stage4 = (
            stage(inputs[i], widths[i], norms[i] if norms else None) for i in range(4)
        )
        initialize(self)

    @property
    def style_stages(self) -> tuple[nn.Module, ...]:
        """The first three stages, whose outputs are (B, C, h, w) maps with sides of 16, 8 and 4."""
        return behind_boundary(self, {"stage1": self.stage1, "stage2": self.stage2, "stage3": self.stage3})

    @property
    def sequence(self) -> Stages:
        """All modules in order, by stage."""
        stages = (self.stage1, self.stage2, self.stage3, self.stage4)
        return {"stem": (self.normalize,), **{f"stage{i}": (stage,) for i, stage in enumerate(stages, start=1)}}

    def maps(self, x: Tensor) -> Tensor:
        """Map images (B, 3, 32, 32) in [0, 1] to the last stage's maps (B, C, 2, 2)."""
        return last_maps(self, x)

    def pool(self, maps: Tensor) -> Tensor:
        """Flatten all positions of all maps: (B, num_features)."""
        return full_precision(maps).flatten(1)

    def features(self, x: Tensor) -> Tensor:
        """Map images to pooled features, whatever is frozen."""
        return self.pool(whole_maps(self, x))

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, 32, 32) in [0, 1] to features (B, num_features)."""
        return self.pool(self.maps(x))


def stage(in_channels: int, width: int, norm: type[LeanInstanceNorm2d | nn.BatchNorm2d] | None) -> nn.Sequential:
    """Build a stage; pooling comes before normalization and ReLU, which then have a quarter of the work.

    Max and ReLU commute, so without normalization the order changes nothing.
    """
    conv = nn.Conv2d(in_channels, width, 3, padding=1, bias=norm is None)
    if norm is None:
        return nn.Sequential(conv, nn.MaxPool2d(2), nn.ReLU(inplace=True))
    # Maps of LeanInstanceNorm2d are views: an in-place change of one makes autograd copy it.
    return nn.Sequential(conv, nn.MaxPool2d(2), norm(width, affine=True), nn.ReLU())
