"""A dry run: every phase on a handful of images, so that a mistake shows before the long run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

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
    labeled = few_of_each(task.labeled)
    if target is not None:
        target = Target(
            target.name, target.images.take(rows_of(target.images, few)), target.paths[few], target.y[few]
        )
    return replace(
        problem,
        task=replace(task, labeled=labeled, unlabeled=unlabeled, web={name: y[few] for name, y in task.web.items()}),
        target=target,
        validation=None if validation is None else few_of_each(validation),
        truth={name: y[few] for name, y in problem.truth.items()},
        web_labels={name: y[few] for name, y in problem.web_labels.items()},
        paths={name: p[few] for name, p in problem.paths.items()},
    )


def rows_of(sized: Any, part: slice) -> Rows:
    """The row numbers of a slice."""
    return np.arange(len(sized))[part]


def few_of_each(labeled: LabeledSet) -> LabeledSet:
    """The first two images of every class."""
    rows = np.concatenate(
        [np.flatnonzero(labeled.y == k)[:2] for k in np.unique(labeled.y)] or [np.zeros(0, np.intp)]
    )
    return LabeledSet(labeled.images.take(rows), labeled.y[rows], labeled.domain[rows], labeled.trusted[rows])
