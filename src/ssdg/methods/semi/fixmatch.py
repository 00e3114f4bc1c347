"""FixMatch (Sohn et al., NeurIPS 2020)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, cat, nn, no_grad

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.consistency import confident_guess, ema_decay, masked_cross_entropy
from ...models.layers import EMA
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd, with_head


class FixMatchSettings(Settings):
    """FixMatch's own settings; its paper's values."""

    threshold: float = Field(0.95, ge=0, le=1, description="probability from which a guess is learned")
    unlabeled_weight: float = Field(1.0, ge=0, description="weight of the unlabeled loss")
    ratio: int = Field(7, ge=1, description="unlabeled images per labeled one in a step")
    ema_decay: float = Field(0.999, ge=0, lt=1, description="of the evaluated weights, per step, after a warm-up")


class FixMatch:
    """What is confidently seen in a weak view is learned as the class of the strong view.

    All unlabeled domains are one pool. Labeled images and strong views pass in one batch with a gradient, weak views
    in another without, in training mode: batch norm normalises each batch by its own statistics and counts both.
    A moving average of the weights is evaluated.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: FixMatchSettings) -> None:
        self.network = with_head(make_backbone(), sizes.num_classes)
        self.average = EMA(self.network, settings.ema_decay)
        self.nets = nn.ModuleDict({"network": self.network, "average": self.average})
        self.opts = {"network": sgd([self.network], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """One descent step on Eq. 3 + `unlabeled_weight` · Eq. 4 of the paper."""
        x, unlabeled, cfg = batch.labeled.x, batch.unlabeled, self.settings
        assert unlabeled is not None
        assert unlabeled.strong is not None
        with no_grad():
            guess, keep = confident_guess(self.network(unlabeled.x), cfg.threshold)
        logits_l, logits_s = self.network(cat([x, unlabeled.strong])).split([len(x), len(guess)])
        loss_l = cross_entropy(logits_l, batch.labeled.y)
        loss_u = masked_cross_entropy(logits_s, guess, keep)
        loss = loss_l + cfg.unlabeled_weight * loss_u
        descend(loss, self.opts["network"])
        self.average.update(self.network, ema_decay(at.step, cfg.ema_decay))
        scalars = {"loss": loss, "loss_l": loss_l, "loss_u": loss_u, "keep_rate": keep.float().mean()}
        return {name: value.detach() for name, value in scalars.items()}

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes), of the moving average."""
        logits: Tensor = self.average(x)
        return logits.unsqueeze(0)


register(
    Method(
        name="fixmatch",
        family="SSL",
        paper="Sohn et al., FixMatch: Simplifying Semi-Supervised Learning, NeurIPS 2020",
        summary="confident guesses from weak views are learned on strong views",
        learner=FixMatch,
        settings=FixMatchSettings,
        needs=("unlabeled", "strong"),
        presets={"quick": {"ratio": 1}},
    )
)
