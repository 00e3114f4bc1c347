"""Discover the domains of a folder or archive outside of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..config import best_size
from ..data.cache import load_images
from ..data.image_side import SMALL_SIDE, typical_side
from ..data.roles import check_images, read_unlabeled, unique_name
from ..data.sources.tree import Item
from ..data.streams import Pipeline
from ..errors import UserError
from .clusters import Clustering, find_clusters, membership
from .discover import SEED_NAME, domain_name, mix, style_features

SMALL_SIZE = 32  # px: of images that are taken for characters


@dataclass(frozen=True)
class StyleSettings:
    """What decides the domains, next to the images; the defaults are those of preset `best`."""

    number: int | None = None  # of domains; None: as many as are reproducible
    backbone: str = "efficientnet-lite0"
    weights: str | None = None  # None: imagenet, or none (statistics of the pixels) for small images
    size: int | None = None  # px; None: follows from the images
    seed: int = 0


@dataclass(frozen=True, eq=False)
class DiscoveredFolder:
    """The domain of every readable image of a folder, in the order of their paths."""

    items: tuple[Item, ...]
    domain: NDArray[np.int64]  # (n,) index into `names`
    confidence: NDArray[np.float64]  # (n,): the probability of the image's domain
    names: tuple[str, ...]  # of the domains, the largest first
    strengths: tuple[float, ...]  # of every split considered
    unreadable: tuple[tuple[str, str], ...]  # (path, reason)


@dataclass(frozen=True)
class MixedFolder:
    """The images of a folder or archive, before any is decoded, and how to look at them."""

    name: str
    items: tuple[Item, ...]
    skipped: tuple[tuple[str, str], ...]
    weights: str
    size: int


def open_folder(path: Path, settings: StyleSettings) -> MixedFolder:
    """List the images of a folder; choose their size and weights as preset `best` does."""
    domain = read_unlabeled(path, unique_name(path, ()))
    if not domain.items:
        raise UserError(f"'{path}' contains no images; choose a folder or a .zip archive with images")
    if settings.number is not None and settings.number > len(domain.items):
        raise UserError(
            f"--domains {settings.number} is more than the {len(domain.items):,} images of '{path}'; "
            "give fewer, or auto"
        )
    side = typical_side(domain.items) or SMALL_SIDE
    is_small = side <= SMALL_SIDE
    weights = settings.weights or ("none" if is_small else "imagenet")
    size = settings.size or (SMALL_SIZE if is_small else best_size(side))
    return MixedFolder(domain.name, domain.items, domain.skipped, weights, size)


def discover_folder(
    folder: MixedFolder, settings: StyleSettings, cache: Path, device: torch.device
) -> DiscoveredFolder:
    """Decode the images and split them by style, as a run with `discover_domains` does."""
    loaded = load_images(folder.items, folder.size, cache, title=folder.name)
    unreadable = (*loaded.unreadable, *folder.skipped)
    check_images(folder.name, len(loaded.images), unreadable)
    mixture = mix(folder.name, {folder.name: loaded.images})
    pipeline = Pipeline("none", device, 0)
    number = None if settings.number is None else min(settings.number, len(mixture.images))
    features = style_features(mixture.images, settings.backbone, folder.weights, pipeline)
    clustering = find_clusters(features, number, settings.seed, SEED_NAME)
    item = loaded.item[mixture.row]
    order = np.argsort(item)
    return DiscoveredFolder(
        tuple(folder.items[index] for index in item[order]),
        clustering.of.numpy()[order],
        membership(features, clustering.of).numpy()[order],
        domain_names(folder.name, clustering),
        clustering.strengths,
        unreadable,
    )


def domain_names(mixture: str, clustering: Clustering) -> tuple[str, ...]:
    """Return the names of all domains of a clustering."""
    count = int(clustering.of.max()) + 1
    return tuple(domain_name(mixture, number, count) for number in range(count))


def spread_samples(confidence: Sequence[float] | NDArray[np.float64], most: int) -> NDArray[np.intp]:
    """Return the rows of up to `most` images from the most to the least confident, evenly spread."""
    order = np.argsort(-np.asarray(confidence), kind="stable")
    chosen: NDArray[np.intp] = np.linspace(0, len(order) - 1, min(most, len(order))).round().astype(np.intp)
    rows: NDArray[np.intp] = order[np.unique(chosen)]
    return rows
