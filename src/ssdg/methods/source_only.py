"""Source-only: cross-entropy on the labeled domain; and the warm start of other methods with its backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from ..data.sets import Batch, Inputs, Task
from ..losses.classification import cross_entropy
from ..models.backbones import backbones_of
from .api import (
    Build,
    LearnerT,
    MakeBackbone,
    Method,
    Progress,
    Settings,
    Sizes,
    Trainer,
    descend,
    register,
    sgd,
    with_head,
)


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


@dataclass(frozen=True)
class WarmBuild:
    """Builds learners whose backbones start from `trained`; see `ssdg.methods.api.Build`.

    Heads keep their own random start, so that the two classifiers of MCD and the two networks of DCG differ.
    """

    build: Build
    trained: Mapping[str, Tensor]

    def __call__(
        self,
        key: str,
        learner: Callable[[MakeBackbone, Sizes, Settings], LearnerT],
        settings: Settings,
        *,
        num_domains: int = 1,
        backbone: str | None = None,
        weights: str | None = None,
    ) -> LearnerT:
        """A learner; one with a backbone of its own choice starts from that one's weights."""
        made = self.build(key, learner, settings, num_domains=num_domains, backbone=backbone, weights=weights)
        if backbone is None:
            for module in backbones_of(made.nets):
                module.load_state_dict(self.trained)
        return made


def warm_build(task: Task, trainer: Trainer, build: Build, settings: Settings) -> Build:
    """A build whose learners start from a backbone that is trained on the labeled domain now, with these settings.

    Not in the paper, which starts from ImageNet weights.
    """
    source = build("warm", SourceOnly, settings)
    trainer.train("warm", source, Inputs(task.labeled), settings)
    found = backbones_of(source.nets)
    return WarmBuild(build, found[0].state_dict()) if found else build  # a plan builds nothing
