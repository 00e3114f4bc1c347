"""Joint Adaptation Network (Long et al., ICML 2017)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, cat, nn

from ...data.sets import Batch
from ...losses.adversarial import ramp
from ...losses.classification import cross_entropy
from ...losses.kernels import joint_mmd
from ...models.heads import linear_head
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd


class JanSettings(Settings):
    """JAN's own settings."""

    mmd_weight: float = Field(1.0, ge=0, description="weight of the joint discrepancy at the end of training")
    num_kernels: int = Field(5, ge=1, le=33, description="Gaussian kernels per layer, bandwidths doubling")


class Jan:
    """One network whose features and predictions together have alike distributions on all domains.

    One discrepancy compares the joint distribution of pooled features and class probabilities. Labels may be soft;
    several unlabeled domains are one pool. Labeled and unlabeled images pass in one batch, so batch norm takes no
    difference between the domains away and its statistics in evaluation are those of training.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: JanSettings) -> None:
        self.features = make_backbone()
        self.head = linear_head(self.features.num_features, sizes.num_classes)
        self.nets = nn.ModuleDict({"features": self.features, "head": self.head})
        self.opts = {"network": sgd([self.features, self.head], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """One descent step on cross-entropy + λ · joint MMD of (features, probabilities)."""
        assert batch.unlabeled is not None
        parts = [len(batch.labeled.x), len(batch.unlabeled.x)]
        features = self.features(cat([batch.labeled.x, batch.unlabeled.x]))
        logits = self.head(features)
        loss_l = cross_entropy(logits[: parts[0]], batch.labeled.y)
        layers = [layer.split(parts) for layer in (features, logits.softmax(-1))]
        mmd = joint_mmd(layers, self.settings.num_kernels)
        loss = loss_l + self._weight(at) * mmd
        descend(loss, self.opts["network"])
        return {"loss": loss.detach(), "loss_l": loss_l.detach(), "mmd": mmd.detach()}

    def _weight(self, at: Progress) -> float:
        return self.settings.mmd_weight * ramp(at.fraction)

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)


register(
    Method(
        name="jan",
        family="DA",
        paper="Long et al., Deep Transfer Learning with Joint Adaptation Networks, ICML 2017",
        summary="the joint distribution of features and predictions gets alike on labeled and unlabeled images",
        learner=Jan,
        settings=JanSettings,
        needs=("unlabeled",),
    )
)
