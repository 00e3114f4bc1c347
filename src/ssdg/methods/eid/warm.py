"""A warm start: where no pretrained weights are at hand, the labeled domain gives the first ones."""

from __future__ import annotations

from collections.abc import Sequence

from ...data.sets import Inputs, Task
from ...models.backbones import backbones_of
from ..api import Build, Learner, Settings, Trainer
from ..source_only import SourceOnly
from .settings import EidSettings


def warm_start(task: Task, trainer: Trainer, build: Build, learners: Sequence[Learner], cfg: EidSettings) -> None:
    """Train one network on the labeled domain and copy its backbone into every backbone of the learners.

    Not in the paper, which starts from ImageNet weights. Heads keep their own random start, so that the two
    classifiers of MCD and the two networks of DCG differ.
    """
    settings = Settings.model_validate(
        {
            "epochs": cfg.warm_epochs,
            "batch": cfg.batch,
            "lr": cfg.warm_lr,
            "momentum": cfg.momentum,
            "weight_decay": cfg.weight_decay,
        }
    )
    source = build("warm", SourceOnly, settings)
    trainer.train("warm", source, Inputs(task.labeled), settings)
    trained = backbones_of(source.nets)
    for learner in learners:
        for backbone in backbones_of(learner.nets):
            backbone.load_state_dict(trained[0].state_dict())
