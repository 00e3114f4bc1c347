"""The configured method on a task, the plan of its stages, and the short form of a run for a dry run.

A plan says which stages a method will request and how long each is. A dry run reaches every phase with a few images,
so that a mistake shows before the long run.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..config import RunConfig
from ..data.hidden import Problem, Target
from ..data.sets import LabeledSet, PseudoLabels, Rows, Task, UnlabeledSet
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
    num_labeled: int = 0  # images, once per labeling and view

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
        self.num_labeled += n * (1 + request.views)
        y = np.zeros(n, np.int64)
        return PseudoLabels(y, np.ones(n, np.bool_), np.ones(n, np.float32), y[None], np.ones((n, 1), np.float16))


def plan(config: RunConfig, task: Task) -> list[PlannedStage]:
    """Return the stages of a run in order. A set selected during training counts with its largest size."""
    return plan_run(config, task).stages


def plan_run(config: RunConfig, task: Task) -> Planner:
    """Return the stages of a run and the number of images that it labels."""
    planner = Planner()
    # A learner with nothing in it: no network is built.
    build = Build(lambda request: SimpleNamespace(nets=nn.ModuleDict(), opts={}))
    fit(config, task, planner, build)
    return planner


BATCH, NUM_BATCHES = 4, 2
NUM_IMAGES = BATCH * NUM_BATCHES
PER_CLASS = 2


def shorten_run(config: RunConfig, problem: Problem) -> tuple[RunConfig, Problem]:
    """Return the same run with two small batches per epoch and the settings that the method uses for a dry run."""
    settings = config.settings.shortened(batch=BATCH, iterations=NUM_BATCHES)
    update = {"settings": settings, "warm_epochs": min(1, config.warm_epochs)}
    return config.model_copy(update=update), few_images(problem)


def few_images(problem: Problem) -> Problem:
    """Keep two images of every class of the labeled domain, and two batches of everything else."""
    first = slice(0, NUM_IMAGES)
    task, target, validation = problem.task, problem.target, problem.validation
    unlabeled = {
        name: UnlabeledSet(pool.images.take(first_rows(len(pool))), pool.domain[first])
        for name, pool in task.unlabeled.items()
    }
    labeled, rows = problem.domains[0], few_per_class(task.labeled.y)
    if target is not None:
        images = target.images.take(first_rows(len(target.images)))
        target = Target(target.name, images, target.paths[first], target.y[first])
    return replace(
        problem,
        task=replace(
            task,
            labeled=select(task.labeled, rows),
            unlabeled=unlabeled,
            web={name: y[first] for name, y in task.web.items()},
        ),
        target=target,
        validation=None if validation is None else select(validation, few_per_class(validation.y)),
        truth={name: y[first] for name, y in problem.truth.items()},
        web_labels={name: y[first] for name, y in problem.web_labels.items()},
        paths={
            name: tuple(paths[row] for row in rows) if name == labeled else paths[first]
            for name, paths in problem.paths.items()
        },
    )


def first_rows(count: int) -> Rows:
    """Return the first row numbers of a set of this size."""
    return np.arange(min(count, NUM_IMAGES))


def few_per_class(y: NDArray[np.int64]) -> Rows:
    """Return the first two rows of every class."""
    return np.concatenate([np.flatnonzero(y == k)[:PER_CLASS] for k in np.unique(y)] or [np.zeros(0, np.intp)])


def select(labeled: LabeledSet, rows: Rows) -> LabeledSet:
    """Return these images of a set."""
    return LabeledSet(labeled.images.take(rows), labeled.y[rows], labeled.domain[rows], labeled.trusted[rows])
