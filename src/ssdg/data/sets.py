"""The currency of the package: image tables, sets, pseudo-labels, batches, tasks.

Nothing here holds a hidden label. An unlabeled set is images and nothing else: no path (a path may name the
class), and an order by content, so that the folder an image came from cannot be read off its position.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # tables of images are read where torch is not installed, too
    from torch import Tensor

Rows = NDArray[np.intp]
Mix = Literal["mixup", "cutmix", "x+u"]
View = Literal["second", "strong"]  # beside the weak view that every image has: another weak one, a strong one
WebLabel = Literal["ignored", "retained", "refined"]  # what becomes of the keywords of a crawl
Setting = Literal["ssdg", "uda"]  # the target is never seen; the target is the unlabeled domain


class Pixels(Protocol):
    """Images (n, H, W, 3), in memory or in a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, H, W, 3)."""
        ...

    def __getitem__(self, rows: Rows, /) -> NDArray[np.uint8]:
        """Copy these images out."""
        ...


@dataclass(frozen=True, eq=False)
class ImageTable:
    """Decoded uint8 images (H, W, 3) of one size, in a fixed order; often rows of files.

    `arrays[source[i]][row[i]]` is image i; `digest[i]` is a 16-byte hash of its original content.
    """

    arrays: tuple[Pixels, ...]
    source: NDArray[np.int32]
    row: Rows
    digest: NDArray[np.uint8]

    @classmethod
    def of(cls, array: NDArray[np.uint8]) -> ImageTable:
        """All rows of one (n, H, W, 3) array; digests are computed from the pixels."""
        return cls.stored(array, content_digests(array))

    @classmethod
    def stored(cls, pixels: Pixels, digest: NDArray[np.uint8]) -> ImageTable:
        """All rows of stored pixels, whose digests are known."""
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
        """A hash of the contents in their order."""
        return hashlib.sha256(self.digest.tobytes()).hexdigest()[:16]

    def take(self, rows: Rows | NDArray[np.bool_]) -> ImageTable:
        """The table of these rows; no pixel is copied."""
        return replace(self, source=self.source[rows], row=self.row[rows], digest=self.digest[rows])

    def __getitem__(self, rows: Rows) -> NDArray[np.uint8]:
        """Copy these images out: (len(rows), H, W, 3)."""
        if len(self.arrays) == 1:
            return self.arrays[0][self.row[rows]]
        source, row = self.source[rows], self.row[rows]
        out = np.empty((len(row), *self.arrays[0].shape[1:]), np.uint8)
        for number, array in enumerate(self.arrays):
            here = source == number
            out[here] = array[row[here]]
        return out


def content_digests(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A 16-byte hash of each image's pixels and shape: (n, 16)."""
    head = str(array.shape[1:]).encode()
    hashes = [hashlib.blake2b(head + image.tobytes(), digest_size=16).digest() for image in array]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(len(array), 16)


def concat_tables(tables: Sequence[ImageTable]) -> ImageTable:
    """The tables one after another."""
    offsets = np.cumsum([0, *(len(t.arrays) for t in tables)])
    return ImageTable(
        arrays=tuple(a for t in tables for a in t.arrays),
        source=np.concatenate([t.source + o for t, o in zip(tables, offsets, strict=False)]).astype(np.int32),
        row=np.concatenate([t.row for t in tables]),
        digest=np.concatenate([t.digest for t in tables]),
    )


@dataclass(frozen=True, eq=False)
class UnlabeledSet:
    """Images of one or several domains. There is no y."""

    images: ImageTable
    domain: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def fingerprint(self) -> str:
        """A hash of what training can see."""
        return digest_of(self.images.fingerprint, self.domain)

    def labeled_by(self, labels: PseudoLabels) -> LabeledSet:
        """The kept images with their pseudo-labels, none of them trusted."""
        rows = np.flatnonzero(labels.keep)
        return self._guessed(rows, labels.y[rows])

    def labeled_as(self, y: NDArray[np.int64]) -> LabeledSet:
        """The images that have a class in `y` (those of -1 have none), none of them trusted."""
        rows = np.flatnonzero(y >= 0)
        return self._guessed(rows, y[rows])

    def _guessed(self, rows: Rows, y: NDArray[np.int64]) -> LabeledSet:
        return LabeledSet(self.images.take(rows), y, self.domain[rows], trusted=np.zeros(len(rows), np.bool_))


@dataclass(frozen=True, eq=False)
class LabeledSet:
    """Images with a class index each; `trusted` is False where the label is a guess."""

    images: ImageTable
    y: NDArray[np.int64]
    domain: NDArray[np.int64]
    trusted: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_domains(self) -> int:
        """How many domains its images come from."""
        return len(np.unique(self.domain))

    @property
    def fingerprint(self) -> str:
        """A hash of what training can see."""
        return digest_of(self.images.fingerprint, self.y, self.domain, self.trusted)


@dataclass(frozen=True, eq=False)
class MixedSet:
    """The intermediate domain: labeled images mixed with clean pseudo-labeled ones as they are drawn (Eq. mixup)."""

    base: LabeledSet
    clean: LabeledSet
    mix: Mix
    alpha: float  # of Beta(alpha, alpha)
    any_pair: bool = False  # the release: partners from the shuffled union, one coefficient per batch

    def __len__(self) -> int:
        union = self.mix == "x+u" or self.any_pair
        return len(self.base) + len(self.clean) if union else len(self.base)

    @property
    def fingerprint(self) -> str:
        """A hash of what training can see."""
        return digest_of(self.base.fingerprint, self.clean.fingerprint, self.mix, self.alpha, self.any_pair)


def concat_labeled(sets: Sequence[LabeledSet]) -> LabeledSet:
    """The sets one after another."""
    return LabeledSet(
        concat_tables([s.images for s in sets]),
        np.concatenate([s.y for s in sets]),
        np.concatenate([s.domain for s in sets]),
        np.concatenate([s.trusted for s in sets]),
    )


def concat_unlabeled(sets: Sequence[UnlabeledSet]) -> UnlabeledSet:
    """The sets one after another."""
    return UnlabeledSet(concat_tables([s.images for s in sets]), np.concatenate([s.domain for s in sets]))


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a stage trains on: for every `batch` labeled images a step gets as many pseudo-labeled ones and `ratio`
    times as many unlabeled ones.

    `union`: labeled and pseudo-labeled images in one shuffled stream instead. `balanced`: a labeled batch holds as
    many images of every domain. `views`: what unlabeled images have beside their weak view; where there are none,
    the labeled images have the strong view if it is asked for.
    """

    labeled: LabeledSet | MixedSet
    pseudo: LabeledSet | None = None
    unlabeled: UnlabeledSet | None = None
    union: bool = False
    balanced: bool = False
    views: tuple[View, ...] = ()
    ratio: int = 1

    @property
    def fingerprint(self) -> str:
        """A hash of all that the stage can see."""
        sets = [s.fingerprint for s in (self.labeled, self.pseudo, self.unlabeled) if s is not None]
        return digest_of(*sets, self.union, self.balanced, self.views, self.ratio)


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """What a learner believes of a pool, in the pool's order."""

    y: NDArray[np.int64]
    keep: NDArray[np.bool_]
    confidence: NDArray[np.float32]  # of y, mean over the networks
    votes: NDArray[np.int64]  # (networks, n): each network's own class


@dataclass(frozen=True, eq=False)
class LabeledBatch:
    """x (B, 3, H, W) in [0, 1]; y (B,) class indices or (B, K) soft labels; domain (B,); trusted (B,).

    `strong` is a strong view of the same images if the method asked and there are no unlabeled ones to have it.
    `host_domain` is `domain` on the CPU: who parts a batch by it need not wait for the device.
    """

    x: Tensor
    y: Tensor
    domain: Tensor
    trusted: Tensor
    strong: Tensor | None = None
    host_domain: Tensor | None = None


@dataclass(frozen=True, eq=False)
class UnlabeledBatch:
    """x (B, 3, H, W) in [0, 1]; domain (B,); other views of the same images if the method asked. There is no y."""

    x: Tensor
    domain: Tensor
    second: Tensor | None = None
    strong: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """What one training step gets; `pseudo` are pseudo-labeled images drawn beside the labeled ones."""

    labeled: LabeledBatch
    pseudo: LabeledBatch | None = None
    unlabeled: UnlabeledBatch | None = None


@dataclass(frozen=True, eq=False)
class Task:
    """All that a method may see. Domain 0 is the labeled one; `unlabeled` follows in order from 1.

    `web` has the web-labels of those unlabeled domains that are crawls; where they are ignored it is empty.
    """

    classes: tuple[str, ...]
    labeled: LabeledSet
    unlabeled: Mapping[str, UnlabeledSet] = field(default_factory=dict)
    setting: Setting = "ssdg"
    web: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    web_label: WebLabel = "ignored"

    @property
    def pool(self) -> UnlabeledSet:
        """All unlabeled domains as one."""
        return concat_unlabeled(list(self.unlabeled.values()))


def digest_of(*parts: object) -> str:
    """A short hash of strings, numbers and arrays."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
        sha.update(b"\x1f")
    return sha.hexdigest()[:16]
