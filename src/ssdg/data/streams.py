"""Seeded streams of batches. A batch is a function of (seed, step), so resuming means drawing the next step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..devices import onto
from ..seeds import derive_seed, numpy_rng, torch_rng
from .augment import second_view, strong_view, to_float, weak_view
from .map_cache import StoredViews
from .sets import (
    AugmentKind,
    Batch,
    ImageTable,
    LabeledBatch,
    LabeledSet,
    MixedSet,
    Rows,
    UnlabeledBatch,
    UnlabeledSet,
    View,
    concat_labeled,
)
from .views import RANDOMIZED, RECIPES, random_views, randomized_view, view_seeds

MAX_VIEWS = 64  # of an image
EVAL_BATCH = 128  # larger batches are no faster on a CPU and need more memory than training
T = TypeVar("T", bound=np.generic)


@dataclass(frozen=True)
class Pipeline:
    """Conversion of rows to tensors: augmentation, device, and this process's share of every batch."""

    kind: AugmentKind
    device: torch.device
    num_classes: int
    rank: int = 0
    world: int = 1
    stored: StoredViews | None = None  # maps of a frozen trunk, which replace images
    inference: Literal["fp32", "bf16"] = "fp32"  # bf16: evaluate in it where it preserves the answers

    @property
    def num_views(self) -> int:
        """Randomized views of an image that `plain` can return: those stored, any number, or none."""
        if self.stored is not None:
            return self.stored.num_views
        return MAX_VIEWS if self.kind in RANDOMIZED else 0

    def share(self, rows: NDArray[T]) -> NDArray[T]:
        """Return this process's part of a batch that all processes draw identically."""
        return rows[self.rank :: self.world]

    def views(
        self, table: ImageTable, rows: Rows, names: tuple[View, ...], seed: int, step: int
    ) -> dict[str, Tensor]:
        """Return the weak view of these images and those named, by name, in [0, 1] and channels last.

        With a frozen trunk, they are maps of stored views: drawn from all of them, or, next to a strong view, the
        plain image. Randomized views are new in every step.
        """
        if self.stored is not None:
            drawn = draw_views(len(rows), self.stored.num_views, names, numpy_rng(seed, step, self.rank, "view"))
            return {name: self.maps(table, rows, views) for name, views in drawn.items()}
        images = self.upload(table, rows)
        if not len(images):
            return dict.fromkeys(("weak", *names), images.permute(0, 3, 1, 2).float())
        if self.kind in RANDOMIZED:
            return self.randomized(images, names, seed, step)
        views = {"weak": weak_view(images, self.kind, torch_rng(seed, step, self.rank))}
        if "second" in names:
            views["second"] = second_view(images, self.kind, torch_rng(seed, step, self.rank, "second"))
        if "strong" in names:
            views["strong"] = strong_view(views["weak"], torch_rng(seed, step, self.rank, "strong"))
        return views

    def randomized(self, images: Tensor, names: tuple[View, ...], seed: int, step: int) -> dict[str, Tensor]:
        """Return new randomized views; next to a strong view, which is one, the weak view is the plain image."""
        recipe, views = RECIPES[self.kind], dict[str, Tensor]()
        if "strong" in names:
            strong = random_views(images, recipe, torch_rng(seed, step, self.rank, "strong"), rate=1)
            views |= {"weak": to_float(images), "strong": strong}
        else:
            views["weak"] = random_views(images, recipe, torch_rng(seed, step, self.rank))
        if "second" in names:
            views["second"] = random_views(images, recipe, torch_rng(seed, step, self.rank, "second"))
        return views

    def plain(self, table: ImageTable, rows: Rows, view: int = 0) -> Tensor:
        """Return these images without augmentation, or their randomized view of this index, always the same.

        With a frozen trunk, return the maps of one of the stored views.
        """
        if self.stored is not None:
            return self.maps(table, rows, np.full(len(rows), view))
        images = self.upload(table, rows)
        if view == 0:
            return to_float(images)
        return randomized_view(images, view, view_seeds(table.digest[rows], view), RECIPES[self.kind])

    def maps(self, table: ImageTable, rows: Rows, views: Rows) -> Tensor:
        """Return stored maps (B, C, h, w) of these images, one view each, in float32 and channels last."""
        assert self.stored is not None
        maps = torch.from_numpy(self.stored.read(table, rows, views))
        return onto(maps, self.device).float().permute(0, 3, 1, 2)

    def upload(self, table: ImageTable, rows: Rows) -> Tensor:
        """Copy uint8 images (B, H, W, 3) to the device."""
        return onto(torch.from_numpy(table[rows]), self.device)

    def to_device(self, array: NDArray[np.generic]) -> Tensor:
        """Copy a small array, such as labels, to the device."""
        return onto(torch.from_numpy(array), self.device)


def draw_views(count: int, num_views: int, names: tuple[View, ...], rng: np.random.Generator) -> dict[str, Rows]:
    """Draw a stored view for every image; 0 is the plain one. A second view differs from the first if possible."""
    if "strong" in names:
        randomized = 1 + rng.integers(num_views, size=count) if num_views else np.zeros(count, np.intp)
        return {"weak": np.zeros(count, np.intp), "strong": randomized}
    views = {"weak": rng.integers(num_views + 1, size=count)}
    if "second" in names:
        offset = 1 + rng.integers(num_views, size=count) if num_views else np.zeros(count, np.intp)
        views["second"] = (views["weak"] + offset) % (num_views + 1)
    return views


class ShuffledIndices:
    """Endless sequence of shuffled passes over 0..n-1, with random access."""

    def __init__(self, n: int, seed: int) -> None:
        if n < 1:
            raise ValueError("a stream needs at least one image")
        self.n, self.seed = n, seed

    def take(self, start: int, count: int) -> Rows:
        """Return elements start .. start+count-1 of the sequence."""
        end, parts = start + count, []
        for index in range(start // self.n, (end - 1) // self.n + 1):
            offset = index * self.n
            parts.append(_shuffle(self.n, self.seed, index)[max(start - offset, 0) : end - offset])
        return np.concatenate(parts)


@lru_cache(maxsize=16)
def _shuffle(n: int, seed: int, index: int) -> Rows:
    return numpy_rng(seed, index).permutation(n)


@dataclass(frozen=True)
class LabeledStream:
    """Batches of a labeled set, with a strong view if requested."""

    data: LabeledSet
    batch: int
    seed: int
    pipeline: Pipeline
    views: tuple[View, ...] = ()

    def draw(self, step: int) -> LabeledBatch:
        """Return the batch of this step."""
        rows = ShuffledIndices(len(self.data), self.seed).take(step * self.batch, self.batch)
        return self.rows(self.pipeline.share(rows), step)

    def rows(self, rows: Rows, step: int) -> LabeledBatch:
        """Return these rows as a batch."""
        p, domain = self.pipeline, self.data.domain[rows]
        names: tuple[View, ...] = ("strong",) if "strong" in self.views else ()
        views = p.views(self.data.images, rows, names, self.seed, step)
        return LabeledBatch(
            views["weak"],
            p.to_device(self.data.y[rows]),
            p.to_device(domain),
            p.to_device(self.data.trusted[rows]),
            views.get("strong"),
            torch.from_numpy(domain),
        )


@dataclass(frozen=True)
class BalancedStream(LabeledStream):
    """Batches of a labeled set with equally many images of every domain; the first domains get the remainder."""

    def draw(self, step: int) -> LabeledBatch:
        """Return the batch of this step, ordered by domain."""
        parts = []
        for index, rows in enumerate(self._domains):
            count = len(range(index, self.batch, len(self._domains)))
            if count:
                order = ShuffledIndices(len(rows), derive_seed(self.seed, "domain", index))
                parts.append(rows[order.take(step * count, count)])
        return self.rows(self.pipeline.share(np.concatenate(parts)), step)

    @cached_property
    def _domains(self) -> list[Rows]:
        return [np.flatnonzero(self.data.domain == d) for d in np.unique(self.data.domain)]


@dataclass(frozen=True)
class UnionStream:
    """One shuffled stream of labeled and pseudo-labeled images, split into these two parts."""

    data: LabeledSet
    batch: int
    seed: int
    pipeline: Pipeline

    def draw(self, step: int) -> tuple[LabeledBatch, LabeledBatch]:
        """Return the (trusted, pseudo-labeled) images of this step's batch; either may be empty."""
        # Divide among processes before the split, so that no process is left without an image.
        rows = self.pipeline.share(ShuffledIndices(len(self.data), self.seed).take(step * self.batch, self.batch))
        trusted = self.data.trusted[rows]
        labeled = LabeledStream(self.data, self.batch, self.seed, self.pipeline)
        pseudo = replace(labeled, seed=derive_seed(self.seed, "pseudo"))
        return labeled.rows(rows[trusted], step), pseudo.rows(rows[~trusted], step)


@dataclass(frozen=True)
class UnlabeledStream:
    """Batches of an unlabeled set, with further views if requested."""

    data: UnlabeledSet
    batch: int
    seed: int
    pipeline: Pipeline
    views: tuple[View, ...] = ()

    def draw(self, step: int) -> UnlabeledBatch:
        """Return the batch of this step."""
        p = self.pipeline
        rows = p.share(ShuffledIndices(len(self.data), self.seed).take(step * self.batch, self.batch))
        views = p.views(self.data.images, rows, self.views, self.seed, step)
        domain = p.to_device(self.data.domain[rows])
        return UnlabeledBatch(views["weak"], domain, views.get("second"), views.get("strong"))


@dataclass(frozen=True)
class MixedStream:
    """Batches of the intermediate domain (Eq. mixup): a new partner and coefficient for every image drawn."""

    data: MixedSet
    batch: int
    seed: int
    pipeline: Pipeline

    def draw(self, step: int) -> LabeledBatch:
        """Return the batch of this step, with soft labels unless the sets are only joined (X+U)."""
        a, b = self._sides
        if self.data.mix == "x+u":
            return a.draw(step)
        alpha = self._coefficients(step)
        return mix_batches(
            a.draw(step), b.draw(step), alpha, self.data.mix, self.pipeline.num_classes, self._boxes(step)
        )

    @cached_property
    def _sides(self) -> tuple[LabeledStream, LabeledStream]:
        first, second = self.data.base, self.data.clean
        if self.data.mix == "x+u" or self.data.any_pair:
            first = second = concat_labeled([self.data.base, self.data.clean])
        partner = derive_seed(self.seed, "partner")
        return (
            LabeledStream(first, self.batch, self.seed, self.pipeline),
            LabeledStream(second, self.batch, partner, self.pipeline),
        )

    def _coefficients(self, step: int) -> NDArray[np.float32]:
        count = 1 if self.data.any_pair else self.batch
        alpha = numpy_rng(self.seed, step, "alpha").beta(self.data.alpha, self.data.alpha, count)
        return self.pipeline.share(np.broadcast_to(alpha, self.batch)).astype(np.float32)

    def _boxes(self, step: int) -> NDArray[np.float32]:
        centers = numpy_rng(self.seed, step, "box").random((self.batch, 2))
        return self.pipeline.share(centers).astype(np.float32)


def mix_batches(
    a: LabeledBatch,
    b: LabeledBatch,
    alpha: NDArray[np.float32],
    mix: str,
    num_classes: int,
    centers: NDArray[np.float32],
) -> LabeledBatch:
    """Return x̂ = α x + (1 − α) u, ŷ = E(α) y + (1 − E(α)) q, with a constant α (MixUp) or a binary map (CutMix)."""
    constant = torch.from_numpy(alpha)[:, None, None, None]
    weight = onto(box_maps(alpha, centers, *a.x.shape[-2:]) if mix == "cutmix" else constant, a.x.device)
    mean = weight.mean((1, 2, 3))[:, None]
    x = weight * a.x + (1 - weight) * b.x
    y = mean * F.one_hot(a.y, num_classes) + (1 - mean) * F.one_hot(b.y, num_classes)
    return LabeledBatch(
        x.contiguous(memory_format=torch.channels_last), y, a.domain, a.trusted & b.trusted, host_domain=a.host_domain
    )


def box_maps(alpha: NDArray[np.float32], centers: NDArray[np.float32], height: int, width: int) -> Tensor:
    """Return CutMix weight maps (B, 1, H, W): ones with a box of zeros, of area 1 − α before clipping."""
    half = torch.from_numpy(np.sqrt(1 - alpha) / 2)[:, None]
    middle = torch.from_numpy(centers)
    inside = []
    for length, center in ((height, middle[:, :1]), (width, middle[:, 1:])):
        position = (torch.arange(length) + 0.5) / length
        inside.append((position - center).abs() < half)
    return 1.0 - (inside[0][:, :, None] & inside[1][:, None, :]).float()[:, None]


@dataclass(frozen=True)
class WholeStream:
    """The whole labeled set in every step, with all stored views of its images, view by view."""

    data: LabeledSet
    pipeline: Pipeline

    def draw(self, step: int) -> LabeledBatch:
        """Return all images, not shuffled; every process gets all of them."""
        p, data, rows = self.pipeline, self.data, np.arange(len(self.data))
        num = 1 + (p.stored.num_views if p.stored is not None else 0)
        x = torch.cat([p.plain(data.images, rows, view) for view in range(num)])
        y, domain, trusted = (p.to_device(np.tile(a, num)) for a in (data.y, data.domain, data.trusted))
        return LabeledBatch(x, y, domain, trusted, host_domain=torch.from_numpy(np.tile(data.domain, num)))


@dataclass(frozen=True)
class BatchStream:
    """All streams that a training step draws from."""

    labeled: LabeledStream | MixedStream | UnionStream | WholeStream
    pseudo: LabeledStream | None = None
    unlabeled: UnlabeledStream | None = None

    def draw(self, step: int) -> Batch:
        """Return the batch of this step."""
        if isinstance(self.labeled, UnionStream):
            labeled, pseudo = self.labeled.draw(step)
            return Batch(labeled, pseudo)
        return Batch(
            self.labeled.draw(step),
            self.pseudo.draw(step) if self.pseudo else None,
            self.unlabeled.draw(step) if self.unlabeled else None,
        )


def evaluation_batches(table: ImageTable, batch: int, pipeline: Pipeline, view: int = 0) -> Iterator[Tensor]:
    """Yield every image exactly once, in order, without augmentation; `view` selects a frozen trunk's stored view."""
    for start in range(0, len(table), batch):
        yield pipeline.plain(table, np.arange(start, min(start + batch, len(table))), view)
