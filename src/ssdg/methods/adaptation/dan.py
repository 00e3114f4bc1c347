"""Deep Adaptation Network (Long et al., ICML 2015)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, cat, nn

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.discrepancy import mk_mmd
from ...models.heads import linear_head
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd

Pair = tuple[Tensor, Tensor]  # of labeled and of unlabeled images


class DanSettings(Settings):
    """DAN's own settings."""

    mmd_weight: float = Field(1.0, ge=0, description="weight of the discrepancies")
    num_kernels: int = Field(5, ge=1, le=33, description="Gaussian kernels of equal weight, bandwidths doubling")


class Dan:
    """One network whose last two layers have alike distributions on labeled and unlabeled images.

    The layers are the pooled features and the logits, a discrepancy each. Labels may be soft; several unlabeled
    domains are one pool. Labeled and unlabeled images pass in one batch, so batch norm takes no difference between
    the domains away and its statistics in evaluation are those of training.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: DanSettings) -> None:
        self.features = make_backbone()
        self.head = linear_head(self.features.num_features, sizes.num_classes)
        self.nets = nn.ModuleDict({"features": self.features, "head": self.head})
        self.opts = {"network": sgd([self.features, self.head], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """One descent step on cross-entropy + weight · discrepancy of labeled and unlabeled images."""
        assert batch.unlabeled is not None
        parts = [len(batch.labeled.x), len(batch.unlabeled.x)]
        features = self.features(cat([batch.labeled.x, batch.unlabeled.x]))
        logits_l, logits_u = self.head(features).split(parts)
        features_l, features_u = features.split(parts)
        loss_l = cross_entropy(logits_l, batch.labeled.y)
        mmd = self.discrepancy((features_l, features_u), (logits_l, logits_u))
        loss = loss_l + self.weight(at) * mmd
        descend(loss, self.opts["network"])
        return {"loss": loss.detach(), "loss_l": loss_l.detach(), "mmd": mmd.detach()}

    def discrepancy(self, features: Pair, logits: Pair) -> Tensor:
        """MMD of features + MMD of logits."""
        num_kernels = self.settings.num_kernels
        return mk_mmd(*features, num_kernels) + mk_mmd(*logits, num_kernels)

    def weight(self, at: Progress) -> float:
        """Of the discrepancy; the same at all times."""
        return self.settings.mmd_weight

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)


register(
    Method(
        name="dan",
        family="DA",
        paper="Long et al., Learning Transferable Features with Deep Adaptation Networks, ICML 2015",
        summary="features and logits of labeled and unlabeled images get alike under many Gaussian kernels",
        learner=Dan,
        settings=DanSettings,
        needs=("unlabeled",),
    )
)
