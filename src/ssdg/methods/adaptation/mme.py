"""Minimax Entropy (Saito et al., ICCV 2019)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.information import entropy
from ...models.heads import CosineHead
from ...models.layers import reverse_gradient
from ..api import NEW_LAYERS, AdaptationSettings, MakeBackbone, Method, Progress, Sizes, descend, register, sgd


class MmeSettings(AdaptationSettings):
    """Settings of MME; the defaults are its paper's."""

    entropy_weight: float = Field(0.1, ge=0, description="weight of the entropy of unlabeled images")
    temperature: float = Field(0.05, gt=0, description="temperature of the classifier; lower is sharper")


class Mme:
    """A classifier whose prototypes move toward uncertain unlabeled images, and features that cluster around them.

    The paper's setting also has a few labels in the unlabeled domain; here there are none. Several unlabeled
    domains are one pool. Labels may be soft. Labeled and unlabeled images are forwarded in separate batches, so batch
    norm normalizes each side with its own statistics during training. The method need not know which classes the
    unlabeled images contain: each image is attracted to its nearest prototype.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: MmeSettings) -> None:
        self.features = make_backbone()
        self.head = CosineHead(
            self.features.num_features, sizes.num_classes, settings.temperature, unit_weights=False
        )
        self.nets = nn.ModuleDict({"features": self.features, "head": self.head})
        self.opts = {"all": sgd([self.nets], settings)}
        self.entropy_weight = settings.entropy_weight

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Minimize CE + λH over the features and, in the same pass, CE − λH over the classifier."""
        assert batch.unlabeled is not None
        features_l, features_u = self.features(batch.labeled.x), self.features(batch.unlabeled.x)
        loss = cross_entropy(self.head(features_l), batch.labeled.y)
        entropy_u = entropy(self.head(reverse_gradient(features_u)).softmax(-1)).mean()
        descend(loss - self.entropy_weight * entropy_u, self.opts["all"])
        return {"loss": loss.detach(), "entropy": entropy_u.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)


register(
    Method(
        name="mme",
        family="DA",
        paper="Saito et al., Semi-supervised Domain Adaptation via Minimax Entropy, ICCV 2019",
        summary="the classifier maximizes the entropy of unlabeled images, features minimize it",
        learner=Mme,
        settings=MmeSettings,
        needs=("unlabeled",),
        # 1/T enlarges gradients: an untrained network does not learn at 0.03
        presets={"quick none": {"lr": 0.01}, "quick tail": NEW_LAYERS},
    )
)
