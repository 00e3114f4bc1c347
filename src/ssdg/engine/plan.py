"""A rehearsal of a method without training: which stages it will ask for, and how long each is."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from torch import nn

from ..config import RunConfig
from ..data.sets import Inputs, PseudoLabels, Task, UnlabeledSet
from ..methods.api import Learner, Rule, Settings
from .feeding import steps_per_epoch
from .fit import fit


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
