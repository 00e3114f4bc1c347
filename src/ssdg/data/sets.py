"""Data types shared by the whole package: image tables, sets, pseudo-labels, batches, tasks.

No type here holds a hidden label. An unlabeled set contains only images: no paths (a path may name the class), and
an order by content, so that the position of an image does not reveal its folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .sources.decode import ResizeMode as ResizeMode

if TYPE_CHECKING:  # image tables also work without torch
    from torch import Tensor

Rows = NDArray[np.intp]
Mix = Literal["mixup", "cutmix", "x+u"]
View = Literal["second", "strong"]  # in addition to the weak view of every image: another weak one, a strong one
DataKind = Literal["photo", "none"]  # photographs, or characters, which a mirror image may change
# Weak augmentation: photos are shifted and flipped, characters are not; or randomized views of either.
AugmentKind = Literal["photo", "none", "photo-views", "character-views"]
WebLabel = Literal["ignored", "retained", "refined"]  # how the keywords of a crawl are used
Setting = Literal["ssdg", "uda"]  # ssdg: the target is unseen; uda: the target is the unlabeled domain


class Pixels(Protocol):
    """Array of images (n, H, W, 3), in memory or in a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape (n, H, W, 3)."""
        ...

    def __getitem__(self, rows: Rows, /) -> NDArray[np.uint8]:
        """Return a copy of these images."""
        ...


@dataclass(frozen=True, eq=False)
class ImageTable:
    """Decoded uint8 images (H, W, 3) of one size, in a fixed order; usually rows of files.

    `arrays[source[i]][row[i]]` is image i; `digest[i]` is a 16-byte hash of its original content.
    """

    arrays: tuple[Pixels, ...]
    source: NDArray[np.int32]
    row: Rows
    digest: NDArray[np.uint8]
    resize: ResizeMode = "squash"  # how the images were brought to this size

    @classmethod
    def from_array(cls, array: NDArray[np.uint8]) -> ImageTable:
        """Build a table of all rows of an (n, H, W, 3) array; compute digests from the pixels."""
        return cls.from_pixels(array, content_digests(array))

    @classmethod
    def from_pixels(cls, pixels: Pixels, digest: NDArray[np.uint8]) -> ImageTable:
        """Build a table of all rows of stored pixels with known digests."""
        count = len(digest)
        return cls((pixels,), np.zeros(count, np.int32), np.arange(count), digest)

    def __len__(self) -> int:
        return len(self.row)

    @property
    def size(self) -> int:
        """Height and width of every image."""
        return int(self.arrays[0].shape[1])

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the contents in order, and of how they are resized; `squash` counts as it did before others."""
        mode = b"" if self.resize == "squash" else self.resize.encode()
        return hashlib.sha256(self.digest.tobytes() + mode).hexdigest()[:16]

    def take(self, rows: Rows | NDArray[np.bool_]) -> ImageTable:
        """Return the table of these rows without copying pixels."""
        return replace(self, source=self.source[rows], row=self.row[rows], digest=self.digest[rows])

    def __getitem__(self, rows: Rows) -> NDArray[np.uint8]:
        """Return a copy of these images: (len(rows), H, W, 3)."""
        if len(self.arrays) == 1:
            return self.arrays[0][self.row[rows]]
        source, row = self.source[rows], self.row[rows]
        out = np.empty((len(row), *self.arrays[0].shape[1:]), np.uint8)
        for index, array in enumerate(self.arrays):
            mask = source == index
            out[mask] = array[row[mask]]
        return out


def content_digests(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a 16-byte hash of each image's pixels and shape: (n, 16)."""
    head = str(array.shape[1:]).encode()
    hashes = [hashlib.blake2b(head + image.tobytes(), digest_size=16).digest() for image in array]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(len(array), 16)


def concat_tables(tables: Sequence[ImageTable]) -> ImageTable:
    """Concatenate tables."""
    offsets = np.cumsum([0, *(len(t.arrays) for t in tables)])
    return ImageTable(
        arrays=tuple(a for t in tables for a in t.arrays),
        source=np.concatenate([t.source + o for t, o in zip(tables, offsets, strict=False)]).astype(np.int32),
        row=np.concatenate([t.row for t in tables]),
        digest=np.concatenate([t.digest for t in tables]),
        resize=tables[0].resize,
    )


@dataclass(frozen=True, eq=False)
class UnlabeledSet:
    """Images of one or several domains, without labels."""

    images: ImageTable
    domain: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def fingerprint(self) -> str:
        """Hash of everything that training can see."""
        return digest_of(self.images.fingerprint, self.domain)

    def labeled_by(self, labels: PseudoLabels) -> LabeledSet:
        """Return the selected images with their pseudo-labels, none of them trusted."""
        rows = np.flatnonzero(labels.keep)
        return self._untrusted(rows, labels.y[rows])

    def labeled_as(self, y: NDArray[np.int64]) -> LabeledSet:
        """Return the images that have a class in `y` (-1 means none), none of them trusted."""
        rows = np.flatnonzero(y >= 0)
        return self._untrusted(rows, y[rows])

    def _untrusted(self, rows: Rows, y: NDArray[np.int64]) -> LabeledSet:
        return LabeledSet(self.images.take(rows), y, self.domain[rows], trusted=np.zeros(len(rows), np.bool_))


@dataclass(frozen=True, eq=False)
class LabeledSet:
    """Images with a class index each; `trusted` is False for pseudo-labels and web-labels."""

    images: ImageTable
    y: NDArray[np.int64]
    domain: NDArray[np.int64]
    trusted: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_domains(self) -> int:
        """Number of domains that the images come from."""
        return len(np.unique(self.domain))

    @property
    def fingerprint(self) -> str:
        """Hash of everything that training can see."""
        return digest_of(self.images.fingerprint, self.y, self.domain, self.trusted)


@dataclass(frozen=True, eq=False)
class MixedSet:
    """Intermediate domain: labeled images mixed with clean pseudo-labeled ones on the fly (Eq. mixup)."""

    base: LabeledSet
    clean: LabeledSet
    mix: Mix
    alpha: float  # of Beta(alpha, alpha)
    any_pair: bool = False  # as in the release: partners from the shuffled union, one coefficient per batch

    def __len__(self) -> int:
        union = self.mix == "x+u" or self.any_pair
        return len(self.base) + len(self.clean) if union else len(self.base)

    @property
    def fingerprint(self) -> str:
        """Hash of everything that training can see."""
        return digest_of(self.base.fingerprint, self.clean.fingerprint, self.mix, self.alpha, self.any_pair)


def concat_labeled(sets: Sequence[LabeledSet]) -> LabeledSet:
    """Concatenate labeled sets."""
    return LabeledSet(
        concat_tables([s.images for s in sets]),
        np.concatenate([s.y for s in sets]),
        np.concatenate([s.domain for s in sets]),
        np.concatenate([s.trusted for s in sets]),
    )


def evenly_sampled(labeled: LabeledSet, limit: int) -> LabeledSet:
    """Return at most `limit` images, spread evenly over the set sorted by class; all of them if there are no more."""
    if len(labeled) <= limit:
        return labeled
    order = np.argsort(labeled.y, kind="stable")
    rows = np.sort(order[np.linspace(0, len(order) - 1, limit).round().astype(np.intp)])
    return LabeledSet(labeled.images.take(rows), labeled.y[rows], labeled.domain[rows], labeled.trusted[rows])


def renumber_domains(labeled: LabeledSet) -> LabeledSet:
    """Return the set with domains 0, 1, ... in their order and without gaps, as methods of several domains expect."""
    return replace(labeled, domain=np.unique(labeled.domain, return_inverse=True)[1].reshape(-1))


def concat_unlabeled(sets: Sequence[UnlabeledSet]) -> UnlabeledSet:
    """Concatenate unlabeled sets."""
    return UnlabeledSet(concat_tables([s.images for s in sets]), np.concatenate([s.domain for s in sets]))


@dataclass(frozen=True, eq=False)
class Inputs:
    """Training data of a stage: with `batch` labeled images, a step gets as many pseudo-labeled ones and `ratio`
    times as many unlabeled ones.

    `union`: labeled and pseudo-labeled images come from one shuffled stream instead. `balanced`: a labeled batch has
    the same number of images from every domain. `views`: additional views of unlabeled images; without unlabeled
    images, a requested strong view goes to the labeled images. `whole`: an epoch is one step with the whole labeled
    set, for learners with a closed solution.
    """

    labeled: LabeledSet | MixedSet
    pseudo: LabeledSet | None = None
    unlabeled: UnlabeledSet | None = None
    union: bool = False
    balanced: bool = False
    views: tuple[View, ...] = ()
    ratio: int = 1
    whole: bool = False

    @property
    def size(self) -> int:
        """Height and width of the images."""
        base = self.labeled.base if isinstance(self.labeled, MixedSet) else self.labeled
        return base.images.size

    @property
    def fingerprint(self) -> str:
        """Hash of everything that the stage can see."""
        sets = [s.fingerprint for s in (self.labeled, self.pseudo, self.unlabeled) if s is not None]
        whole = ("whole",) if self.whole else ()
        return digest_of(*sets, self.union, self.balanced, self.views, self.ratio, *whole)


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """Pseudo-labels of a pool, in the order of the pool."""

    y: NDArray[np.int64]
    keep: NDArray[np.bool_]
    confidence: NDArray[np.float32]  # in y, mean over the networks
    votes: NDArray[np.int64]  # (networks, n): predicted class of each network
    probs: NDArray[np.float16] | None = None  # (n, K), mean over the networks; None in runs of version 0.1


@dataclass(frozen=True, eq=False)
class LabeledBatch:
    """Labeled images: x (B, 3, H, W) in [0, 1]; y (B,) classes or (B, K) soft labels; domain (B,); trusted (B,).

    `strong` is a strong view of the same images if the method requests it and has no unlabeled images.
    `host_domain` is `domain` on the CPU, for splitting a batch by domain without waiting for the device.
    """

    x: Tensor
    y: Tensor
    domain: Tensor
    trusted: Tensor
    strong: Tensor | None = None
    host_domain: Tensor | None = None


@dataclass(frozen=True, eq=False)
class UnlabeledBatch:
    """Unlabeled images: x (B, 3, H, W) in [0, 1]; domain (B,); other views of the same images if requested. No y."""

    x: Tensor
    domain: Tensor
    second: Tensor | None = None
    strong: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """Input of one training step; `pseudo` are pseudo-labeled images drawn in addition to the labeled ones."""

    labeled: LabeledBatch
    pseudo: LabeledBatch | None = None
    unlabeled: UnlabeledBatch | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that a method may see. Domain 0 is the labeled one; the domains of `unlabeled` follow from 1.

    `web` has the web-labels of the unlabeled domains that are crawls; it is empty if web-labels are ignored.
    """

    classes: tuple[str, ...]
    labeled: LabeledSet
    unlabeled: Mapping[str, UnlabeledSet] = field(default_factory=dict)
    setting: Setting = "ssdg"
    web: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    web_label: WebLabel = "ignored"

    @property
    def pool(self) -> UnlabeledSet:
        """All unlabeled domains as one set."""
        return concat_unlabeled(list(self.unlabeled.values()))


def digest_of(*parts: object) -> str:
    """Return a short hash of strings, numbers and arrays."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
        sha.update(b"\x1f")
    return sha.hexdigest()[:16]
