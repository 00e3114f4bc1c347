"""Where a learner's batches come from: images, or the stored maps of its frozen trunk."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from ..config import RunConfig
from ..data.augment import to_float
from ..data.hidden import Problem
from ..data.map_cache import MapFile, Maps, StoredViews
from ..data.sets import ImageTable, Pixels, Rows, content_digests
from ..data.streams import Pipeline
from ..data.views import PHOTO, RECIPES, UNMIRRORED, Recipe, randomized_view, view_seeds
from ..devices import onto
from ..errors import Stopped
from ..machine import Machine
from ..methods import find_method
from ..methods.api import Learner
from ..models.backbones import backbones_of
from ..models.frozen import trunk_digest, trunk_maps
from ..profiling import timed
from .events import Events

ENCODE_BATCH = 8  # on a CPU, larger batches leave its caches: 7.4 ms per image instead of 12 at 192 px
MAPS_VERSION = 1  # increased when the same trunk and views would store other numbers
LARGEST = 65504.0  # of float16
SHOW_SECONDS = 0.5  # between two updates of the display


@dataclass(frozen=True, eq=False)
class TrunkEncoder:
    """Computes the maps of images at the boundary of a frozen trunk."""

    backbone: Any
    size: int
    device: torch.device
    precision: str
    recipe: Recipe = PHOTO  # of randomized views

    @property
    def identity(self) -> str:
        """Hash of everything that decides the maps, but for the images and the view."""
        net = self.backbone
        facts = (MAPS_VERSION, net.name, trunk_digest(net), net.boundary, self.size, self.precision, self.device.type)
        return hashlib.sha256(" ".join(map(str, (*facts, torch.__version__))).encode()).hexdigest()[:32]

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (h, w, C) of an image's maps."""
        black = torch.zeros(1, self.size, self.size, 3, dtype=torch.uint8)
        _, height, width, channels = self._encode(to_float(onto(black, self.device))).shape
        return height, width, channels

    def __call__(self, pixels: Pixels, view: int, rows: Rows) -> Maps:
        """Return the maps of these images.

        All batches have one size, and views are made one by one: an image's maps have the same bits in any batch.
        """
        parts = []
        for start in range(0, len(rows), ENCODE_BATCH):
            part = rows[start : start + ENCODE_BATCH]
            images = pixels[np.resize(part, ENCODE_BATCH)]
            parts.append(self._encode(self._view(images, view))[: len(part)])
        return np.concatenate(parts)

    def _view(self, images: Any, view: int) -> Tensor:
        x = onto(torch.from_numpy(images), self.device)
        if view == 0:
            return to_float(x)
        seeds = view_seeds(content_digests(images), view)
        return randomized_view(x, view, seeds, self.recipe, chunk=1)

    def _encode(self, x: Tensor) -> Maps:
        is_bf16 = self.precision == "bf16"
        with torch.inference_mode(), torch.autocast(self.device.type, torch.bfloat16, enabled=is_bf16):
            maps = trunk_maps(self.backbone, x)
            return maps.clamp(-LARGEST, LARGEST).permute(0, 2, 3, 1).to(torch.float16).cpu().numpy()


@dataclass(frozen=True, eq=False)
class TrunkOptions:
    """How frozen trunks are computed and stored, and which of their maps a run will need."""

    folder: Path
    size: int
    num_views: int
    precision: str
    recipe: Recipe
    trained: Sequence[ImageTable] = ()  # images whose views are needed too
    scored: Sequence[ImageTable] = ()  # images of which only the plain ones are needed
    events: Events | None = None
    must_stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, eq=False)
class Pipelines:
    """The pipeline of every learner of a run.

    The first learner with a frozen trunk triggers the computation of all maps that the run will need and that no
    earlier run has stored; anything else, such as pictures for a report, is computed when it is read.
    """

    images: Pipeline
    options: TrunkOptions | None = None  # not needed if nothing is frozen
    stored: dict[str, StoredViews] = field(default_factory=dict)  # by identity of the trunk
    by_nets: WeakKeyDictionary[nn.Module, Pipeline] = field(default_factory=WeakKeyDictionary)

    def of(self, learner: Learner) -> Pipeline:
        """Return the pipeline for a learner's batches."""
        trunks = [net for net in backbones_of(learner.nets) if getattr(net, "boundary", None) is not None]
        if not trunks:
            return self.images
        if learner.nets not in self.by_nets:
            assert self.options is not None
            self.by_nets[learner.nets] = self.of_backbone(trunks[0], views=self.options.trained)
        return self.by_nets[learner.nets]

    def of_backbone(
        self, backbone: nn.Module, *, views: Sequence[ImageTable] = (), plain: Sequence[ImageTable] = ()
    ) -> Pipeline:
        """Return the pipeline of a frozen backbone's maps.

        Compute those that are missing: all views of the images in `views`, and the plain ones of those in `plain` and
        of all that the run is scored on.
        """
        stored, options = self.open_trunk(backbone), self.options
        assert options is not None
        with timed("trunk"):
            wanted = stored.files_of(views, options.num_views) + stored.files_of([*plain, *options.scored], 0)
            fill(wanted, str(backbone.boundary), options.num_views if views else 0, options)
        return replace(self.images, stored=stored)

    def open_trunk(self, backbone: nn.Module) -> StoredViews:
        """Return the stored maps of a frozen backbone; compute none yet."""
        options = self.options
        assert options is not None
        encoder = TrunkEncoder(backbone, options.size, self.images.device, options.precision, options.recipe)
        identity = encoder.identity
        if identity not in self.stored:
            files = MapFiles(options.folder, encoder, identity)
            self.stored[identity] = StoredViews(files.open, options.num_views, identity)
        return self.stored[identity]


def fill(wanted: Sequence[tuple[MapFile, Rows]], boundary: str, num_views: int, options: TrunkOptions) -> None:
    """Compute and store the missing maps; report them, but for a probe only if there are any, and the progress."""
    counter = Counter(sum(len(file.missing(rows)) for file, rows in wanted), options.events, options.must_stop)
    if options.events is not None and wanted and (num_views or counter.total or not options.num_views):
        facts = {"boundary": boundary, "views": num_views, "precision": options.precision}
        bytes_per_image = wanted[0][0].row_bytes * (1 + num_views)
        options.events.emit("trunk", **facts, bytes_per_image=bytes_per_image, missing=counter.total)
    for file, rows in wanted:
        file.fill(rows, ENCODE_BATCH, counter)


@dataclass
class Counter:
    """Counts stored maps, shows the progress and stops when asked to."""

    total: int
    events: Events | None
    must_stop: Callable[[], bool]
    done: int = 0
    reported_at: float = 0.0

    def __call__(self, num_stored: int) -> None:
        """Count maps that were just stored."""
        self.done += num_stored
        if self.must_stop():
            raise Stopped
        is_due = self.done == self.total or time.monotonic() - self.reported_at > SHOW_SECONDS
        if self.events is not None and is_due:
            self.reported_at = time.monotonic()
            self.events.emit("extract", done=self.done, total=self.total)


@dataclass(frozen=True, eq=False)
class MapFiles:
    """Opens the map files of one trunk, each once."""

    folder: Path
    encoder: TrunkEncoder
    identity: str
    opened: dict[tuple[int, int], tuple[Pixels, MapFile]] = field(
        default_factory=dict
    )  # by id of the pixels and view

    def open(self, pixels: Pixels, view: int) -> MapFile:
        """Return the file of these images and this view."""
        key = (id(pixels), view)
        if key not in self.opened:
            recipe = view_name(view, self.encoder.recipe)
            name = hashlib.sha256(f"{self.identity} {recipe} {pixels_key(pixels)}".encode()).hexdigest()[:24]
            compute = partial(self.encoder, pixels, view)
            count = int(pixels.shape[0])
            self.opened[key] = pixels, MapFile(self.folder / f"{name}.f16", count, self._shape, compute)
        return self.opened[key][1]

    @property
    def _shape(self) -> tuple[int, int, int]:
        known = next(iter(self.opened.values()), None)
        return known[1].shape[1:] if known else self.encoder.shape


def view_name(view: int, recipe: Recipe) -> str:
    """Return what tells stored views apart: their index and recipe."""
    if view == 0:
        return "plain"
    is_known = recipe in (PHOTO, UNMIRRORED)  # named before there were others
    return f"{view} {recipe.mirror}" if is_known else f"{view} {recipe}"


def pixels_key(pixels: Pixels) -> str:
    """Return a hash of all images of an array or a file."""
    key = getattr(pixels, "key", None)
    if key is not None:
        return str(key)
    return hashlib.sha256(content_digests(np.asarray(pixels)).tobytes()).hexdigest()[:24]


def tables_of(problem: Problem, config: RunConfig) -> tuple[Sequence[ImageTable], Sequence[ImageTable]]:
    """Return the images that a run trains on, whose views are needed too, and those it is only scored on."""
    task = problem.task
    trained = [task.labeled.images]
    if "unlabeled" in find_method(config.method).needs or task.web:
        trained += [pool.images for pool in task.unlabeled.values()]
    scored = [problem.validation.images] if problem.validation is not None else []
    targets = [target for target in (problem.target, *problem.others) if target is not None]
    return trained, scored + [target.images for target in targets if len(target.images)]


def image_pipeline(config: RunConfig, num_classes: int, machine: Machine) -> Pipeline:
    """Return how the images of a run become tensors."""
    is_rounded = config.inference == "bf16" and machine.precision == "fp32"  # else all passes have one precision
    inference: Literal["fp32", "bf16"] = "bf16" if is_rounded else "fp32"
    return Pipeline(config.augment, machine.device, num_classes, machine.rank, machine.world, inference=inference)


def open_pipelines(
    config: RunConfig,
    problem: Problem,
    machine: Machine,
    cache: Path,
    events: Events | None = None,
    must_stop: Callable[[], bool] = lambda: False,
) -> Pipelines:
    """Return the pipelines of a run."""
    trained, scored = tables_of(problem, config)
    precision = "bf16" if config.inference == "bf16" else "fp32"
    recipe = RECIPES[config.augment]
    options = TrunkOptions(
        cache / "maps", config.size, config.views, precision, recipe, trained, scored, events, must_stop
    )
    return Pipelines(image_pipeline(config, len(problem.task.classes), machine), options)
