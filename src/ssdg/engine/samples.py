"""Samples for the report: thumbnails of some images, and their features after every stage.

Hidden truth is stored next to the thumbnails, for the report; nothing that is written here is read in training.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from ..data.hidden import UNKNOWN, Problem
from ..data.sets import ImageTable, LabeledBatch, MixedSet, Rows
from ..data.streams import EVAL_BATCH, MixedStream, Pipeline, evaluation_batches
from ..files import atomic_path, write_bytes, write_text
from ..methods.api import Learner, StageRequest
from ..models.backbones import backbones_of
from ..schema import SAMPLES_FORMAT, Index, SampledDomain, StageMeta, stage_name, to_json
from ..seeds import derive_seed, numpy_rng
from .pipelines import Pipelines

TILE, COLUMNS, QUALITY = 48, 20, 70  # side of a thumbnail in pixels, thumbnails per row, quality of WebP
MAX_TILES = 400  # thumbnails per domain
MAX_POINTS, MAX_FORWARD_PASSES = 200, 600  # images with features, per domain and per stage
MAX_FEATURES = 64  # numbers stored per image
LARGEST = 6e4  # float16 ends slightly above
INTERMEDIATE = "(intermediate)"
Classes = NDArray[np.int64]
Features = NDArray[np.float32]  # (images, features)


@dataclass(frozen=True, eq=False)
class FinishedStage:
    """A stage at its end: the learner has the weights of that moment until the next stage starts."""

    request: StageRequest
    seed: int  # of the stage's batches
    meta: StageMeta


def without_augmentation(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline that leaves images unchanged, for the whole batch: mixed images must not look augmented."""
    stored = replace(pipeline.stored, num_views=0) if pipeline.stored is not None else None
    return replace(pipeline, kind="none", rank=0, world=1, stored=stored)


def pooled_features(learner: Learner, batches: Iterable[Tensor]) -> Features:
    """Return the features of the learner's first backbone, in float32 on the CPU."""
    backbone = backbones_of(learner.nets)[0]
    with evaluation_mode(learner.nets), torch.inference_mode():
        return np.concatenate([backbone(x).float().cpu().numpy() for x in batches])


@contextmanager
def evaluation_mode(nets: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode; restore the mode of every module afterwards."""
    modes = [(module, module.training) for module in nets.modules()]
    nets.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def first_mixed(stage: FinishedStage, mixed: MixedSet, num: int, pipeline: Pipeline) -> Iterator[LabeledBatch]:
    """Yield the first images of the intermediate domain in the order the stage drew them, at most one pass."""
    batch, remaining = stage.request.settings.batch, min(num, len(mixed))
    stream = MixedStream(mixed, batch, derive_seed(stage.seed, "labeled"), pipeline)
    for step in range(-(-remaining // batch)):
        drawn, part = stream.draw(step), slice(0, remaining - step * batch)
        yield LabeledBatch(drawn.x[part], drawn.y[part], drawn.domain[part], drawn.trusted[part])


@dataclass(frozen=True, eq=False)
class DomainSamples:
    """A domain of the run with everything known about it."""

    role: Literal["labeled", "unlabeled", "target"]
    images: ImageTable
    paths: Sequence[str]
    truth: Classes | None = None
    web: Classes | None = None

    def describe(self, rows: Rows, sprite: str) -> SampledDomain:
        """Return the entry of `index.json` for these rows; an entirely unknown truth is None."""
        is_known = self.truth is not None and bool((self.truth != UNKNOWN).any())
        return SampledDomain(
            role=self.role,
            images=len(self.images),
            rows=rows.tolist(),
            paths=[self.paths[row] for row in rows] if self.paths else [""] * len(rows),
            truth=self.truth[rows].tolist() if self.truth is not None and is_known else None,
            web=self.web[rows].tolist() if self.web is not None else None,
            sprite=sprite,
        )


@dataclass(frozen=True, eq=False)
class Points:
    """Features of images of one domain, their rows, and labels where rows do not identify images."""

    features: Features
    rows: Rows
    y: Classes | None = None


@dataclass(frozen=True, eq=False)
class Samples:
    """The folder `samples` of a run. Files that an earlier process has written are not changed."""

    folder: Path
    problem: Problem
    pipelines: Pipelines

    def write_index(self) -> None:
        """Write thumbnails of every domain, and last the file that describes them."""
        path = self.folder / "index.json"
        if path.exists():
            return
        domains = {}
        for number, (name, domain) in enumerate(sampled_domains(self.problem).items()):
            rows, sprite = sampled_rows(domain.images, MAX_TILES), f"{number}.webp"
            write_bytes(self.folder / sprite, sprite_of(domain.images[rows]))
            domains[name] = domain.describe(rows, sprite)
        classes = list(self.problem.task.classes)
        index = Index(format=SAMPLES_FORMAT, tile=TILE, columns=COLUMNS, classes=classes, domains=domains)
        write_text(path, json.dumps(to_json(index)) + "\n")

    def save_features(self, stage: FinishedStage) -> None:
        """Save the features of sampled images if the stage saw several domains or is the product."""
        path = self.folder / f"features-{stage_name(stage.request.key, stage.request.round)}.npz"
        names = domains_of(stage, self.problem)
        if path.exists() or len(names) < 2 or not backbones_of(stage.request.learner.nets):
            return
        mixed = intermediate_of(stage)
        limit = min(MAX_POINTS, MAX_FORWARD_PASSES // (len(names) + (mixed is not None)))
        groups = {name: self._points(stage, name, limit) for name in names}
        if mixed is not None:
            groups[INTERMEDIATE] = self._mixed_points(stage, mixed, limit)
        write_features(path, groups)

    def _points(self, stage: FinishedStage, name: str, limit: int) -> Points:
        table = sampled_domains(self.problem)[name].images
        rows = sampled_rows(table, limit)
        learner = stage.request.learner
        batches = evaluation_batches(table.take(rows), EVAL_BATCH, without_augmentation(self.pipelines.of(learner)))
        return Points(pooled_features(learner, batches), rows)

    def _mixed_points(self, stage: FinishedStage, mixed: MixedSet, limit: int) -> Points:
        learner = stage.request.learner
        drawn = list(first_mixed(stage, mixed, limit, without_augmentation(self.pipelines.of(learner))))
        features = pooled_features(learner, (batch.x for batch in drawn))
        y = [(batch.y if batch.y.ndim == 1 else batch.y.argmax(1)).cpu().numpy() for batch in drawn]
        return Points(features, np.full(len(features), -1), np.concatenate(y))


def sampled_domains(problem: Problem) -> dict[str, DomainSamples]:
    """Return all domains with images: labeled, unlabeled, target.

    In domain adaptation the target is the unlabeled domain, image by image, and appears as that.
    """
    task, target, name = problem.task, problem.target, problem.domains[0]
    domains = {name: DomainSamples("labeled", task.labeled.images, problem.paths.get(name, ()), task.labeled.y)}
    for name, pool in task.unlabeled.items():
        truth, web = problem.truth.get(name), problem.web_labels.get(name)
        domains[name] = DomainSamples("unlabeled", pool.images, problem.paths.get(name, ()), truth, web)
    if target is not None and target.name not in domains:
        domains[target.name] = DomainSamples("target", target.images, target.paths, target.y)
    return {name: domain for name, domain in domains.items() if len(domain.images)}


def domains_of(stage: FinishedStage, problem: Problem) -> list[str]:
    """Return the domains that a picture of the stage shows: all for the product, else those it trained on."""
    names = list(sampled_domains(problem))
    if stage.request.product:
        return names
    seen = [s.domain for s in (stage.request.inputs.unlabeled, stage.request.inputs.pseudo) if s is not None]
    numbers = {0, *(int(number) for domain in seen for number in np.unique(domain))}
    return [name for name in names if name in {problem.domains[number] for number in numbers}]


def intermediate_of(stage: FinishedStage) -> MixedSet | None:
    """Return the intermediate domain that the stage trained on, unless it has labeled images only."""
    mixed = stage.request.inputs.labeled
    return mixed if isinstance(mixed, MixedSet) and len(mixed.clean) else None


def sampled_rows(table: ImageTable, num: int) -> Rows:
    """Return up to `num` rows in order, seeded by the images' fingerprint; small samples are part of larger ones."""
    return np.sort(numpy_rng("samples", table.fingerprint).permutation(len(table))[:num])


def sprite_of(images: NDArray[np.uint8]) -> bytes:
    """Return a WebP of all images (n, H, W, 3) as thumbnails, row by row."""
    sheet = Image.new("RGB", (COLUMNS * TILE, -(-len(images) // COLUMNS) * TILE))
    for number, pixels in enumerate(images):
        line, column = divmod(number, COLUMNS)
        tile = Image.fromarray(pixels).resize((TILE, TILE), Image.Resampling.BICUBIC)
        sheet.paste(tile, (column * TILE, line * TILE))
    out = BytesIO()
    sheet.save(out, "WEBP", quality=QUALITY)
    return out.getvalue()


def write_features(path: Path, groups: dict[str, Points]) -> None:
    """Write features and rows by the number of their domain, and the domains' names as one JSON text."""
    points = list(groups.values())
    ends = np.cumsum([len(group.rows) for group in points])
    parts = np.split(compress(np.concatenate([group.features for group in points])), ends[:-1])
    arrays: dict[str, Any] = {"names": np.array(json.dumps(list(groups)))}
    for number, (group, part) in enumerate(zip(points, parts, strict=True)):
        arrays |= {str(number): part, f"rows{number}": group.rows}
        arrays |= {} if group.y is None else {"y": group.y}
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def compress(features: Features) -> NDArray[np.float16]:
    """Return the first principal components of wide features, in half precision and its range."""
    values = np.nan_to_num(features)
    if values.shape[1] > MAX_FEATURES:
        values = values - values.mean(0)
        axes = np.linalg.svd(values, full_matrices=False)[2][:MAX_FEATURES]
        values = values @ axes.T
    return (values * min(1.0, LARGEST / max(float(np.abs(values).max()), 1.0))).astype(np.float16)
