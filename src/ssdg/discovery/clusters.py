"""Cluster feature vectors by repeated splits, as long as a split is reproducible.

Everything is computed in float64 on the CPU and follows from the features and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from ..seeds import torch_rng

MAX_CLUSTERS = 6  # if their number is not given
MIN_STRENGTH = 0.9  # prediction strength from which a split is accepted; its authors suggest 0.8 to 0.9
MIN_IMAGES, MIN_RATE = 16, 0.02  # smallest cluster: images, and share of all images
WAYS = (2, 3, 4, 5, 6)  # clusters per split: of three equally distant clusters, no two form a half
DIMENSIONS, DIMENSIONS_OF_FEW = (4, 6), (2, 4)  # principal components; the stronger split counts
FEW = 500  # images, which are too sparse in many dimensions
MAX_DEVIATION = 2.5  # standard deviations; values are clamped, or a few outliers would form a cluster
MIN_DEVIATION = 0.03  # within clusters, of a component whose deviation over all images is 1
RESTARTS, ITERATIONS = 10, 100
TRIALS, TRIAL_RESTARTS, TRIAL_IMAGES = 15, 5, 4000


@dataclass(frozen=True, eq=False)
class Clustering:
    """The cluster of every row, numbered by size from 0, and the strength of each split considered."""

    of: Tensor  # (n,)
    strengths: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Split:
    """A possible split of a cluster."""

    of: Tensor  # (n,)
    ways: int
    strength: float


def find_clusters(features: Tensor, number: int | None, *seed: object) -> Clustering:
    """Split into `number` clusters, or as long as splits are strong enough: always the strongest split left.

    Returns fewer than `number` clusters if further ones would be too small.
    """
    min_size = max(MIN_IMAGES, int(MIN_RATE * len(features)))
    rows, strengths, limit = [torch.arange(len(features))], [], number or MAX_CLUSTERS
    splits = [possible_splits(features, min_size, *seed, 0) if limit > 1 else []]
    while len(rows) < limit:
        candidates = [(s, i) for i, options in enumerate(splits) for s in options if len(rows) + s.ways - 1 <= limit]
        if not candidates:
            break
        best, index = max(candidates, key=lambda candidate: candidate[0].strength)
        strengths.append(round(best.strength, 4))
        if number is None and best.strength < MIN_STRENGTH:
            break
        pieces = [rows[index][best.of == way] for way in range(best.ways)]
        num_splits = len(strengths)
        rows[index : index + 1] = pieces
        splits[index : index + 1] = [
            possible_splits(features[piece], min_size, *seed, num_splits, way) for way, piece in enumerate(pieces)
        ]
    return Clustering(number_by_size(rows, len(features)), tuple(strengths))


def possible_splits(features: Tensor, min_size: int, *seed: object) -> list[Split]:
    """Return the strongest split for each number of clusters; none that leaves a cluster too small."""
    best: dict[int, Split] = {}
    options = DIMENSIONS if len(features) >= FEW else DIMENSIONS_OF_FEW
    for dimensions in options if len(features) >= 2 * min_size else ():
        points = whiten(features, dimensions)
        for ways in WAYS:
            of, _ = k_means(points, ways, RESTARTS, *seed, dimensions)
            if int(torch.bincount(of, minlength=ways).min()) >= min_size:
                strength = prediction_strength(points, ways, *seed, dimensions)
                if ways not in best or strength > best[ways].strength:
                    best[ways] = Split(of, ways, strength)
    return list(best.values())


def membership(features: Tensor, of: Tensor) -> Tensor:
    """Return the probability (n,) that each image belongs to its own cluster rather than to another.

    The clusters are taken for normal distributions around their means, with the same variances, in the space of all
    images.
    """
    points = whiten(features, max(DIMENSIONS if len(features) >= FEW else DIMENSIONS_OF_FEW))
    member = torch.nn.functional.one_hot(of).to(points.dtype)  # (n, clusters)
    counts = member.sum(0)
    centers = member.T @ points / counts[:, None]
    deviation = (points - centers[of]).square().mean(0).sqrt().clamp_min(MIN_DEVIATION)  # within clusters, (d,)
    logits = counts.log() - _distances(points / deviation, centers / deviation) / 2
    probs: Tensor = logits.softmax(1).gather(1, of[:, None]).squeeze(1)
    return probs


def whiten(features: Tensor, dimensions: int) -> Tensor:
    """Return the first principal components of standardized features, each of variance 1: (n, up to dimensions)."""
    values = features.double()
    spread = values.std(0)
    varies = spread > 1e-9
    if not varies.any():
        return torch.zeros(len(values), 1, dtype=torch.float64)
    values = ((values - values.mean(0))[:, varies] / spread[varies]).clamp(-MAX_DEVIATION, MAX_DEVIATION)
    values = values - values.mean(0)
    sizes, axes = torch.linalg.eigh(values.T @ values / (len(values) - 1))
    large = sizes > 1e-9 * sizes[-1]
    sizes, axes = sizes[large][-dimensions:], axes[:, large][:, -dimensions:]
    points: Tensor = values @ axes / sizes.sqrt()
    return points.clamp(-MAX_DEVIATION, MAX_DEVIATION)


def k_means(points: Tensor, ways: int, restarts: int, *seed: object) -> tuple[Tensor, Tensor]:
    """Run k-means with k-means++ starts; return the best of several: clusters (n,) and centers (ways, d)."""
    rng = torch_rng("k-means", ways, *seed)
    centers = torch.stack([_initial_centers(points, ways, rng) for _ in range(restarts)])  # (restarts, ways, d)
    for _ in range(ITERATIONS):
        moved = _means(points, _distances(points, centers).argmin(-1), centers)
        if torch.equal(moved, centers):
            break
        centers = moved
    near = _distances(points, centers)
    best = near.amin(-1).sum(-1).argmin()
    return near[best].argmin(-1), centers[best]


def prediction_strength(points: Tensor, ways: int, *seed: object) -> float:
    """Return how reproducible the clusters are (Tibshirani and Walther, 2005), in [0, 1].

    The points are halved at random and each half is clustered separately. The score of a trial is the share of pairs
    in one cluster of a half that the centers of the other half put together, too, for the worst cluster. The median
    over trials, not the mean: k-means either reproduces the clusters or not, with little in between. Stops once more
    than half of the trials are below MIN_STRENGTH.
    """
    rng = torch_rng("strength", ways, *seed)
    strengths: list[float] = []
    for trial in range(TRIALS):
        order = torch.randperm(len(points), generator=rng)[:TRIAL_IMAGES]
        first, second = points[order[: len(order) // 2]], points[order[len(order) // 2 :]]
        _, centers = k_means(first, ways, TRIAL_RESTARTS, *seed, trial, "one")
        clusters, _ = k_means(second, ways, TRIAL_RESTARTS, *seed, trial, "other")
        predicted = _distances(second, centers).argmin(-1)
        strengths.append(min(pair_rate(predicted[clusters == way]) for way in range(ways)))
        if sum(strength < MIN_STRENGTH for strength in strengths) > TRIALS // 2:
            break
    return median(strengths)


def pair_rate(of: Tensor) -> float:
    """Return the share of pairs in the same cluster; 0 if there is no pair."""
    counts, count = torch.bincount(of), len(of)
    return float((counts * (counts - 1)).sum()) / (count * (count - 1)) if count > 1 else 0.0


def number_by_size(rows: list[Tensor], count: int) -> Tensor:
    """Return the cluster of every row, numbered by size, largest first; ties by their first row."""
    of = torch.empty(count, dtype=torch.long)
    for number, part in enumerate(sorted(rows, key=lambda part: (-len(part), int(part.min())))):
        of[part] = number
    return of


def _initial_centers(points: Tensor, ways: int, rng: torch.Generator) -> Tensor:
    """Draw each center by its squared distance from the previous ones (k-means++)."""
    centers = points[torch.randint(len(points), (1,), generator=rng)]
    for _ in range(1, ways):
        weights = _distances(points, centers).amin(-1) + 1e-12  # if all points are equal: any
        centers = torch.cat([centers, points[torch.multinomial(weights, 1, generator=rng)]])
    return centers


def _means(points: Tensor, of: Tensor, before: Tensor) -> Tensor:
    """Return the centers of the clusters (restarts, ways, d); one without points does not move."""
    member = torch.nn.functional.one_hot(of, before.shape[1]).to(points.dtype)  # (restarts, n, ways)
    counts = member.sum(1)[..., None]
    return torch.where(counts > 0, member.transpose(1, 2) @ points / counts.clamp_min(1), before)


def _distances(points: Tensor, centers: Tensor) -> Tensor:
    """Return squared distances of points (n, d) from centers (..., ways, d): (..., n, ways)."""
    return torch.stack([(points - c).square().sum(-1) for c in centers.unsqueeze(-2).unbind(-3)], dim=-1)
