"""The linear probe: softmax regression on the features of a frozen backbone."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ...data.sets import Batch, Inputs, LabeledSet, Task, evenly_sampled
from ...models.heads import UnitHead
from ...models.regression import softmax_regression
from ..api import Build, Learner, MakeBackbone, Method, Progress, Settings, Sizes, Trainer, register

# One solution is enough. Digits have no pretrained weights: their backbone learns the labeled domain first.
PRESETS: dict[str, dict[str, Any]] = {
    "fast": {"epochs": 1},
    "quick": {"epochs": 1},
    "quick none": {"warm_epochs": 10, "warm_lr": 0.03},
}


class ProbeSettings(Settings):
    """Settings of the probe. Batch size and learning rate have no effect: every step solves the whole problem."""

    epochs: int = Field(1, ge=1, description="number of solutions, each starting from the previous one")
    c: float = Field(10.0, gt=0, description="inverse strength of the L2 penalty, as C of scikit-learn")
    max_iter: int = Field(300, ge=1, description="iterations of L-BFGS at most")
    max_images: int = Field(
        20_000, ge=1, description="images of a set that are used at most, evenly from all classes; bounds the memory"
    )

    def with_steps(self, steps: int) -> dict[str, Any] | None:
        """Return None: one solution is enough, so there is nothing to scale."""
        return None


class Probe:
    """One linear layer on L2-normalized features; it starts at zero, so no seed has an effect on it."""

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: ProbeSettings) -> None:
        backbone = make_backbone()
        self.backbone, self.head = backbone, UnitHead(backbone.num_features, sizes.num_classes)
        self.nets = nn.ModuleDict({"network": nn.Sequential(self.backbone, self.head)})
        self.opts: dict[str, Any] = {}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Solve the regression on the whole batch."""
        cfg, head = self.settings, self.head
        with torch.no_grad():
            features = F.normalize(self.backbone(batch.labeled.x))
            weight, bias, loss = softmax_regression(
                features, batch.labeled.y, head.weight, head.bias, c=cfg.c, max_iter=cfg.max_iter
            )
            head.weight.copy_(weight)
            head.bias.copy_(bias)
        return {"loss": torch.tensor(loss)}

    def logits(self, x: Tensor) -> Tensor:
        """Return (1, B, classes)."""
        logits: Tensor = self.head(self.backbone(x))
        return logits.unsqueeze(0)


def whole_inputs(labeled: LabeledSet, settings: ProbeSettings) -> Inputs:
    """Return inputs that give a step the whole set, with all stored views."""
    return Inputs(evenly_sampled(labeled, settings.max_images), whole=True)


def fit(task: Task, trainer: Trainer, build: Build, settings: ProbeSettings) -> Learner:
    """Solve the regression on the labeled domain."""
    probe = build("main", Probe, settings)
    trainer.train("main", probe, whole_inputs(task.labeled, settings), settings, product=True, title="probe")
    return probe


register(
    Method(
        name="probe",
        family="frozen",
        paper="Alain and Bengio, Understanding Intermediate Layers Using Linear Classifier Probes, 2017",
        summary="softmax regression on the features of the pretrained backbone",
        learner=Probe,
        settings=ProbeSettings,
        presets=PRESETS,
        algorithm=fit,
        freeze="all",
        default_views=0,
    )
)
