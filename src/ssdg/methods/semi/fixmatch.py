"""FixMatch (Sohn et al., NeurIPS 2020)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, cat, nn, no_grad

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.consistency import confident_pseudo_labels, ema_decay, masked_cross_entropy
from ...models.layers import EMA
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd, with_head


class FixMatchSettings(Settings):
    """Settings of FixMatch; the defaults are its paper's."""

    threshold: float = Field(0.95, ge=0, le=1, description="minimum probability of a pseudo-label")
    unlabeled_weight: float = Field(1.0, ge=0, description="weight of the unlabeled loss")
    ratio: int = Field(7, ge=1, description="unlabeled images per labeled image in a batch")
    ema_decay: float = Field(
        0.999, ge=0, lt=1, description="decay of the evaluated moving average per step, after a warm-up"
    )


class FixMatch:
    """One network that learns strong views with confident pseudo-labels from weak views.

    All unlabeled domains are one pool. Labeled images and strong views are forwarded in one batch with gradients,
    weak views in another without, both in training mode: batch norm normalizes each batch with its own statistics and
    includes both in the running ones. A moving average of the weights is evaluated.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: FixMatchSettings) -> None:
        self.network = with_head(make_backbone(), sizes.num_classes)
        self.average = EMA(self.network, settings.ema_decay)
        self.nets = nn.ModuleDict({"network": self.network, "average": self.average})
        self.opts = {"network": sgd([self.network], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Take one step on Eq. 3 + `unlabeled_weight` · Eq. 4 of the paper."""
        x, unlabeled, cfg = batch.labeled.x, batch.unlabeled, self.settings
        assert unlabeled is not None
        assert unlabeled.strong is not None
        with no_grad():
            y_u, is_confident = confident_pseudo_labels(self.network(unlabeled.x), cfg.threshold)
        logits_l, logits_s = self.network(cat([x, unlabeled.strong])).split([len(x), len(y_u)])
        loss_l = cross_entropy(logits_l, batch.labeled.y)
        loss_u = masked_cross_entropy(logits_s, y_u, is_confident)
        loss = loss_l + cfg.unlabeled_weight * loss_u
        descend(loss, self.opts["network"])
        self.average.update(self.network, ema_decay(at.step, cfg.ema_decay))
        scalars = {"loss": loss, "loss_l": loss_l, "loss_u": loss_u, "keep_rate": is_confident.float().mean()}
        return {name: value.detach() for name, value in scalars.items()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes) of the moving average."""
        logits: Tensor = self.average(x)
        return logits.unsqueeze(0)


register(
    Method(
        name="fixmatch",
        family="SSL",
        paper="Sohn et al., FixMatch: Simplifying Semi-Supervised Learning, NeurIPS 2020",
        summary="learn strong views with confident pseudo-labels from weak views",
        learner=FixMatch,
        settings=FixMatchSettings,
        needs=("unlabeled", "strong"),
        presets={"quick": {"ratio": 1}},
    )
)
