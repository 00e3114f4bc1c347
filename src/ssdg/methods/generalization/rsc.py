"""Representation Self-Challenging (Huang et al., ECCV 2020)."""

from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch
from ...errors import Note
from ...losses.classification import cross_entropy
from ...losses.gradients import channel_mask, largest_drops, spatial_mask
from ...models.heads import linear_head
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd

ONE_POSITION = (
    "rsc masks no positions here: the last maps are 1 x 1 at this image size, so only steps that mask channels have "
    "an effect; give a larger size, or spatial_rate=0"
)


class RscSettings(Settings):
    """Settings of RSC; the defaults are the best of its paper's ablations."""

    feature_rate: float = Field(1 / 3, gt=0, lt=1, description="fraction of positions or channels that are masked")
    batch_rate: float = Field(1 / 3, gt=0, le=1, description="fraction of a batch whose features are masked")
    spatial_rate: float = Field(
        0.5, ge=0, le=1, description="probability that a step masks positions instead of channels"
    )


class Rsc:
    """One network trained without the features that its predictions depend on most.

    Domains and whether labels are trusted are ignored: images of all domains are forwarded in one batch, and batch
    norm normalizes them together. Labels may be soft; the score of the true class is then the label-weighted mean.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: RscSettings) -> None:
        self.backbone = make_backbone()
        self.head = linear_head(self.backbone.num_features, sizes.num_classes)
        self.nets = nn.ModuleDict({"backbone": self.backbone, "head": self.head})
        self.opts = {"network": sgd([self.backbone, self.head], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Find the dominant features, mask them in the samples that this affects most, and learn from the result."""
        maps = self.backbone.maps(batch.labeled.x)
        # Differentiating by a view needs no backward pass through the backbone, which may be frozen as a whole.
        view = maps.view_as(maps) if maps.requires_grad else maps.detach().requires_grad_()
        logits = self.head(self.backbone.pool(view))
        y = batch.labeled.y
        weights = y if y.ndim == 2 else F.one_hot(y, logits.shape[1])
        (grads,) = torch.autograd.grad((logits * weights).sum(), view, retain_graph=True)  # Eq. 1
        masked_logits = self.head(self.backbone.pool(maps * self._mask(maps, grads)))
        probs, masked_probs = ((z.softmax(-1) * weights).sum(-1) for z in (logits, masked_logits))
        is_masked = largest_drops(probs, masked_probs, self.settings.batch_rate)
        loss = cross_entropy(torch.where(is_masked[:, None], masked_logits, logits), y)
        descend(loss, self.opts["network"])
        return {"loss": loss.detach(), "fall": (probs - masked_probs).detach().mean()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.head(self.backbone(x))
        return logits.unsqueeze(0)

    def _mask(self, maps: Tensor, grads: Tensor) -> Tensor:
        if torch.rand(()).item() < self.settings.spatial_rate:
            if maps.shape[-2:] == (1, 1):
                warnings.warn(ONE_POSITION, Note, stacklevel=2)
            return spatial_mask(maps, grads, self.settings.feature_rate)
        return channel_mask(grads, self.settings.feature_rate)


register(
    Method(
        name="rsc",
        family="DG",
        paper="Huang et al., Self-Challenging Improves Cross-Domain Generalization, ECCV 2020",
        summary="mask the features that predictions depend on most during training",
        learner=Rsc,
        settings=RscSettings,
    )
)
