"""Representation Self-Challenging (Huang et al., ECCV 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.gradients import channel_mask, hit_hardest, spatial_mask
from ...models.heads import linear_head
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd


class RscSettings(Settings):
    """RSC's own settings; the defaults are the best of its paper's ablations."""

    feature_rate: float = Field(1 / 3, gt=0, lt=1, description="share of positions or channels that are masked")
    batch_rate: float = Field(1 / 3, gt=0, le=1, description="share of a batch whose features are masked")
    spatial_rate: float = Field(0.5, ge=0, le=1, description="chance of a step to mask positions, not channels")


class Rsc:
    """One network that must do without the features its decision leans on most.

    Domains and the trust in labels are not looked at: images of all domains pass in one batch, and batch norm
    normalises them together. Labels may be soft; the true class's score is then the labels' mean score.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: RscSettings) -> None:
        self.backbone = make_backbone()
        self.head = linear_head(self.backbone.num_features, sizes.num_classes)
        self.nets = nn.ModuleDict({"backbone": self.backbone, "head": self.head})
        self.opts = {"network": sgd([self.backbone, self.head], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Find the dominant features, mask them where that hurts most, learn from the result."""
        maps = self.backbone.maps(batch.labeled.x)
        seen = maps.view_as(maps)  # the gradient stops here: it needs no pass back through the backbone
        logits = self.head(self.backbone.pool(seen))
        y = batch.labeled.y
        weights = y if y.ndim == 2 else F.one_hot(y, logits.shape[1])
        (grads,) = torch.autograd.grad((logits * weights).sum(), seen, retain_graph=True)  # Eq. 1
        masked = self.head(self.backbone.pool(maps * self._mask(maps, grads)))
        probs, masked_probs = ((z.softmax(-1) * weights).sum(-1) for z in (logits, masked))
        hit = hit_hardest(probs, masked_probs, self.settings.batch_rate)
        loss = cross_entropy(torch.where(hit[:, None], masked, logits), y)
        descend(loss, self.opts["network"])
        return {"loss": loss.detach(), "fall": (probs - masked_probs).detach().mean()}

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.head(self.backbone(x))
        return logits.unsqueeze(0)

    def _mask(self, maps: Tensor, grads: Tensor) -> Tensor:
        if torch.rand(()).item() < self.settings.spatial_rate:
            return spatial_mask(maps, grads, self.settings.feature_rate)
        return channel_mask(grads, self.settings.feature_rate)


register(
    Method(
        name="rsc",
        family="DG",
        paper="Huang et al., Self-Challenging Improves Cross-Domain Generalization, ECCV 2020",
        summary="the features that a decision leans on most are masked while training",
        learner=Rsc,
        settings=RscSettings,
    )
)
