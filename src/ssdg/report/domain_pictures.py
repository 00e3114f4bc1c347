"""Domain pictures: features of a few hundred images in the plane, for every stage and cycle."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..bench.tables.paper_figures import tsne_points
from ..data.sources.npz import open_arrays
from ..errors import ZIP_ERRORS
from ..files import open_file
from ..schema import PlannedStage, damaged, stage_name
from .run_folder import Labels, Run

STEPS = 500  # of gradient descent
FEWEST = 4  # points in a picture
SIDE = 1000  # width and height of the plane in page coordinates
METHODS = {
    "t-SNE": "t-SNE of pooled features (scikit-learn, PCA initialization, fixed seed), computed separately for each "
    "picture: axes have no unit, and cluster sizes and distances mean little.",
    "PCA": "First two principal components of pooled features; scikit-learn is not installed "
    "(pip install 'ssdg[figures]' for t-SNE).",
}
COLORS = "Color by class: the true class where it is known, else the pseudo-label; training never saw true classes."
Features = NDArray[np.float32]


@dataclass(frozen=True)
class Cloud:
    """Features and row numbers by domain, in the order of the features file."""

    names: list[str]
    features: list[Features]
    rows: list[NDArray[np.int64]]
    y: list[int]  # classes of the intermediate domain


def pictures(run: Run) -> dict[str, Any]:
    """Return all pictures of a run, or why there are none."""
    with one_thread_each(), ThreadPoolExecutor(os.cpu_count(), initializer=limit_openmp) as pool:
        panels = [panel for panel in pool.map(lambda stage: draw_stage(run, stage), stages(run)) if panel]
    if not panels:
        return {"note": "No pictures: this run folder has no samples/features-*.npz.", "panels": []}
    return {"note": f"{METHODS[panels[0]['method']]} {COLORS}", "panels": panels}


def stages(run: Run) -> list[PlannedStage]:
    """Return all stages, the cycles of each next to each other."""
    keys = dict.fromkeys(key for key, _ in run.stages)
    return [run.stages[key, cycle] for key in keys for cycle in sorted(c for k, c in run.stages if k == key)]


def draw_stage(run: Run, stage: PlannedStage) -> dict[str, Any] | None:
    """Return the picture of a stage; None if it has no features file or too few points."""
    path = run.folder / "samples" / f"features-{stage_name(stage.key, stage.round)}.npz"
    if not path.exists():
        return None
    cloud = read_cloud(path)
    if sum(map(len, cloud.features)) < FEWEST:
        return None
    state = path.stat()
    points, method = _embedded(path, state.st_mtime_ns, state.st_size)
    return {
        "title": f"{stage.title or stage.key}, cycle {stage.round}",
        "key": stage.key,
        "cycle": stage.round,
        "method": method,
        "names": cloud.names,
        "counts": [len(part) for part in cloud.features],
        "x": points[:, 0].tolist(),
        "y": points[:, 1].tolist(),
        **_point_facts(run, cloud, stage),
    }


def _point_facts(run: Run, cloud: Cloud, stage: PlannedStage) -> dict[str, list[int]]:
    """Return the class of every point and its position on its domain's sheet; -1 if there is none."""
    classes: list[int] = []
    positions: list[int] = []
    for name, rows in zip(cloud.names, cloud.rows, strict=True):
        domain = run.samples.domains.get(name) if run.samples else None
        if domain is None:
            classes += cloud.y[: len(rows)] if len(cloud.y) >= len(rows) else [-1] * len(rows)
            positions += [-1] * len(rows)
            continue
        order = {row: position for position, row in enumerate(domain.rows)}
        sampled = [order.get(int(row), -1) for row in rows]
        labels = labels_for(run, stage, name)
        guess = [int(labels.y[row]) if labels is not None and row < len(labels.y) else -1 for row in rows]
        truth = [domain.truth[k] if domain.truth is not None and k >= 0 else -1 for k in sampled]
        classes += [g if t == -1 else t for t, g in zip(truth, guess, strict=True)]
        positions += sampled
    return {"classes": classes, "positions": positions}


def labels_for(run: Run, stage: PlannedStage, domain: str) -> Labels | None:
    """Return the labels that a stage's learner gave to a domain, else other labels of the same cycle."""
    candidates = [labels for labels in run.labels if (labels.round, labels.domain) == (stage.round, domain)]
    first = candidates[0] if candidates else None
    return next((labels for labels in candidates if labels.stage == stage.key), first)


def read_cloud(path: Path) -> Cloud:
    """Read a features file."""
    try:
        with open_file(path) as opened, open_arrays(opened) as arrays:
            names = [str(name) for name in json.loads(str(arrays.read("names")))]
            features = [np.asarray(arrays.read(str(n)), np.float32) for n in range(len(names))]
            rows = [np.asarray(arrays.read(f"rows{n}"), np.int64) for n in range(len(names))]
            y = [int(value) for value in arrays.read("y")] if "y" in arrays else []
    except (OSError, KeyError, TypeError, AttributeError, *ZIP_ERRORS):
        raise damaged(path, "it cannot be read") from None
    widths = {part.shape[1:] for part in features}
    if len(widths) != 1 or any(len(a) != len(b) for a, b in zip(features, rows, strict=True)):
        raise damaged(path, "its arrays differ in length")
    return Cloud(names, features, rows, y)


@lru_cache(maxsize=256)
def _embedded(path: Path, changed: int, size: int) -> tuple[NDArray[np.int64], str]:
    """Embed a file in its state of that time; a page that is refreshed embeds every file once."""
    features = np.nan_to_num(np.concatenate(read_cloud(path).features))
    points, method = embed(features)
    low, span = points.min(0), float(np.ptp(points, axis=0).max()) or 1.0
    middle = (SIDE - SIDE * np.ptp(points, axis=0) / span) / 2
    return np.rint(SIDE * (points - low) / span + middle).astype(np.int64), method


def embed(features: Features) -> tuple[Features, str]:
    """Embed (n, d) features in the plane; return (n, 2) points and the method. Deterministic."""
    try:
        return tsne_points(features, max_iter=STEPS), "t-SNE"
    except ImportError:
        return principal(features), "PCA"


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Limit BLAS to one thread per picture, as sums over several threads are not reproducible."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(1):
        yield


def limit_openmp() -> None:
    """Limit OpenMP in the current thread; unlike the limit of BLAS, a new thread does not inherit it."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return
    threadpool_limits(1, user_api="openmp")


def principal(features: Features) -> Features:
    """Return the first two principal components, each with the sign that makes its largest weight positive."""
    centered = features - features.mean(0)
    directions = np.linalg.svd(centered, full_matrices=False)[2][:2]
    directions = directions * np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(1)])[:, None]
    points = np.zeros((len(features), 2), np.float32)
    points[:, : len(directions)] = centered @ directions.T
    return points
