"""The configured method on a task, and the plan of its stages: which ones it will request and how long each is."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from torch import nn

from ..config import RunConfig
from ..data.sets import PseudoLabels, Task
from ..methods import find_method, warm_build
from ..methods.api import Build, LabelRequest, Learner, Settings, StageRequest, StageRunner, Trainer
from ..schema import PlannedStage
from .batches import steps_per_epoch


def fit(config: RunConfig, task: Task, runner: StageRunner, build: Build) -> Learner:
    """Request all stages of the method from `runner`, after a warm start if configured; return the product.

    A run trains the stages, a plan counts them, a replay reads them from files: the algorithm is the same function.
    """
    trainer = Trainer(runner)
    if config.warm_epochs:
        build = warm_build(task, trainer, build, warm_settings(config))
    return find_method(config.method).fit(task, trainer, build, config.settings)


def warm_settings(config: RunConfig) -> Settings:
    """Return the method's momentum and decay with the epochs, learning rate and batch of the warm start."""
    settings = {name: getattr(config.settings, name) for name in ("momentum", "weight_decay")}
    batch = config.warm_batch or config.settings.batch
    return Settings.model_validate({**settings, "epochs": config.warm_epochs, "lr": config.warm_lr, "batch": batch})


@dataclass
class Planner:
    """A runner that only records stages; its labels select everything."""

    stages: list[PlannedStage] = field(default_factory=list)

    def run_stage(self, request: StageRequest) -> None:
        """Record a stage."""
        settings = request.settings
        self.stages.append(
            PlannedStage(
                key=request.key,
                round=request.round,
                steps=settings.epochs * steps_per_epoch(request.inputs, settings),
                epochs=settings.epochs,
                title=request.title,
                group=request.group,
                product=request.product,
                schedules=settings.schedules(),
            )
        )

    def run_labeling(self, request: LabelRequest) -> PseudoLabels:
        """Return labels of the right shape."""
        n = len(request.pool)
        y = np.zeros(n, np.int64)
        return PseudoLabels(y, np.ones(n, np.bool_), np.ones(n, np.float32), y[None], np.ones((n, 1), np.float16))


def plan(config: RunConfig, task: Task) -> list[PlannedStage]:
    """Return the stages of a run in order. A set selected during training counts with its largest size."""
    planner = Planner()
    # A learner with nothing in it: no network is built.
    build = Build(lambda request: SimpleNamespace(nets=nn.ModuleDict(), opts={}))
    fit(config, task, planner, build)
    return planner.stages
