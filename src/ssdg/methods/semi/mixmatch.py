"""MixMatch (Berthelot et al., NeurIPS 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, cat, nn, no_grad

from ...data.sets import Batch
from ...devices import onto
from ...losses.classification import cross_entropy
from ...losses.consistency import ema_decay, linear_ramp, mix_up, sharpen, squared_distance
from ...models.layers import EMA
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd, with_head


class MixMatchSettings(Settings):
    """Settings of MixMatch; except for the ramp, the defaults are its paper's for CIFAR-10."""

    temperature: float = Field(0.5, gt=0, description="temperature that sharpens the pseudo-labels")
    alpha: float = Field(0.75, gt=0, description="parameter of the Beta distribution of the mixing coefficients")
    unlabeled_weight: float = Field(75.0, ge=0, description="weight of the unlabeled loss after its ramp-up")
    ramp: float = Field(1.0, ge=0, le=1, description="fraction of training over which unlabeled_weight ramps up")
    ema_decay: float = Field(
        0.999, ge=0, lt=1, description="decay of the evaluated moving average per step, after a warm-up"
    )


class MixMatch:
    """One network that learns mixtures of all images, with labels and sharpened pseudo-labels mixed alike.

    All unlabeled domains are one pool. There are two forward passes in training mode: both views of the unlabeled
    images for the pseudo-labels, then all mixed images together; batch norm includes both in its running statistics.
    A moving average of the weights is evaluated.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: MixMatchSettings) -> None:
        self.network = with_head(make_backbone(), sizes.num_classes)
        self.average = EMA(self.network, settings.ema_decay)
        self.nets = nn.ModuleDict({"network": self.network, "average": self.average})
        self.opts = {"network": sgd([self.network], settings)}
        self.settings, self.num_classes = settings, sizes.num_classes

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Run Algorithm 1 of the paper, then take one step on its Eq. 5."""
        cfg, num_labeled = self.settings, len(batch.labeled.x)
        x, target = self._mix(batch)
        logits = self.network(x)
        loss_l = cross_entropy(logits[:num_labeled], target[:num_labeled])
        loss_u = squared_distance(logits[num_labeled:].softmax(-1), target[num_labeled:])
        loss = loss_l + cfg.unlabeled_weight * linear_ramp(at.fraction, cfg.ramp) * loss_u
        descend(loss, self.opts["network"])
        self.average.update(self.network, ema_decay(at.step, cfg.ema_decay))
        return {"loss": loss.detach(), "loss_l": loss_l.detach(), "loss_u": loss_u.detach()}

    def _mix(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return images and soft labels: labeled, then both views, each mixed with a random one of all."""
        labeled, unlabeled = batch.labeled, batch.unlabeled
        assert unlabeled is not None
        assert unlabeled.second is not None
        x = cat([labeled.x, unlabeled.x, unlabeled.second])
        pseudo = self._pseudo_label(x[len(labeled.x) :])
        y = F.one_hot(labeled.y, self.num_classes) if labeled.y.ndim == 1 else labeled.y
        target = cat([y.to(pseudo.dtype), pseudo, pseudo])
        order = onto(torch.randperm(len(x)), x.device)
        alpha = torch.full((len(x),), self.settings.alpha, dtype=torch.float64)
        lam = torch.distributions.Beta(alpha, alpha).sample()
        share = onto(
            torch.maximum(lam, 1 - lam), x.device
        )  # each mixture is closer to its original than to its partner
        return mix_up(x, order, share), mix_up(target, order, share)

    @no_grad()
    def _pseudo_label(self, views: Tensor) -> Tensor:
        """Return the sharpened mean prediction for two views of each image (2B, ...): (B, K)."""
        first, second = self.network(views).softmax(-1).chunk(2)
        return sharpen((first + second) / 2, self.settings.temperature)

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes) of the moving average."""
        logits: Tensor = self.average(x)
        return logits.unsqueeze(0)


register(
    Method(
        name="mixmatch",
        family="SSL",
        paper="Berthelot et al., MixMatch: A Holistic Approach to Semi-Supervised Learning, NeurIPS 2019",
        summary="sharpened pseudo-labels for unlabeled images, MixUp across labeled and unlabeled images",
        learner=MixMatch,
        settings=MixMatchSettings,
        needs=("unlabeled", "second"),
        # In few steps from random weights, with 75 the network assigns one class to nearly all unlabeled images.
        presets={"quick none": {"unlabeled_weight": 10.0}},
    )
)
