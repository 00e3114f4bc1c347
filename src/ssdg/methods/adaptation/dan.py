"""Deep Adaptation Network (Long et al., ICML 2015)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, cat, nn

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.discrepancy import mk_mmd
from ...models.heads import linear_head
from ..api import AdaptationSettings, MakeBackbone, Method, Progress, Sizes, descend, register, sgd

Pair = tuple[Tensor, Tensor]  # labeled images, unlabeled images


class DanSettings(AdaptationSettings):
    """Settings of DAN."""

    mmd_weight: float = Field(1.0, ge=0, description="weight of the discrepancies")
    num_kernels: int = Field(
        5, ge=1, le=33, description="Gaussian kernels of equal weight, each with twice the bandwidth of the previous"
    )


class Dan:
    """One network trained to have similar distributions of its last two layers on labeled and unlabeled images.

    The layers are the pooled features and the logits, with one discrepancy each. Labels may be soft; several
    unlabeled domains are one pool. Labeled and unlabeled images are forwarded in one batch, so batch norm removes no
    difference between the domains and has the same statistics in evaluation as in training.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: DanSettings) -> None:
        self.features = make_backbone()
        self.head = linear_head(self.features.num_features, sizes.num_classes)
        self.nets = nn.ModuleDict({"features": self.features, "head": self.head})
        self.opts = {"network": sgd([self.features, self.head], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Take one step on cross-entropy + weight · discrepancy between labeled and unlabeled images."""
        assert batch.unlabeled is not None
        sizes = [len(batch.labeled.x), len(batch.unlabeled.x)]
        features = self.features(cat([batch.labeled.x, batch.unlabeled.x]))
        logits_l, logits_u = self.head(features).split(sizes)
        features_l, features_u = features.split(sizes)
        loss_l = cross_entropy(logits_l, batch.labeled.y)
        mmd = self.discrepancy((features_l, features_u), (logits_l, logits_u))
        loss = loss_l + self.weight(at) * mmd
        descend(loss, self.opts["network"])
        return {"loss": loss.detach(), "loss_l": loss_l.detach(), "mmd": mmd.detach()}

    def discrepancy(self, features: Pair, logits: Pair) -> Tensor:
        """Return MMD of features + MMD of logits."""
        num_kernels = self.settings.num_kernels
        return mk_mmd(*features, num_kernels) + mk_mmd(*logits, num_kernels)

    def weight(self, at: Progress) -> float:
        """Return the weight of the discrepancy: constant."""
        return self.settings.mmd_weight

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits.unsqueeze(0)


register(
    Method(
        name="dan",
        family="DA",
        paper="Long et al., Learning Transferable Features with Deep Adaptation Networks, ICML 2015",
        summary="match features and logits of labeled and unlabeled images by multi-kernel MMD",
        learner=Dan,
        settings=DanSettings,
        needs=("unlabeled",),
    )
)
