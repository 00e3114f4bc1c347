"""Source-only: cross-entropy on the labeled domain, and nothing else."""

from __future__ import annotations

from torch import Tensor, nn

from ..data.sets import Batch
from ..losses.classification import cross_entropy
from .api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd, with_head


class SourceOnly:
    """One network, one loss."""

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: Settings) -> None:
        self.network = with_head(make_backbone(), sizes.num_classes)
        self.nets = nn.ModuleDict({"network": self.network})
        self.opts = {"network": sgd([self.network], settings)}

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """One descent step on the labeled batch."""
        loss = cross_entropy(self.network(batch.labeled.x), batch.labeled.y)
        descend(loss, self.opts["network"])
        return {"loss": loss.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes)."""
        logits: Tensor = self.network(x)
        return logits.unsqueeze(0)


register(
    Method(
        name="source-only",
        family="source",
        paper="the baseline of every table",
        summary="cross-entropy on the labeled domain alone",
        learner=SourceOnly,
    )
)
