"""Decode a domain and hold out its validation images.

The split depends on image content only: the same images are held out wherever they are read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .cache import load_images
from .hidden import OOD, UNKNOWN
from .parallel import ProgressCallback
from .sets import ImageTable
from .sources.benchmark import Domain, is_ood
from .sources.decode import ResizeMode

DIGEST_DTYPE = np.dtype((np.void, 16))


def select_held_out(
    digest: NDArray[np.uint8], rate: float, groups: NDArray[np.intp] | None = None
) -> NDArray[np.bool_]:
    """Return a mask of the fraction `rate` of distinct contents with the lowest hashes; copies stay together.

    With `groups` (a group index per image), select the fraction in each group, rounded, and never a whole group: at a
    rate of 0.1, a group of fewer than five images keeps them all.
    """
    hashes = np.ascontiguousarray(digest).view(DIGEST_DTYPE).reshape(-1)
    if groups is None:
        groups = np.zeros(len(hashes), np.intp)
    _, first, content = np.unique(hashes, return_index=True, return_inverse=True)
    content = content.reshape(-1)
    group_of_content = groups[first]  # copies under two labels count for one of the labels
    mask = np.zeros(len(first), np.bool_)
    for group in np.unique(group_of_content):
        members = np.flatnonzero(group_of_content == group)  # ordered by hash
        mask[members[: _num_held_out(len(members), rate)]] = True
    for group in np.unique(groups):
        contents = np.unique(content[groups == group])
        if mask[contents].all():
            mask[contents] = False
    return mask[content]


def _num_held_out(count: int, rate: float) -> int:
    return min(int(rate * count + 0.5), count - 1)


@dataclass(frozen=True, eq=False)
class LoadedDomain:
    """Decoded domain: images ordered by content, and per image its class name or '', path and split."""

    name: str
    images: ImageTable
    labels: tuple[str, ...]
    paths: tuple[str, ...]
    train: NDArray[np.bool_]
    held_out: NDArray[np.bool_]
    unreadable: tuple[tuple[str, str], ...] = ()
    web_labels: tuple[str, ...] = ()  # of a crawl: the keyword that found each image

    def class_indices(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """Return class indices, UNKNOWN for names not in `classes`."""
        return _class_indices(self.labels, classes)

    def truth(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """Return class indices, OOD for labels that say so, UNKNOWN for other names not in `classes`."""
        ood = np.array([is_ood(label) for label in self.labels], np.bool_)
        return np.where(ood, OOD, self.class_indices(classes))

    def web_class_indices(self, classes: Sequence[str]) -> NDArray[np.int64]:
        """Return class indices of the web-labels, UNKNOWN for keywords not in `classes`."""
        return _class_indices(self.web_labels, classes)


def _class_indices(names: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    indices = {name: index for index, name in enumerate(classes)}
    return np.array([indices.get(name, UNKNOWN) for name in names], np.int64)


def load_domain(
    domain: Domain,
    size: int,
    cache: Path,
    *,
    validation_rate: float,
    by_class: bool,
    use_splits: bool = True,
    resize: ResizeMode = "squash",
    progress: ProgressCallback | None = None,
) -> LoadedDomain:
    """Decode a domain (or open its cached images) and split it.

    `by_class`: hold out the same rate of each class. `use_splits`: the domain's own split, if it has one, replaces
    `validation_rate`.
    """
    cached = load_images(domain.items, size, cache, resize=resize, title=domain.name, progress=progress)
    labels = tuple(domain.labels[i] for i in cached.item)
    if use_splits and "train" in domain.splits:
        train = np.isin(cached.item, domain.splits["train"])
        listed = domain.splits.get("crossval")
        held_out = ~train if listed is None else np.isin(cached.item, listed) & ~train
    else:
        groups = np.unique(labels, return_inverse=True)[1] if by_class and labels else None
        held_out = select_held_out(cached.images.digest, validation_rate, groups)
        train = ~held_out
    paths = tuple(domain.items[i].path for i in cached.item)
    web_labels = tuple(domain.web_labels[i] for i in cached.item) if domain.web_labels else ()
    unreadable = (*cached.unreadable, *domain.skipped)
    return LoadedDomain(domain.name, cached.images, labels, paths, train, held_out, unreadable, web_labels)
