"""A dry run: every phase on a few images, so that a mistake shows before the long run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..config import RunConfig
from ..data.hidden import Problem, Target
from ..data.sets import LabeledSet, Rows, UnlabeledSet

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
