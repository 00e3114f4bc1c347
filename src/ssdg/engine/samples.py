"""What a run keeps to be looked at: thumbnails of sampled images, and their features after every stage.

Hidden truth is copied beside the thumbnails, for a report; nothing that is written here is read in training.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..data.hidden import UNKNOWN, Problem
from ..data.sets import ImageTable, MixedSet, Rows
from ..data.streams import EVAL_BATCH, Pipeline, evaluation_batches
from ..files import atomic_path, write_bytes, write_text
from ..models.backbones import backbones_of
from ..seeds import numpy_rng
from .features import Features, Passed, first_mixed, plain, pooled
from .stages import stage_name

FORMAT = 1
TILE, COLUMNS, QUALITY = 48, 20, 70  # pixels of a thumbnail's side, thumbnails in a line, of WebP
MOST_TILES = 400  # thumbnails of a domain
MOST_POINTS, MOST_PASSES = 200, 600  # features of a domain, and of all that a stage shows
MOST_FEATURES = 64  # numbers of an image that are kept
LARGEST = 6e4  # float16 ends a little above
INTERMEDIATE = "(intermediate)"
Classes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Shown:
    """A domain of the run with what is known of it."""

    role: Literal["labeled", "unlabeled", "target"]
    images: ImageTable
    paths: Sequence[str]
    truth: Classes | None = None
    web: Classes | None = None

    def about(self, rows: Rows) -> dict[str, Any]:
        """What `index.json` tells of these rows; a truth of which nothing is known is none."""
        is_known = self.truth is not None and bool((self.truth != UNKNOWN).any())
        return {
            "role": self.role,
            "images": len(self.images),
            "rows": rows.tolist(),
            "paths": [self.paths[row] for row in rows] if self.paths else [""] * len(rows),
            "truth": self.truth[rows].tolist() if self.truth is not None and is_known else None,
            "web": self.web[rows].tolist() if self.web is not None else None,
        }


@dataclass(frozen=True, eq=False)
class Points:
    """Features of images of one domain, which rows of it they are, and labels where the rows cannot tell."""

    features: Features
    rows: Rows
    y: Classes | None = None


@dataclass(frozen=True, eq=False)
class Samples:
    """The folder `samples` of a run. What an earlier process has written there is left as it is."""

    folder: Path
    problem: Problem
    pipeline: Pipeline

    def write_index(self) -> None:
        """Thumbnails of every domain, and last the file that tells what they are."""
        path = self.folder / "index.json"
        if path.exists():
            return
        domains = {}
        for number, (name, domain) in enumerate(shown_domains(self.problem).items()):
            rows, sprite = sampled_rows(domain.images, MOST_TILES), f"{number}.webp"
            write_bytes(self.folder / sprite, sprite_of(domain.images[rows]))
            domains[name] = {**domain.about(rows), "sprite": sprite}
        head = {"format": FORMAT, "tile": TILE, "columns": COLUMNS, "classes": list(self.problem.task.classes)}
        write_text(path, json.dumps({**head, "domains": domains}) + "\n")

    def look(self, stage: Passed) -> None:
        """Keep the features of sampled images in the stage's network, if it saw several domains or is the product."""
        path = self.folder / f"features-{stage_name(stage.key, stage.round)}.npz"
        names = domains_of(stage, self.problem)
        if path.exists() or len(names) < 2 or not backbones_of(stage.learner.nets):
            return
        mixed = intermediate_of(stage)
        most = min(MOST_POINTS, MOST_PASSES // (len(names) + (mixed is not None)))
        groups = {name: self._points(stage, name, most) for name in names}
        if mixed is not None:
            groups[INTERMEDIATE] = self._mixed_points(stage, mixed, most)
        save_features(path, groups)

    def _points(self, stage: Passed, name: str, most: int) -> Points:
        table = shown_domains(self.problem)[name].images
        rows = sampled_rows(table, most)
        batches = evaluation_batches(table.take(rows), EVAL_BATCH, plain(self.pipeline))
        return Points(pooled(stage.learner, batches), rows)

    def _mixed_points(self, stage: Passed, mixed: MixedSet, most: int) -> Points:
        drawn = list(first_mixed(stage, mixed, most, plain(self.pipeline)))
        features = pooled(stage.learner, (batch.x for batch in drawn))
        y = [(batch.y if batch.y.ndim == 1 else batch.y.argmax(1)).cpu().numpy() for batch in drawn]
        return Points(features, np.full(len(features), -1), np.concatenate(y))


def shown_domains(problem: Problem) -> dict[str, Shown]:
    """All domains with an image: labeled, unlabeled, target.

    In domain adaptation the target is the unlabeled domain, image by image, and is shown as that.
    """
    task, target, name = problem.task, problem.target, problem.domains[0]
    domains = {name: Shown("labeled", task.labeled.images, problem.paths.get(name, ()), task.labeled.y)}
    for name, pool in task.unlabeled.items():
        truth, web = problem.truth.get(name), problem.web_labels.get(name)
        domains[name] = Shown("unlabeled", pool.images, problem.paths.get(name, ()), truth, web)
    if target is not None and target.name not in domains:
        domains[target.name] = Shown("target", target.images, target.paths, target.y)
    return {name: domain for name, domain in domains.items() if len(domain.images)}


def domains_of(stage: Passed, problem: Problem) -> list[str]:
    """Those that a picture of the stage shows: all for the product, else those it learned from."""
    names = list(shown_domains(problem))
    if stage.product:
        return names
    seen = [s.domain for s in (stage.inputs.unlabeled, stage.inputs.pseudo) if s is not None]
    numbers = {0, *(int(number) for domain in seen for number in np.unique(domain))}
    return [name for name in names if name in {problem.domains[number] for number in numbers}]


def intermediate_of(stage: Passed) -> MixedSet | None:
    """The intermediate domain that the stage learned from, unless it was made of labeled images alone."""
    mixed = stage.inputs.labeled
    return mixed if isinstance(mixed, MixedSet) and len(mixed.clean) else None


def sampled_rows(table: ImageTable, num: int) -> Rows:
    """Up to `num` rows in order, drawn from the images' fingerprint; fewer ones are among more ones."""
    return np.sort(numpy_rng("samples", table.fingerprint).permutation(len(table))[:num])


def sprite_of(images: NDArray[np.uint8]) -> bytes:
    """A WebP of all images (n, H, W, 3) as thumbnails, line by line."""
    sheet = Image.new("RGB", (COLUMNS * TILE, -(-len(images) // COLUMNS) * TILE))
    for place, pixels in enumerate(images):
        line, column = divmod(place, COLUMNS)
        tile = Image.fromarray(pixels).resize((TILE, TILE), Image.Resampling.BICUBIC)
        sheet.paste(tile, (column * TILE, line * TILE))
    out = BytesIO()
    sheet.save(out, "WEBP", quality=QUALITY)
    return out.getvalue()


def save_features(path: Path, groups: dict[str, Points]) -> None:
    """Write features by number of their domain, which rows they are of, and the domains' names as one JSON text."""
    points = list(groups.values())
    ends = np.cumsum([len(group.rows) for group in points])
    parts = np.split(narrowed(np.concatenate([group.features for group in points])), ends[:-1])
    arrays: dict[str, Any] = {"names": np.array(json.dumps(list(groups)))}
    for number, (group, part) in enumerate(zip(points, parts, strict=True)):
        arrays |= {str(number): part, f"rows{number}": group.rows}
        arrays |= {} if group.y is None else {"y": group.y}
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def narrowed(features: Features) -> NDArray[np.float16]:
    """The first principal components of features that are wider, in half precision and its range."""
    kept = np.nan_to_num(features)
    if kept.shape[1] > MOST_FEATURES:
        kept = kept - kept.mean(0)
        axes = np.linalg.svd(kept, full_matrices=False)[2][:MOST_FEATURES]
        kept = kept @ axes.T
    return (kept * min(1.0, LARGEST / max(float(np.abs(kept).max()), 1.0))).astype(np.float16)
