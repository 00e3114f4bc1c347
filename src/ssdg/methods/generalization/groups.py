"""Stand-ins for domains where there is one only: groups of images of like style."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ...data.sets import ImageTable, LabeledSet, Task
from ..api import Build, Learner, Method, Settings, Trainer

CHUNK = 256  # images read at a time


class GroupSettings(Settings):
    """What a method of several domains needs to know where there is one."""

    groups: int = Field(3, ge=2, description="groups of brightness that stand for domains where only one is given")


def across_domains(method: Method) -> Method:
    """The method on the domains of the labeled set or, where that has one only, on groups of its images.

    The method's settings are `GroupSettings`.
    """

    def fit(task: Task, trainer: Trainer, build: Build, settings: GroupSettings) -> Learner:
        if task.labeled.num_domains == 1:
            task = replace(task, labeled=style_groups(task.labeled, settings.groups))
        return method.fit(task, trainer, build, settings)

    return replace(method, algorithm=fit)


@lru_cache(maxsize=1)  # a run asks twice: for its plan and for its training
def style_groups(labeled: LabeledSet, count: int) -> LabeledSet:
    """`labeled` with domains 0 .. count-1 from dark to bright, of sizes that differ by at most one.

    An image's place is its rank within its class, so that each group has about the same share of every class: a
    digit's brightness tells how much ink its class takes, and an expert should not see ones alone. Images of equal
    brightness stand in the order of their content. Fewer images than groups give a group each.
    """
    order = np.lexsort((*labeled.images.digest.T[::-1], brightness(labeled.images)))
    place = np.empty(len(order))
    for k in np.unique(labeled.y):
        rows = order[labeled.y[order] == k]
        place[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    ranked = order[np.argsort(place[order], kind="stable")]
    domain = np.empty(len(order), np.int64)
    domain[ranked] = np.arange(len(order)) * min(count, len(order)) // len(order)
    return replace(labeled, domain=domain)


def brightness(images: ImageTable) -> NDArray[np.int64]:
    """The sum of every image's values: (n,)."""
    rows = np.arange(len(images))
    parts = [images[rows[i : i + CHUNK]].sum((1, 2, 3), dtype=np.int64) for i in range(0, len(rows), CHUNK)]
    return np.concatenate(parts)
