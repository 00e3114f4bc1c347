"""The configured method on a task, and the plan of its stages: which ones it will request and how long each is."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import nn

from ..config import RunConfig
from ..data.sets import Inputs, PseudoLabels, Task, UnlabeledSet
from ..methods import find_method
from ..methods.api import Build, Learner, Rule, Settings, Trainer
from ..methods.source_only import warm_build
from .batches import steps_per_epoch


def fit(config: RunConfig, task: Task, trainer: Trainer, build: Build) -> Learner:
    """Ask the trainer for all stages of the method, after a warm start if that is wanted; returns the product."""
    if config.warm_epochs:
        build = warm_build(task, trainer, build, warm_settings(config))
    return find_method(config.method).fit(task, trainer, build, config.settings)


def warm_settings(config: RunConfig) -> Settings:
    """The method's momentum and decay with the epochs, the rate and the batch of the warm start."""
    kept = {name: getattr(config.settings, name) for name in ("momentum", "weight_decay")}
    batch = config.warm_batch or config.settings.batch
    return Settings.model_validate({**kept, "epochs": config.warm_epochs, "lr": config.warm_lr, "batch": batch})


@dataclass(frozen=True)
class Planned:
    """A stage to come."""

    key: str
    round: int
    steps: int


@dataclass
class Planner:
    """A Trainer that only takes notes; its labels keep everything."""

    stages: list[Planned] = field(default_factory=list)

    def train(
        self,
        key: str,
        learner: Learner,
        inputs: Inputs,
        settings: Settings,
        *,
        round: int = 1,
        lr_scale: float = 1.0,
        product: bool = False,
    ) -> None:
        """Note a stage."""
        self.stages.append(Planned(key, round, settings.epochs * steps_per_epoch(inputs, settings)))

    def label(self, key: str, learner: Learner, pool: UnlabeledSet, rule: Rule, *, round: int) -> PseudoLabels:
        """Labels of the right shape."""
        n = len(pool)
        y = np.zeros(n, np.int64)
        return PseudoLabels(y, np.ones(n, np.bool_), np.ones(n, np.float32), y[None])


def plan(config: RunConfig, task: Task) -> list[Planned]:
    """The stages of a run in order. A set that is chosen while training counts with its largest size."""
    planner = Planner()

    def build(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(nets=nn.ModuleDict(), opts={})  # a learner with nothing in it

    fit(config, task, planner, build)
    return planner.stages
