"""Open Set Domain Adaptation by Backpropagation (Saito et al., ECCV 2018)."""

from __future__ import annotations

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.adversarial import boundary_loss
from ...losses.classification import cross_entropy
from ...models.heads import linear_head
from ...models.layers import reverse_gradient
from ..api import NEW_LAYERS, AdaptationSettings, MakeBackbone, Method, Progress, Sizes, descend, register, sgd


class OsbpSettings(AdaptationSettings):
    """Settings of OSBP; the defaults are its paper's."""

    weight: float = Field(1.0, ge=0, description="weight of the boundary loss, for features and classifier")
    boundary: float = Field(0.5, gt=0, lt=1, description="target probability of 'unknown' for the classifier")


class Osbp:
    """A classifier with an extra class keeps unlabeled images at the boundary of 'unknown'; features choose a side.

    An unlabeled image of an unknown class can be rejected as 'unknown' instead of being attracted to a known class.
    Several unlabeled domains are one pool. Labels may be soft; they give zero probability to 'unknown'. Labeled and
    unlabeled images are forwarded in separate batches, so batch norm normalizes each side with its own statistics
    during training.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: OsbpSettings) -> None:
        self.features = make_backbone()
        self.head = linear_head(self.features.num_features, sizes.num_classes + 1)
        self.nets = nn.ModuleDict({"features": self.features, "head": self.head})
        self.opts = {"all": sgd([self.nets], settings)}
        self.weight, self.boundary = settings.weight, settings.boundary

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Minimize L_s + λ L_adv over the classifier and, in the same pass, L_s − λ L_adv over the features."""
        assert batch.unlabeled is not None
        features_l, features_u = self.features(batch.labeled.x), self.features(batch.unlabeled.x)
        y = batch.labeled.y
        loss = cross_entropy(self.head(features_l), y if y.ndim == 1 else F.pad(y, (0, 1)))
        boundary = boundary_loss(self.head(reverse_gradient(features_u)), self.boundary)
        descend(loss + self.weight * boundary, self.opts["all"])
        return {"loss": loss.detach(), "boundary": boundary.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes): the known classes only."""
        return self.open_logits(x)[..., :-1]

    def open_logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes + 1): the last class is 'unknown'."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)


register(
    Method(
        name="osbp",
        family="DA",
        paper="Saito et al., Open Set Domain Adaptation by Backpropagation, ECCV 2018",
        summary="features align each unlabeled image with the known classes or reject it as 'unknown'",
        learner=Osbp,
        settings=OsbpSettings,
        needs=("unlabeled",),
        # at weight 1, features of an untrained network vanish
        presets={"quick none": {"weight": 0.03, "lr": 0.01}, "quick tail": NEW_LAYERS},
    )
)
