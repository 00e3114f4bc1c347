"""Paired significance tests of two rows, on the runs that both have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_EXACT_PAIRS = 16  # pairs up to which all 2^n signs are enumerated; beyond, signs are sampled
NUM_DRAWS = 99_999
CONFIDENCE = 0.95
TaskSeed = tuple[str, int]  # identifies a run of a row


@dataclass(frozen=True)
class Comparison:
    """One row minus another, over tasks and seeds. A statistic that needs more pairs is None."""

    row: str
    other: str
    num_pairs: int
    difference: float | None  # mean, in percentage points
    interval: tuple[float, float] | None  # 95 % confidence interval of the mean, by Student's t
    p_t: float | None  # two-sided paired t-test
    p_permutation: float | None  # two-sided sign-flip permutation test


def compare(row: str, ours: Mapping[TaskSeed, float], other: str, theirs: Mapping[TaskSeed, float]) -> Comparison:
    """Compare two rows on the tasks and seeds that both have."""
    shared = sorted(ours.keys() & theirs.keys())
    # Accuracies have four digits: without the rounding 0.3 - 0.1 and 0.4 - 0.2 would differ.
    differences = np.round([ours[key] - theirs[key] for key in shared], 6)
    if not shared:
        return Comparison(row, other, 0, None, None, None, None)
    mean = float(differences.mean())
    interval, p_t = paired_t(differences)
    p_permutation = sign_flips(differences) if len(shared) > 1 else None
    return Comparison(row, other, len(shared), mean, interval, p_t, p_permutation)


def paired_t(differences: NDArray[np.float64]) -> tuple[tuple[float, float] | None, float | None]:
    """Return the confidence interval of the mean difference and the two-sided p-value of a zero mean."""
    num = len(differences)
    if num < 2:
        return None, None
    mean = float(differences.mean())
    if np.ptp(differences) == 0:
        return (mean, mean), float(mean == 0)
    error = float(differences.std(ddof=1)) / math.sqrt(num)
    half = t_quantile(CONFIDENCE, num - 1) * error
    return (mean - half, mean + half), max(0.0, 1 - t_inside(abs(mean) / error, num - 1))


def sign_flips(differences: NDArray[np.float64]) -> float:
    """Return the probability of a mean at least as far from zero under random signs of the differences.

    Exact for few pairs. For many, signs are drawn from a fixed seed, and the data count as one of the draws.
    """
    observed = abs(differences.sum()) - 1e-9  # sums of the same numbers differ in their last bits
    if len(differences) <= MAX_EXACT_PAIRS:
        sums = np.zeros(1)
        for value in differences:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= observed).mean())
    signs = np.random.default_rng(0).choice(np.array([-1, 1], np.int8), (NUM_DRAWS, len(differences)))
    return float((1 + (np.abs(signs @ differences) >= observed).sum()) / (1 + NUM_DRAWS))


def t_inside(t: float, freedom: int) -> float:
    """Return P(|T| < t) of Student's t with integer degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def t_quantile(inside: float, freedom: int) -> float:
    """Return the t for which P(|T| < t) is `inside`, by bisection."""
    low, high = 0.0, 1.0
    while t_inside(high, freedom) < inside:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_inside(middle, freedom) < inside else (low, middle)
    return high
