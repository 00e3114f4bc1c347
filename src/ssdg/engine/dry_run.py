"""A dry run: every phase on a handful of images, so that a mistake shows before the long run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import RunConfig
from ..data.hidden import Problem, Target
from ..data.sets import LabeledSet, Rows, UnlabeledSet
from ..methods.api import Settings

BATCH, BATCHES = 4, 2


def rehearse(config: RunConfig, problem: Problem) -> tuple[RunConfig, Problem]:
    """The same run with two small batches per epoch, one epoch per stage and at most two cycles."""
    update = {"settings": shorten(config.settings), "warm_epochs": min(1, config.warm_epochs)}
    return config.model_copy(update=update), few_images(problem)


def shorten(settings: Settings) -> Settings:
    """Settings of the rehearsal; those of a labeler inside are shortened too."""
    update: dict[str, Any] = {"batch": BATCH, "epochs": 1, "iterations": BATCHES}
    inner = getattr(settings, "labeler", None)
    if isinstance(inner, Settings):
        update["labeler"] = shorten(inner)
    if hasattr(settings, "cycles"):
        update["cycles"] = min(2, settings.cycles)
    return settings.model_copy(update=update)


def few_images(problem: Problem) -> Problem:
    """Two images of every class of the labeled domain, and two batches of all else."""
    few = slice(0, BATCH * BATCHES)
    task, target, validation = problem.task, problem.target, problem.validation
    unlabeled = {
        name: UnlabeledSet(s.images.take(rows_of(s, few)), s.domain[few]) for name, s in task.unlabeled.items()
    }
    name, rows = problem.domains[0], few_of_each(task.labeled.y)
    if target is not None:
        target = Target(
            target.name, target.images.take(rows_of(target.images, few)), target.paths[few], target.y[few]
        )
    return replace(
        problem,
        task=replace(
            task,
            labeled=chosen(task.labeled, rows),
            unlabeled=unlabeled,
            web={name: y[few] for name, y in task.web.items()},
        ),
        target=target,
        validation=None if validation is None else chosen(validation, few_of_each(validation.y)),
        truth={name: y[few] for name, y in problem.truth.items()},
        web_labels={name: y[few] for name, y in problem.web_labels.items()},
        paths={n: tuple(p[row] for row in rows) if n == name else p[few] for n, p in problem.paths.items()},
    )


def rows_of(sized: Any, part: slice) -> Rows:
    """The row numbers of a slice."""
    return np.arange(len(sized))[part]


def few_of_each(y: NDArray[np.int64]) -> Rows:
    """The first two rows of every class."""
    return np.concatenate([np.flatnonzero(y == k)[:2] for k in np.unique(y)] or [np.zeros(0, np.intp)])


def chosen(labeled: LabeledSet, rows: Rows) -> LabeledSet:
    """These images of a set."""
    return LabeledSet(labeled.images.take(rows), labeled.y[rows], labeled.domain[rows], labeled.trusted[rows])
