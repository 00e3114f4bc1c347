"""Domain pictures: features of a few hundred images in the plane, cycle by cycle."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .run_folder import Run, damaged, stage_name

PERPLEXITY, SEED, STEPS = 30.0, 0, 500
FEWEST = 4  # points of a picture
SIDE = 1000  # the plane's width and height in the page's numbers
METHODS = {
    "t-SNE": "t-SNE of pooled features (scikit-learn, PCA start, fixed seed), each picture by itself: axes have no "
    "unit, and sizes and gaps of clusters mean little.",
    "PCA": "The two main directions of pooled features (PCA, because scikit-learn is not installed: "
    "pip install 'ssdg[figures]' draws a t-SNE).",
}
Features = NDArray[np.float32]


@dataclass(frozen=True)
class Cloud:
    """The points of one features file: features and places by domain, in the file's order."""

    names: list[str]
    features: list[Features]
    rows: list[NDArray[np.int64]]
    y: list[int]  # classes of the intermediate domain


def pictures(run: Run) -> dict[str, Any]:
    """All pictures of a run, or why there are none."""
    wanted = [(key, title, cycle) for key, title in stages(run) for cycle in cycles(run)]
    with one_thread_each(), ThreadPoolExecutor(os.cpu_count(), initializer=one_thread_here) as pool:
        panels = [made for found in pool.map(lambda one: _panel(run, *one), wanted) for made in found]
    if not panels:
        return {"note": "This run folder has no samples/features-*.npz: there is nothing to draw.", "panels": []}
    colours = (
        "Colour by class: the true class where it is known, else the pseudo-label; training never saw true ones."
    )
    return {"note": f"{METHODS[panels[0]['method']]} {colours}", "panels": panels}


def stages(run: Run) -> list[tuple[str, str]]:
    """Keys of stages that may have features, with what their pictures are called."""
    labelers = [(f"apl/{name}", f"labeler of {name}") for name in run.task.unlabeled]
    return [*labelers, ("dcg", "network 1 of DCG"), ("main", "network 1")]


def cycles(run: Run) -> list[int]:
    """The cycles that have happened, or begun."""
    return sorted({row.round for row in run.epochs} | set(run.rounds))


def _panel(run: Run, key: str, title: str, cycle: int) -> list[dict[str, Any]]:
    path = run.folder / "samples" / f"features-{stage_name(key, cycle)}.npz"
    if not path.exists():
        return []
    cloud = read_cloud(path)
    if sum(map(len, cloud.features)) < FEWEST:
        return []
    state = path.stat()
    points, method = _placed(path, state.st_mtime_ns, state.st_size)
    return [
        {
            "title": f"{title}, cycle {cycle}",
            "key": key,
            "cycle": cycle,
            "method": method,
            "names": cloud.names,
            "counts": [len(part) for part in cloud.features],
            "x": points[:, 0].tolist(),
            "y": points[:, 1].tolist(),
            **_known(run, cloud, key, cycle),
        }
    ]


def _known(run: Run, cloud: Cloud, key: str, cycle: int) -> dict[str, list[int]]:
    """Of every point: its class, and its place on its domain's sheet; -1 where there is none."""
    classes: list[int] = []
    places: list[int] = []
    for name, rows in zip(cloud.names, cloud.rows, strict=True):
        domain = run.samples.domains.get(name) if run.samples else None
        if domain is None:
            classes += cloud.y[: len(rows)] if len(cloud.y) >= len(rows) else [-1] * len(rows)
            places += [-1] * len(rows)
            continue
        order = {row: place for place, row in enumerate(domain.rows)}
        here = [order.get(int(row), -1) for row in rows]
        labels = run.labels.get(("eid" if key == "dcg" else "apl", cycle, name))
        guess = [int(labels.y[row]) if labels is not None and row < len(labels.y) else -1 for row in rows]
        truth = [domain.truth[place] if domain.truth is not None and place >= 0 else -1 for place in here]
        classes += [g if t == -1 else t for t, g in zip(truth, guess, strict=True)]
        places += here
    return {"classes": classes, "places": places}


def read_cloud(path: Path) -> Cloud:
    """The features that a stage left."""
    try:
        with np.load(path, allow_pickle=False) as file:
            names = [str(name) for name in json.loads(str(file["names"]))]
            features = [np.asarray(file[str(n)], np.float32) for n in range(len(names))]
            rows = [np.asarray(file[f"rows{n}"], np.int64) for n in range(len(names))]
            y = [int(value) for value in file["y"]] if "y" in file.files else []
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile):
        raise damaged(path, "it cannot be read") from None
    widths = {part.shape[1:] for part in features}
    if len(widths) != 1 or any(len(a) != len(b) for a, b in zip(features, rows, strict=True)):
        raise damaged(path, "its arrays are of unlike lengths")
    return Cloud(names, features, rows, y)


@lru_cache(maxsize=256)
def _placed(path: Path, changed: int, size: int) -> tuple[NDArray[np.int64], str]:
    """Points of a file as it was at that time: a watched run draws what it has drawn once."""
    features = np.nan_to_num(np.concatenate(read_cloud(path).features))
    points, method = embed(features)
    low, span = points.min(0), float(np.ptp(points, axis=0).max()) or 1.0
    middle = (SIDE - SIDE * np.ptp(points, axis=0) / span) / 2
    return np.rint(SIDE * (points - low) / span + middle).astype(np.int64), method


def embed(features: Features) -> tuple[Features, str]:
    """(n, d) to (n, 2) and by what; the same features give the same points."""
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        return principal(features), "PCA"
    if not np.ptp(features, axis=0).any():  # a network that sees no difference has nothing to spread
        return np.zeros((len(features), 2), np.float32), "t-SNE"
    perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
    made = TSNE(perplexity=perplexity, init="pca", random_state=SEED, max_iter=STEPS)
    return np.asarray(made.fit_transform(features), np.float32), "t-SNE"


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Pictures are drawn side by side, each by one thread: sums of several are not the same twice."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        yield
        return
    with threadpool_limits(1):
        yield


def one_thread_here() -> None:
    """OpenMP's limit, unlike that of BLAS, is a thread's own: a new thread would start teams of threads again."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return
    threadpool_limits(1, user_api="openmp")


def principal(features: Features) -> Features:
    """The two main directions, each turned so that its largest weight is positive."""
    centered = features - features.mean(0)
    directions = np.linalg.svd(centered, full_matrices=False)[2][:2]
    directions = directions * np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(1)])[:, None]
    points = np.zeros((len(features), 2), np.float32)
    points[:, : len(directions)] = centered @ directions.T
    return points
