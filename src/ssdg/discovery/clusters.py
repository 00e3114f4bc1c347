"""A pile of feature vectors -> the parts that it is made of: split again and again, while splits can be found anew.

Everything is computed in float64 on the CPU and follows from the features and the seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from ..seeds import torch_rng

MOST_PARTS = 6  # where their number is to be found
FIRM = 0.9  # prediction strength from which a split is believed; its authors say 0.8 to 0.9
LEAST_IMAGES, LEAST_RATE = 16, 0.02  # a part has at least so many images, and so many of the pile
WAYS = (2, 3, 4, 5, 6)  # into how many a part is split at once: of three that are as far apart, no two are a half
DIMENSIONS, DIMENSIONS_OF_FEW = (4, 6), (2, 4)  # principal components; the firmer split counts
FEW = 500  # images, which are scattered too thinly in many dimensions
FAR = 2.5  # standard deviations; what is farther counts as that far, or a few odd images would be a part
RESTARTS, ITERATIONS = 10, 100
TRIALS, TRIAL_RESTARTS, TRIAL_IMAGES = 15, 5, 4000


@dataclass(frozen=True, eq=False)
class Parts:
    """The part of every row, numbered by size from 0, and the strength of each split that was made or refused."""

    of: Tensor  # (n,)
    strengths: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Split:
    """How a part could be split."""

    of: Tensor  # (n,)
    ways: int
    strength: float


def find_parts(features: Tensor, wanted: int | None, *seed: object) -> Parts:
    """The pile in `wanted` parts, or in as many as are firm: always the firmest split that is left.

    Fewer than are wanted where further ones would be too small.
    """
    least = max(LEAST_IMAGES, int(LEAST_RATE * len(features)))
    rows, strengths, most = [torch.arange(len(features))], [], wanted or MOST_PARTS
    splits = [possible_splits(features, least, *seed, 0) if most > 1 else []]
    while len(rows) < most:
        left = [(s, place) for place, several in enumerate(splits) for s in several if len(rows) + s.ways - 1 <= most]
        if not left:
            break
        best, place = max(left, key=lambda choice: choice[0].strength)
        strengths.append(round(best.strength, 4))
        if wanted is None and best.strength < FIRM:
            break
        pieces = [rows[place][best.of == way] for way in range(best.ways)]
        number = len(strengths)
        rows[place : place + 1] = pieces
        splits[place : place + 1] = [
            possible_splits(features[piece], least, *seed, number, way) for way, piece in enumerate(pieces)
        ]
    return Parts(numbered(rows, len(features)), tuple(strengths))


def possible_splits(features: Tensor, least: int, *seed: object) -> list[Split]:
    """For each number of parts the split that is found most surely again; none that leaves a part too small."""
    best: dict[int, Split] = {}
    several = DIMENSIONS if len(features) >= FEW else DIMENSIONS_OF_FEW
    for dimensions in several if len(features) >= 2 * least else ():
        points = whitened(features, dimensions)
        for ways in WAYS:
            of, _ = k_means(points, ways, RESTARTS, *seed, dimensions)
            if int(torch.bincount(of, minlength=ways).min()) >= least:
                strength = prediction_strength(points, ways, *seed, dimensions)
                if ways not in best or strength > best[ways].strength:
                    best[ways] = Split(of, ways, strength)
    return list(best.values())


def whitened(features: Tensor, dimensions: int) -> Tensor:
    """The first principal components of standardised features, each of variance 1: (n, dimensions or fewer)."""
    values = features.double()
    spread = values.std(0)
    kept = spread > 1e-9
    if not kept.any():
        return torch.zeros(len(values), 1, dtype=torch.float64)
    values = ((values - values.mean(0))[:, kept] / spread[kept]).clamp(-FAR, FAR)
    values = values - values.mean(0)
    sizes, axes = torch.linalg.eigh(values.T @ values / (len(values) - 1))
    large = sizes > 1e-9 * sizes[-1]
    sizes, axes = sizes[large][-dimensions:], axes[:, large][:, -dimensions:]
    points: Tensor = values @ axes / sizes.sqrt()
    return points.clamp(-FAR, FAR)


def k_means(points: Tensor, ways: int, restarts: int, *seed: object) -> tuple[Tensor, Tensor]:
    """k-means, begun as k-means++ begins, the best of several: the cluster of every point (n,), centres (ways, d)."""
    rng = torch_rng("k-means", ways, *seed)
    centres = torch.stack([_first_centres(points, ways, rng) for _ in range(restarts)])  # (restarts, ways, d)
    for _ in range(ITERATIONS):
        moved = _means(points, _distances(points, centres).argmin(-1), centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    near = _distances(points, centres)
    best = near.amin(-1).sum(-1).argmin()
    return near[best].argmin(-1), centres[best]


def prediction_strength(points: Tensor, ways: int, *seed: object) -> float:
    """How surely the clusters are found again (Tibshirani and Walther, 2005), in [0, 1].

    The points are cut in two at random, and each side is clustered alone. Of pairs that one side puts together, the
    share that the other side's centres put together too, of the worst cluster. The median over several cuts, not
    the mean: k-means finds the same again or something else, and little between. Enough cuts below FIRM are enough.
    """
    rng = torch_rng("strength", ways, *seed)
    found: list[float] = []
    for trial in range(TRIALS):
        order = torch.randperm(len(points), generator=rng)[:TRIAL_IMAGES]
        one, other = points[order[: len(order) // 2]], points[order[len(order) // 2 :]]
        _, centres = k_means(one, ways, TRIAL_RESTARTS, *seed, trial, "one")
        own, _ = k_means(other, ways, TRIAL_RESTARTS, *seed, trial, "other")
        told = _distances(other, centres).argmin(-1)
        found.append(min(together(told[own == way]) for way in range(ways)))
        if sum(strength < FIRM for strength in found) > TRIALS // 2:
            break
    return median(found)


def together(of: Tensor) -> float:
    """The share of pairs that are in one cluster; 0 where there is no pair."""
    counts, count = torch.bincount(of), len(of)
    return float((counts * (counts - 1)).sum()) / (count * (count - 1)) if count > 1 else 0.0


def numbered(rows: list[Tensor], count: int) -> Tensor:
    """Parts by their size, the largest first; equals by their first row."""
    of = torch.empty(count, dtype=torch.long)
    for number, part in enumerate(sorted(rows, key=lambda part: (-len(part), int(part.min())))):
        of[part] = number
    return of


def _first_centres(points: Tensor, ways: int, rng: torch.Generator) -> Tensor:
    """Far apart: each is drawn by its squared distance from those before."""
    centres = points[torch.randint(len(points), (1,), generator=rng)]
    for _ in range(1, ways):
        weights = _distances(points, centres).amin(-1) + 1e-12  # all alike: any other
        centres = torch.cat([centres, points[torch.multinomial(weights, 1, generator=rng)]])
    return centres


def _means(points: Tensor, of: Tensor, before: Tensor) -> Tensor:
    """The centres of the clusters (restarts, ways, d); one without a point stays where it was."""
    member = torch.nn.functional.one_hot(of, before.shape[1]).to(points.dtype)  # (restarts, n, ways)
    counts = member.sum(1)[..., None]
    return torch.where(counts > 0, member.transpose(1, 2) @ points / counts.clamp_min(1), before)


def _distances(points: Tensor, centres: Tensor) -> Tensor:
    """Squared, of all points (n, d) from centres (..., ways, d): (..., n, ways)."""
    return torch.stack([(points - c).square().sum(-1) for c in centres.unsqueeze(-2).unbind(-3)], dim=-1)
