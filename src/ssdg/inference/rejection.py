"""Rejection of images that look unknown: thresholds, and their effect on accuracy and coverage. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator

from ..errors import UserError

NUM_THRESHOLDS = 100  # one for every whole percent
PRECISION = 1e5  # thresholds are rounded down to 1 / PRECISION: the last digits of a score depend on its batch
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Rejection(BaseModel):
    """`reject` in `model.json`: the scores below which 0, 1, ..., 99 percent of the held-out labeled images lie."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    score: Literal["kl-from-uniform"] = "kl-from-uniform"
    images: int = Field(ge=1)
    thresholds: tuple[FiniteFloat, ...] = Field(min_length=NUM_THRESHOLDS, max_length=NUM_THRESHOLDS)

    @field_validator("thresholds")
    @classmethod
    def _check_sorted(cls, thresholds: tuple[float, ...]) -> tuple[float, ...]:
        if list(thresholds) != sorted(thresholds):
            raise ValueError("thresholds must be in ascending order")
        return thresholds

    def threshold(self, reject_rate: float) -> float:
        """Return the score below which an image is unknown; it rejects at most `reject_rate` of the held-out images.

        The rate is rounded down to a whole percent.
        """
        check_reject_rate(reject_rate)
        index = int(reject_rate * NUM_THRESHOLDS + 1e-9)  # 0.29 * 100 is slightly less than 29
        return self.thresholds[min(index, NUM_THRESHOLDS - 1)]


def check_reject_rate(reject_rate: float) -> None:
    """Reject a rate outside (0, 1)."""
    if not 0 < reject_rate < 1:
        raise UserError(
            f"--reject {reject_rate:g} is out of range; give the fraction of known images that may be rejected, "
            "above 0 and below 1, such as --reject 0.05"
        )


def choose_thresholds(scores: Scores) -> Rejection:
    """Choose the thresholds from scores of known images: at most k percent lie below the threshold of k percent."""
    rows = np.arange(NUM_THRESHOLDS) * len(scores) // NUM_THRESHOLDS
    exact = np.sort(scores)[rows]
    rounded = np.minimum(np.floor(exact * PRECISION) / PRECISION, exact)
    return Rejection(images=len(scores), thresholds=tuple(rounded.tolist()))


@dataclass(frozen=True)
class CoverageCurve:
    """Accuracy against coverage, in percent, from the highest score to the lowest."""

    coverage: list[float]
    accuracy: list[float]  # of the accepted images

    @property
    def area(self) -> float:
        """Area under the risk-coverage curve: the mean error rate (%) over all coverages; lower is better."""
        return float(np.diff(self.coverage, prepend=0.0) @ (100 - np.array(self.accuracy))) / 100


def coverage_curve(scores: Scores, is_correct: Mask) -> CoverageCurve:
    """Return a point for every number of images that a threshold can accept; ties are accepted together."""
    order = np.argsort(-scores, kind="stable")
    num_accepted = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True)) + 1
    num_correct = np.cumsum(is_correct[order])[num_accepted - 1]
    return CoverageCurve((100 * num_accepted / len(scores)).tolist(), (100 * num_correct / num_accepted).tolist())


def rejection_report(
    known: Scores, is_correct: Mask, ood: Scores, rejection: Rejection, reject_rate: float
) -> dict[str, Any]:
    """Return the `reject` entry of `ssdg evaluate`, from scores of known and of out-of-distribution images."""
    threshold, curve = rejection.threshold(reject_rate), coverage_curve(known, is_correct)
    is_accepted = known >= threshold
    report: dict[str, Any] = {
        "score": rejection.score,
        "share": reject_rate,
        "threshold": threshold,
        "held_out": rejection.images,
        "accepted": int(is_accepted.sum()),
        "coverage": share_of(is_accepted),
        "accuracy": share_of(is_correct[is_accepted]),
        "area": round(curve.area, 4),
        "curve": {name: [round(value, 4) for value in values] for name, values in vars(curve).items()},
    }
    if len(ood):
        is_rejected = np.concatenate([ood, known]) < threshold
        is_ood = np.arange(len(is_rejected)) < len(ood)
        report["ood"] = {
            "images": len(ood),
            "rejected": int((is_rejected & is_ood).sum()),
            "precision": share_of(is_ood[is_rejected]),
            "recall": share_of(is_rejected[is_ood]),
            "auroc": round(100 * auroc(-ood, -known), 4),
        }
    return report


def auroc(positive: NDArray[np.floating[Any]], negative: NDArray[np.floating[Any]]) -> float:
    """Return the probability that a positive scores above a negative; ties count half."""
    order = np.sort(negative)
    below, up_to = np.searchsorted(order, positive, "left"), np.searchsorted(order, positive, "right")
    return float((below + up_to).sum() / (2 * len(positive) * len(negative)))


def share_of(mask: Mask) -> float | None:
    """Return the percentage of True values; None for an empty mask."""
    return round(100.0 * float(mask.mean()), 4) if len(mask) else None
