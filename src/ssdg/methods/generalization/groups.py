"""Groups of images of similar style, which replace domains if there is only one."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ...data.sets import ImageTable, LabeledSet, Task
from ..api import Build, Learner, Method, Settings, Trainer

CHUNK_SIZE = 256  # images read at a time


class GroupSettings(Settings):
    """Settings of a method that needs several domains."""

    groups: int = Field(3, ge=2, description="brightness groups that replace domains if there is only one")


def with_style_groups(method: Method) -> Method:
    """Return the method, trained on the domains of the labeled set or, if it has only one, on groups of its images.

    The method's settings must derive from `GroupSettings`.
    """

    def fit(task: Task, trainer: Trainer, build: Build, settings: GroupSettings) -> Learner:
        if task.labeled.num_domains == 1:
            task = replace(task, labeled=style_groups(task.labeled, settings.groups))
        return method.fit(task, trainer, build, settings)

    return replace(method, algorithm=fit)


@lru_cache(maxsize=1)  # a run needs it twice: for its plan and for training
def style_groups(labeled: LabeledSet, count: int) -> LabeledSet:
    """Return `labeled` with domains 0 .. count-1 from dark to bright, of sizes that differ by at most one.

    Images are ranked within their class, so that each group has about the same share of every class: the brightness
    of a digit depends on how much ink its class takes, and an expert should not see only ones. Ties in brightness are
    broken by content. With fewer images than groups, each image is a group.
    """
    order = np.lexsort((*labeled.images.digest.T[::-1], brightness(labeled.images)))
    rank = np.empty(len(order))  # within the class, in (0, 1)
    for k in np.unique(labeled.y):
        rows = order[labeled.y[order] == k]
        rank[rows] = (np.arange(len(rows)) + 0.5) / len(rows)
    ranked = order[np.argsort(rank[order], kind="stable")]
    domain = np.empty(len(order), np.int64)
    domain[ranked] = np.arange(len(order)) * min(count, len(order)) // len(order)
    return replace(labeled, domain=domain)


def brightness(images: ImageTable) -> NDArray[np.int64]:
    """Return the sum of each image's pixel values: (n,)."""
    rows = np.arange(len(images))
    parts = [images[rows[i : i + CHUNK_SIZE]].sum((1, 2, 3), dtype=np.int64) for i in range(0, len(rows), CHUNK_SIZE)]
    return np.concatenate(parts)
