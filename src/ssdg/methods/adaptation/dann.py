"""Domain-Adversarial Neural Network (Ganin et al., JMLR 2016)."""

from __future__ import annotations

from typing import Any

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.adversarial import domain_loss, ramp
from ...losses.classification import cross_entropy
from ...models.heads import linear_head
from ...models.layers import reverse_gradient
from ..api import NEW_LAYERS, AdaptationSettings, MakeBackbone, Method, Progress, Sizes, descend, register, sgd

# At full strength, an untrained network may diverge if it has only a few hundred steps.
PRESETS: dict[str, dict[str, Any]] = {"quick none": {"weight": 0.1}, "quick tail": NEW_LAYERS}


class DannSettings(AdaptationSettings):
    """Settings of DANN: the ramp and the discriminator of its paper's experiments on photos."""

    weight: float = Field(1.0, ge=0, description="strength of the reversed gradient after its ramp-up")
    gamma: float = Field(10.0, gt=0, description="steepness of the ramp-up of the reversed gradient")
    hidden: tuple[PositiveInt, ...] = Field(
        (1024, 1024), description="hidden layer widths of the domain discriminator"
    )


class Dann:
    """One network whose features fool a discriminator between labeled and unlabeled images.

    The discriminator treats all unlabeled domains as one. Labels may be soft. Labeled and unlabeled images are
    forwarded in separate batches, so batch norm normalizes each side with its own statistics during training. The
    method does not know which classes are absent from the unlabeled images: features of all classes are aligned.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: DannSettings) -> None:
        self.features = make_backbone()
        self.head = linear_head(self.features.num_features, sizes.num_classes)
        self.discriminator = linear_head(self.features.num_features, 1, settings.hidden)
        parts = {"features": self.features, "head": self.head, "discriminator": self.discriminator}
        self.nets = nn.ModuleDict(parts)
        self.opts = {"all": sgd([self.nets], settings)}
        self.weight, self.gamma = settings.weight, settings.gamma

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Take one step on both losses; the gradient of the domain loss is reversed before the features."""
        assert batch.unlabeled is not None
        features_l, features_u = self.features(batch.labeled.x), self.features(batch.unlabeled.x)
        loss = cross_entropy(self.head(features_l), batch.labeled.y)
        strength = self.weight * ramp(at.fraction, self.gamma)
        domain = domain_loss(self._discriminate(features_l, strength), self._discriminate(features_u, strength))
        descend(loss + domain, self.opts["all"])
        return {"loss": loss.detach(), "domain": domain.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)

    def _discriminate(self, features: Tensor, strength: float) -> Tensor:
        domain_logits: Tensor = self.discriminator(reverse_gradient(features, strength))
        return domain_logits.squeeze(-1)


register(
    Method(
        name="dann",
        family="DA",
        paper="Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016",
        summary="features learn to fool a discriminator between labeled and unlabeled images",
        learner=Dann,
        settings=DannSettings,
        needs=("unlabeled",),
        presets=PRESETS,
    )
)
