"""Conditional Domain-Adversarial Network, with and without entropy weights (Long et al., NeurIPS 2018)."""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.adversarial import domain_loss, entropy_weights, multilinear, ramp, random_multilinear
from ...losses.classification import cross_entropy
from ...models.heads import linear_head
from ...models.layers import reverse_gradient
from ..api import MakeBackbone, Method, Progress, Sizes, descend, register, sgd
from .dann import PRESETS, DannSettings


class CdanSettings(DannSettings):
    """Settings of CDAN: DANN's ramp and discriminator, and how predictions condition it."""

    entropy: bool = Field(False, description="give certain predictions more weight in the domain loss")
    exact_up_to: int = Field(4096, ge=0, description="largest features × classes for which f ⊗ g is computed exactly")
    random_width: int = Field(1024, ge=1, description="width of the random estimate of f ⊗ g")
    through_predictions: bool = Field(False, description="let the domain loss train the classifier too")


class CdanESettings(CdanSettings):
    """Settings of CDAN with entropy weights, CDAN+E in the paper."""

    entropy: bool = Field(True, description="give certain predictions more weight in the domain loss")


class Conditioning(nn.Module):
    """T(f, g) of the paper: f ⊗ g or, if that is too wide, its estimate by random maps drawn once."""

    def __init__(self, num_features: int, num_classes: int, settings: CdanSettings) -> None:
        super().__init__()
        product, width = num_features * num_classes, settings.random_width
        is_exact = product <= settings.exact_up_to
        self.width = product if is_exact else width
        self.register_buffer("map_f", None if is_exact else torch.randn(num_features, width))
        self.register_buffer("map_g", None if is_exact else torch.randn(num_classes, width))
        self.map_f: Tensor | None
        self.map_g: Tensor | None

    def forward(self, features: Tensor, probs: Tensor) -> Tensor:
        """Map features (B, num_features) and probabilities (B, num_classes) to (B, width)."""
        if self.map_f is None or self.map_g is None:
            return multilinear(features, probs)
        return random_multilinear(features, probs, self.map_f, self.map_g)


class Cdan:
    """DANN whose discriminator sees features together with the classifier's predictions.

    Predictions are constants to the domain loss, in the product and in the entropy weights, as is common practice;
    `through_predictions` lets its reversed gradient into both, as the paper's equations say. The discriminator treats
    all unlabeled domains as one. Labels may be soft: the discriminator sees predictions, never labels. Labeled and
    unlabeled images are forwarded in separate batches, so batch norm normalizes each side with its own statistics
    during training. The method does not know which classes are absent from the unlabeled images.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: CdanSettings) -> None:
        self.features = make_backbone()
        self.head = linear_head(self.features.num_features, sizes.num_classes)
        self.condition = Conditioning(self.features.num_features, sizes.num_classes, settings)
        self.discriminator = linear_head(self.condition.width, 1, settings.hidden)
        parts = {"features": self.features, "head": self.head}
        self.nets = nn.ModuleDict({**parts, "condition": self.condition, "discriminator": self.discriminator})
        self.opts = {"all": sgd([self.nets], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Take one step on both losses; the gradient of the domain loss is reversed before the features."""
        assert batch.unlabeled is not None
        features_l, features_u = self.features(batch.labeled.x), self.features(batch.unlabeled.x)
        logits_l, logits_u = self.head(features_l), self.head(features_u)
        loss = cross_entropy(logits_l, batch.labeled.y)
        strength = self.settings.weight * ramp(at.fraction, self.settings.gamma)
        domain_logits_l, weights_l = self._discriminate(features_l, logits_l, strength)
        domain_logits_u, weights_u = self._discriminate(features_u, logits_u, strength)
        domain = domain_loss(domain_logits_l, domain_logits_u, weights_l, weights_u)
        descend(loss + domain, self.opts["all"])
        return {"loss": loss.detach(), "domain": domain.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)

    def _discriminate(self, features: Tensor, logits: Tensor, strength: float) -> tuple[Tensor, Tensor | None]:
        """Return the discriminator's logits and the samples' weights, (B,) each."""
        probs = logits.softmax(-1)
        probs = reverse_gradient(probs, strength) if self.settings.through_predictions else probs.detach()
        domain_logits: Tensor = self.discriminator(self.condition(reverse_gradient(features, strength), probs))
        return domain_logits.squeeze(-1), entropy_weights(probs) if self.settings.entropy else None


CDAN = register(
    Method(
        name="cdan",
        family="DA",
        paper="Long et al., Conditional Adversarial Domain Adaptation, NeurIPS 2018",
        summary="DANN whose domain discriminator sees features together with class predictions",
        learner=Cdan,
        settings=CdanSettings,
        needs=("unlabeled",),
        presets=PRESETS,
    )
)
register(
    replace(
        CDAN,
        name="cdan-e",
        summary="cdan with more weight on images with certain predictions",
        settings=CdanESettings,
    )
)
