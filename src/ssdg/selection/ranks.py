"""Ranks and their correlation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def average_ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """1 for the highest, 2 for the next, ...; equals share the mean of their places."""
    array = np.asarray(values, np.float64)
    above = (array[None, :] > array[:, None]).sum(1)
    alike = (array[None, :] == array[:, None]).sum(1)
    return np.asarray(above + (alike + 1) / 2, np.float64)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation of the ranks, in [-1, 1]; None where one of the two is constant or shorter than 2."""
    a, b = average_ranks(first), average_ranks(second)
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    a, b = a - a.mean(), b - b.mean()
    return float(np.clip((a @ b) / np.sqrt((a @ a) * (b @ b)), -1, 1))
