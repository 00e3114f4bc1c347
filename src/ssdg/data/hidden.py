"""Ground truth of unlabeled and target domains, where it is known: for the auditor, the evaluator and the sample
thumbnails of a run only.

No module under `ssdg.methods`, `ssdg.losses` or `ssdg.models` may import this one; a test walks the imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .sets import ImageTable, LabeledSet, Task, digest_of

UNKNOWN = -1  # class index of an image without a known class
OOD = -2  # class index of an image known to belong to no class (out of distribution)


@dataclass(frozen=True, eq=False)
class Target:
    """Unseen domain: images, their paths for the prediction file, their classes where known."""

    name: str
    images: ImageTable
    paths: tuple[str, ...]
    y: NDArray[np.int64]  # UNKNOWN without a known class

    @property
    def is_labeled(self) -> bool:
        """Whether every image has a known class, so that accuracy can be measured."""
        return len(self.y) > 0 and bool((self.y != UNKNOWN).all())

    @property
    def fingerprint(self) -> str:
        """Hash of images and classes."""
        return digest_of(self.images.fingerprint, self.y)


@dataclass(frozen=True, eq=False)
class Problem:
    """Data of a run as the engine holds it: the task that methods see, and what they must not see."""

    task: Task
    domains: tuple[str, ...]  # names by domain index
    target: Target | None = None
    others: tuple[Target, ...] = ()  # targets of other runs that can share the training of this one
    validation: LabeledSet | None = None  # held-out images of the labeled domain
    truth: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # per unlabeled domain
    web_labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # per unlabeled domain from a crawl
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # per training domain, for reports
    origin: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # per discovered domain: source of each image
    unreadable: tuple[tuple[str, str], ...] = ()  # (path, reason)
    fingerprint: str = ""
