"""Classifiers on top of pooled features.

Heads compute in float32 also under autocast: they cost little next to a backbone, and the losses compare
probabilities of heads that differ little.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from .common import full_precision


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Disable autocast for the device of `x`; do nothing if it is off already, which keeps exported graphs plain."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


class LinearHead(nn.Linear):
    """Logits W x + b, initialized by PyTorch: uniform within ±1/√in_features, so two heads differ."""

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, in_features) to logits (B, out_features)."""
        with without_autocast(x):
            return super().forward(full_precision(x))


class UnitHead(LinearHead):
    """Logits W x / |x| + b, initialized with zeros: the layer of a probe, which solves for it."""

    def reset_parameters(self) -> None:
        """Set W and b to zero."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, in_features) to logits (B, out_features)."""
        return super().forward(F.normalize(full_precision(x)))


def linear_head(num_features: int, num_classes: int, hidden: tuple[int, ...] = ()) -> nn.Module:
    """Build a linear layer or, with `hidden` widths, a multilayer perceptron with ReLUs (a domain discriminator)."""
    if not hidden:
        return LinearHead(num_features, num_classes)
    widths = (num_features, *hidden)
    layers: list[nn.Module] = []
    for i in range(len(hidden)):
        layers += [LinearHead(widths[i], widths[i + 1]), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, LinearHead(widths[-1], num_classes))


class CosineHead(nn.Module):
    """Logits cos(x, w_k) / temperature, with no bias.

    With `unit_weights=False` only features are normalized, as in MME (Saito et al., 2019): w_k x / (|x| T).
    Weights are initialized uniformly within ±1/√num_features, like those of `LinearHead`.
    """

    def __init__(
        self, num_features: int, num_classes: int, temperature: float = 0.05, unit_weights: bool = True
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise UserError(f"the temperature of a cosine head must be positive, not {temperature}")
        self.temperature = temperature
        self.unit_weights = unit_weights
        bound = num_features**-0.5
        self.weight = nn.Parameter(torch.empty(num_classes, num_features).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, num_features) to logits (B, num_classes)."""
        with without_autocast(x):
            weight = F.normalize(self.weight) if self.unit_weights else self.weight
            return F.linear(F.normalize(full_precision(x)), weight) / self.temperature


class Bottleneck(nn.Module):
    """A backbone followed by a linear layer to `num_features`, where domain adaptation aligns the domains."""

    def __init__(self, backbone: nn.Module, num_features: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.linear = LinearHead(int(backbone.num_features), num_features)  # type: ignore[arg-type]
        self.num_features = num_features

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, 3, H, W) to features (B, num_features)."""
        features: Tensor = self.linear(self.backbone(x))
        return features
