"""Decode a domain and split off its validation part.

The split depends on image content only: the same images are held out wherever they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .cache import load_images
from .hidden import OOD, UNKNOWN
from .parallel import Progress
from .sets import ImageTable
from .sources.benchmark import Domain, is_ood

DIGEST = np.dtype((np.void, 16))


def held_out(digest: NDArray[np.uint8], rate: float, groups: NDArray[np.intp] | None = None) -> NDArray[np.bool_]:
    """Mark a share `rate` of the distinct contents, the ones with the lowest hashes; copies go together.

    With `groups` (a number per image) the share is taken of each group, rounded, and no group is marked
    whole: at a rate of 0.1 a group of fewer than five images keeps them all.
    """
    words = np.ascontiguousarray(digest).view(DIGEST).reshape(-1)
    if groups is None:
        groups = np.zeros(len(words), np.intp)
    _, first, content = np.unique(words, return_index=True, return_inverse=True)
    content = content.reshape(-1)
    group_of_content = groups[first]  # copies under two labels count for one of them
    marked = np.zeros(len(first), np.bool_)
    for group in np.unique(group_of_content):
        members = np.flatnonzero(group_of_content == group)  # in the order of their hashes
        marked[members[: _share(len(members), rate)]] = True
    for group in np.unique(groups):
        contents = np.unique(content[groups == group])
        if marked[contents].all():
            marked[contents] = False
    return marked[content]


def _share(count: int, rate: float) -> int:
    return min(int(rate * count + 0.5), count - 1)


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
