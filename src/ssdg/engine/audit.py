"""Compares pseudo-labels with the hidden truth. Its figures go to the result, never to a method."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.hidden import UNKNOWN, Problem
from ..data.sets import PseudoLabels, UnlabeledSet

STATEMENT = (
    "Hidden labels of unlabeled and target domains were read by the auditor and the evaluator only, "
    "after the weights they describe were fixed; no method, loss, sampler or selection can import them."
)


def audit_labels(labels: PseudoLabels, pool: UnlabeledSet, problem: Problem) -> dict[str, dict[str, Any]]:
    """Per unlabeled domain: images, kept images and, where the truth is known, percent right of all and of kept."""
    report = {}
    for number in np.unique(pool.domain):
        here = pool.domain == number
        name = problem.domains[number]
        report[name] = _row(labels.y[here], labels.keep[here], problem.truth.get(name))
    return report


def _row(y: NDArray[np.int64], keep: NDArray[np.bool_], truth: NDArray[np.int64] | None) -> dict[str, Any]:
    row: dict[str, Any] = {"images": len(y), "kept": int(keep.sum())}
    if truth is not None and (truth != UNKNOWN).any():
        known = truth != UNKNOWN
        row["accuracy"] = _percent((y == truth)[known])
        row["kept_accuracy"] = _percent((y == truth)[known & keep])
    return row


def _percent(right: NDArray[np.bool_]) -> float | None:
    return round(100.0 * float(right.mean()), 4) if len(right) else None
