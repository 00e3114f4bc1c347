"""A domain as found -> a domain decoded and split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .cache import load_images
from .folders import Domain, is_ood
from .hidden import OOD, UNKNOWN
from .holdout import held_out
from .progress import Progress
from .sets import ImageTable


@dataclass(frozen=True, eq=False)
class Loaded:
    """A decoded domain: images by content, and per image its class name or '', path and side of the split."""

    name: str
    images: ImageTable
    labels: tuple[str, ...]
    paths: tuple[str, ...]
    train: NDArray[np.bool_]
    held: NDArray[np.bool_]
    unreadable: tuple[tuple[str, str], ...] = ()
    web_labels: tuple[str, ...] = ()  # the keyword that each image was found by, in a crawl

    def codes(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """Class indices, UNKNOWN where the name is none of `classes`."""
        return _codes(self.labels, classes)

    def truth(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """Class indices, OOD where the name says so, UNKNOWN where it says nothing of these classes."""
        strange = np.array([is_ood(label) for label in self.labels], np.bool_)
        return np.where(strange, OOD, self.codes(classes))

    def web_codes(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """Class indices of the web-labels, UNKNOWN where a keyword is none of `classes`."""
        return _codes(self.web_labels, classes)


def _codes(names: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    number = {name: index for index, name in enumerate(classes)}
    return np.array([number.get(name, UNKNOWN) for name in names], np.int64)


def load_domain(
    domain: Domain,
    size: int,
    cache: Path,
    *,
    validation_rate: float,
    by_class: bool,
    progress: Progress | None = None,
) -> Loaded:
    """Decode a domain (or open what was decoded before) and split it; `by_class`: each class alike."""
    cached = load_images(domain.items, size, cache, title=domain.name, progress=progress)
    labels = tuple(domain.labels[i] for i in cached.item)
    if "train" in domain.splits:
        train = np.isin(cached.item, domain.splits["train"])
        listed = domain.splits.get("crossval")
        held = ~train if listed is None else np.isin(cached.item, listed) & ~train
    else:
        groups = np.unique(labels, return_inverse=True)[1] if by_class and labels else None
        held = held_out(cached.images.digest, validation_rate, groups)
        train = ~held
    paths = tuple(domain.items[i].path for i in cached.item)
    found_by = tuple(domain.web_labels[i] for i in cached.item) if domain.web_labels else ()
    return Loaded(domain.name, cached.images, labels, paths, train, held, cached.unreadable, found_by)
