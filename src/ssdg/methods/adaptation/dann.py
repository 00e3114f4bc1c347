"""Domain-Adversarial Neural Network (Ganin et al., JMLR 2016)."""

from __future__ import annotations

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.adversarial import domain_loss, ramp
from ...losses.classification import cross_entropy
from ...models.heads import linear_head
from ...models.layers import reverse_gradient
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd

# At full strength, an untrained network that has some hundred steps only may diverge.
PRESETS = {"quick none": {"weight": 0.1}}


class DannSettings(Settings):
    """DANN's own settings: the ramp and the discriminator of its paper's experiments on photos."""

    weight: float = Field(1.0, ge=0, description="strength of the reversed gradient at the end of its ramp")
    gamma: float = Field(10.0, gt=0, description="how fast the reversed gradient ramps up")
    hidden: tuple[PositiveInt, ...] = Field((1024, 1024), description="hidden widths of the domain discriminator")


class Dann:
    """A discriminator tells labeled from unlabeled images; features learn to deceive it.

    All unlabeled domains are one domain to the discriminator. Labels may be soft. Labeled and unlabeled images
    pass in separate batches, so batch norm normalises each side by its own statistics while training. Classes
    that the unlabeled images lack are not known: the features of all classes are drawn together.
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
        """One step down both losses; the domain loss reaches the features reversed."""
        assert batch.unlabeled is not None
        features_l, features_u = self.features(batch.labeled.x), self.features(batch.unlabeled.x)
        loss = cross_entropy(self.head(features_l), batch.labeled.y)
        strength = self.weight * ramp(at.fraction, self.gamma)
        domain = domain_loss(self._judge(features_l, strength), self._judge(features_u, strength))
        descend(loss + domain, self.opts["all"])
        return {"loss": loss.detach(), "domain": domain.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)

    def _judge(self, features: Tensor, strength: float) -> Tensor:
        judged: Tensor = self.discriminator(reverse_gradient(features, strength))
        return judged.squeeze(-1)


register(
    Method(
        name="dann",
        family="DA",
        paper="Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016",
        summary="features learn to hide from a discriminator whether an image is labeled",
        learner=Dann,
        settings=DannSettings,
        needs=("unlabeled",),
        presets=PRESETS,
    )
)
