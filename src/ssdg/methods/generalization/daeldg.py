"""Domain Adaptive Ensemble Learning, its form for generalization (Zhou et al., IEEE TIP 2021)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.consistency import collaboration
from ...models.heads import linear_head
from ..api import MakeBackbone, Method, Progress, Sizes, descend, register, sgd
from .groups import GroupSettings, across_domains


class DaelDgSettings(GroupSettings):
    """DAEL's own settings; the paper adds both losses with weight 1."""

    weight: float = Field(1.0, ge=0, description="of the collaboration beside the experts' cross-entropy")


class DaelDg:
    """One feature extractor and an expert classifier per domain; others learn what the domain's own expert says.

    A view passes as one batch of all domains, so batch norm normalises by statistics that all of them share, as at
    the end. A domain that a batch lacks adds nothing. Where there is one domain, there are no others to learn. Labels
    may be soft, and guessed ones count like true ones.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: DaelDgSettings) -> None:
        self.features = make_backbone()
        self.shape = (sizes.num_domains, sizes.num_classes)
        # One layer for all experts: its outputs start independent, as those of separate heads do.
        self.experts = linear_head(self.features.num_features, sizes.num_domains * sizes.num_classes)
        self.nets = nn.ModuleDict({"features": self.features, "experts": self.experts})
        self.opts = {"all": sgd([self.features, self.experts], settings)}
        self.weight = settings.weight

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Experts learn their own domain; together they learn what the expert of another one says."""
        labeled = batch.labeled
        assert labeled.strong is not None
        rows = torch.arange(len(labeled.x), device=labeled.x.device)
        own = self.logits(labeled.x)[labeled.domain, rows]
        loss = loss_expert = cross_entropy(own, labeled.y)
        scalars = {"loss_expert": loss_expert.detach()}
        if self.shape[0] > 1:
            probs_s = self.logits(labeled.strong).softmax(-1)
            loss_others = collaboration(probs_s, own.detach().softmax(-1), labeled.domain)
            loss = loss_expert + self.weight * loss_others
            scalars["collaboration"] = loss_others.detach()
        descend(loss, self.opts["all"])
        return {"loss": loss.detach(), **scalars}

    def logits(self, x: Tensor) -> Tensor:
        """(domains, B, classes): all experts."""
        logits: Tensor = self.experts(self.features(x))
        return logits.view(-1, *self.shape).transpose(0, 1)  # len(x) would fix the batch of an exported graph


register(
    across_domains(
        Method(
            name="daeldg",
            family="DG",
            paper="Zhou et al., Domain Adaptive Ensemble Learning, IEEE TIP 2021",
            summary="an expert per domain; the others learn what it says, on stronger views",
            learner=DaelDg,
            settings=DaelDgSettings,
            needs=("balanced", "strong"),
        )
    )
)
