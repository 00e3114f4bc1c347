"""Source-only, the baseline trained on the labeled domain, and the warm start of other methods from its backbone."""

from __future__ import annotations

from torch import Tensor, nn

from ..data.sets import Batch, Inputs, Task
from ..losses.classification import cross_entropy
from ..models.backbones import backbones_of
from .api import (
    Build,
    Learner,
    LearnerRequest,
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
    """One network trained with cross-entropy."""

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: Settings) -> None:
        self.network = with_head(make_backbone(), sizes.num_classes)
        self.nets = nn.ModuleDict({"network": self.network})
        self.opts = {"network": sgd([self.network], settings)}

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Take one step on the labeled batch."""
        loss = cross_entropy(self.network(batch.labeled.x), batch.labeled.y)
        descend(loss, self.opts["network"])
        return {"loss": loss.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.network(x)
        return logits.unsqueeze(0)


register(
    Method(
        name="source-only",
        family="source",
        paper="the baseline of every table",
        summary="cross-entropy on the labeled domain only",
        learner=SourceOnly,
    )
)


def warm_build(task: Task, trainer: Trainer, build: Build, settings: Settings) -> Build:
    """Train a backbone on the labeled domain and return a build whose learners start from it.

    Heads keep their own random initialization, so that the two classifiers of MCD and the two networks of DCG differ.
    A learner that chooses its own backbone starts from that backbone's weights. Not in the paper, which starts from
    ImageNet weights.
    """
    source = build("warm", SourceOnly, settings, freeze="none")
    trainer.train("warm", source, Inputs(task.labeled), settings, title="warm start")
    trained = [backbone.state_dict() for backbone in backbones_of(source.nets)]

    def make(request: LearnerRequest) -> Learner:
        learner: Learner = build.make(request)
        if request.backbone is None:
            for backbone in backbones_of(learner.nets):
                backbone.load_state_dict(trained[0])
        return learner

    return Build(make) if trained else build  # a plan builds no network
