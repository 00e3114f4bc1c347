"""The configured method on a task: what a run trains, a plan counts and a replay looks at."""

from __future__ import annotations

from ..config import RunConfig
from ..data.sets import Task
from ..methods import find_method
from ..methods.api import Build, Learner, Settings, Trainer
from ..methods.warm import warm_build


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
