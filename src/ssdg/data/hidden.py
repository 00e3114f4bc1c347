"""The truth of unlabeled and target domains, where it is known. For the auditor and the evaluator only,
and to be copied beside the thumbnails of a run.

No module under `ssdg.methods`, `ssdg.losses` or `ssdg.models` may import this one; a test walks the imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .sets import ImageTable, LabeledSet, Task, digest_of

UNKNOWN = -1  # the class index of an image whose truth nobody told
OOD = -2  # of one that is known to belong to no class (out of distribution)


@dataclass(frozen=True, eq=False)
class Target:
    """The unseen domain: images, their names for the prediction file, their classes where known."""

    name: str
    images: ImageTable
    paths: tuple[str, ...]
    y: NDArray[np.int64]  # UNKNOWN where not known

    @property
    def is_labeled(self) -> bool:
        """Whether accuracy can be measured: every image has a known class."""
        return len(self.y) > 0 and bool((self.y != UNKNOWN).all())

    @property
    def fingerprint(self) -> str:
        """A hash of images and classes."""
        return digest_of(self.images.fingerprint, self.y)


@dataclass(frozen=True, eq=False)
class Problem:
    """What the engine holds: the task that methods see, and what they may not see."""

    task: Task
    domains: tuple[str, ...]  # names by domain index
    target: Target | None = None
    others: tuple[Target, ...] = ()  # targets of other runs that may share this one's training
    validation: LabeledSet | None = None  # held-out images of the labeled domain
    truth: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # per unlabeled domain
    web_labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # per unlabeled domain that is a crawl
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # per domain of training, for reports
    origin: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of each image of a discovered domain
    unreadable: tuple[tuple[str, str], ...] = ()  # (path, reason)
    fingerprint: str = ""
