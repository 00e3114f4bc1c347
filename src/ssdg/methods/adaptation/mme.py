"""Minimax Entropy (Saito et al., ICCV 2019)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.information import entropy
from ...models.heads import CosineHead
from ...models.layers import reverse_gradient
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd


class MmeSettings(Settings):
    """MME's own settings; the values are its paper's."""

    entropy_weight: float = Field(0.1, ge=0, description="weight of the entropy of unlabeled images")
    temperature: float = Field(0.05, gt=0, description="of the classifier; low: sharp predictions")


class Mme:
    """Prototypes move to where unlabeled images are undecided, features gather around the prototypes.

    The paper's setting has a few labels in the unlabeled domain as well; here there are none. Several unlabeled
    domains are one pool. Labels may be soft. Labeled and unlabeled images pass in separate batches, so batch norm
    normalises each side by its own statistics while training. The game needs no list of the classes that the
    unlabeled images hold: each image is drawn to the prototype nearest to it.
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
        """min over features of CE + λH and, in the same pass, min over the classifier of CE − λH."""
        assert batch.unlabeled is not None
        features_l, features_u = self.features(batch.labeled.x), self.features(batch.unlabeled.x)
        loss = cross_entropy(self.head(features_l), batch.labeled.y)
        undecided = entropy(self.head(reverse_gradient(features_u)).softmax(-1)).mean()
        descend(loss - self.entropy_weight * undecided, self.opts["all"])
        return {"loss": loss.detach(), "entropy": undecided.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)


register(
    Method(
        name="mme",
        family="DA",
        paper="Saito et al., Semi-supervised Domain Adaptation via Minimax Entropy, ICCV 2019",
        summary="the classifier raises the entropy of unlabeled images, features lower it",
        learner=Mme,
        settings=MmeSettings,
        needs=("unlabeled",),
        presets={"quick none": {"lr": 0.01}},  # 1/T makes steps longer: an untrained network does not learn at 0.03
    )
)
