"""Domain Adaptive Ensemble Learning for domain generalization (Zhou et al., IEEE TIP 2021)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.consistency import collaboration
from ...models.heads import linear_head
from ..api import NEW_LAYERS, MakeBackbone, Method, Progress, Sizes, descend, register, sgd
from .groups import GroupSettings, with_style_groups


class DaelDgSettings(GroupSettings):
    """Settings of DAEL; the paper adds both losses with weight 1."""

    weight: float = Field(1.0, ge=0, description="weight of the collaboration loss")


class DaelDg:
    """One feature extractor and an expert classifier per domain; the other experts learn from the domain's expert.

    Each view is forwarded as one batch of all domains, so batch norm normalizes with statistics that all of them
    share, as in evaluation. A domain absent from a batch adds nothing. A single domain leaves no other expert to
    learn. Labels may be soft, and pseudo-labels count like true labels.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: DaelDgSettings) -> None:
        self.features = make_backbone()
        self.shape = (sizes.num_domains, sizes.num_classes)
        # One layer for all experts: its outputs are initialized independently, like those of separate heads.
        self.experts = linear_head(self.features.num_features, sizes.num_domains * sizes.num_classes)
        self.nets = nn.ModuleDict({"features": self.features, "experts": self.experts})
        self.opts = {"all": sgd([self.features, self.experts], settings)}
        self.weight = settings.weight

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Let each expert learn its own domain, and the mean of the others learn its predictions."""
        labeled = batch.labeled
        assert labeled.strong is not None
        rows = torch.arange(len(labeled.x), device=labeled.x.device)
        expert_logits = self.logits(labeled.x)[labeled.domain, rows]
        loss = loss_expert = cross_entropy(expert_logits, labeled.y)
        scalars = {"loss_expert": loss_expert.detach()}
        if self.shape[0] > 1:
            probs_s = self.logits(labeled.strong).softmax(-1)
            loss_others = collaboration(probs_s, expert_logits.detach().softmax(-1), labeled.domain)
            loss = loss_expert + self.weight * loss_others
            scalars["collaboration"] = loss_others.detach()
        descend(loss, self.opts["all"])
        return {"loss": loss.detach(), **scalars}

    def logits(self, x: Tensor) -> Tensor:
        """Return (domains, B, classes): all experts."""
        logits: Tensor = self.experts(self.features(x))
        return logits.view(-1, *self.shape).transpose(0, 1)  # len(x) would fix the batch size of an exported graph


register(
    with_style_groups(
        Method(
            name="daeldg",
            family="DG",
            paper="Zhou et al., Domain Adaptive Ensemble Learning, IEEE TIP 2021",
            summary="one expert per domain; the other experts learn its predictions on strong views",
            learner=DaelDg,
            settings=DaelDgSettings,
            needs=("balanced", "strong"),
            presets={"quick tail": NEW_LAYERS},
        )
    )
)
