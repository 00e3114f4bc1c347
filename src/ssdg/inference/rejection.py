"""Thresholds on how known an image looks, and what rejecting by them gains and costs. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator

from ..errors import UserError

STEPS = 100  # thresholds are kept for shares of whole percents
GRAIN = 1e5  # they are rounded down to 1 / GRAIN, for the last digits of a score depend on the batch it is in
Scores = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Rejection(BaseModel):
    """Of `model.json`: the score below which a share of held-out labeled images lies, for 0, 1, ..., 99 percent."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    score: Literal["kl-from-uniform"] = "kl-from-uniform"
    images: int = Field(ge=1)
    thresholds: tuple[FiniteFloat, ...] = Field(min_length=STEPS, max_length=STEPS)

    @field_validator("thresholds")
    @classmethod
    def _rise(cls, given: tuple[float, ...]) -> tuple[float, ...]:
        if list(given) != sorted(given):
            raise ValueError("they must rise")
        return given

    def threshold(self, share: float) -> float:
        """Images that score below it are unknown: of the held-out ones at most this share, to a whole percent."""
        check_share(share)
        return self.thresholds[min(int(share * STEPS + 1e-9), STEPS - 1)]  # 0.29 * 100 is a little less than 29


def check_share(share: float) -> None:
    """Refuse what is no share."""
    if not 0 < share < 1:
        raise UserError(
            f"--reject {share:g} is no share; give the share of known images that may be lost, above 0 and below 1, "
            "such as --reject 0.05"
        )


def choose_thresholds(scores: Scores) -> Rejection:
    """The thresholds by the scores of images that are known: below that of k percent lie k percent or fewer."""
    rows = np.arange(STEPS) * len(scores) // STEPS
    exact = np.sort(scores)[rows]
    rounded = np.minimum(np.floor(exact * GRAIN) / GRAIN, exact)
    return Rejection(images=len(scores), thresholds=tuple(rounded.tolist()))


@dataclass(frozen=True)
class Curve:
    """Accuracy against coverage, in percent, from the best score down to the worst."""

    coverage: list[float]
    accuracy: list[float]  # of the images that are covered

    @property
    def area(self) -> float:
        """Under risk against coverage: the mean percent wrong over all coverages; less is better."""
        return float(np.diff(self.coverage, prepend=0.0) @ (100 - np.array(self.accuracy))) / 100


def coverage_curve(scores: Scores, right: Mask) -> Curve:
    """A point for every number of images that a threshold can accept; equal scores are accepted together."""
    order = np.argsort(-scores, kind="stable")
    accepted = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True)) + 1
    num_right = np.cumsum(right[order])[accepted - 1]
    return Curve((100 * accepted / len(scores)).tolist(), (100 * num_right / accepted).tolist())


def rejection_report(
    known: Scores, right: Mask, strange: Scores, rejection: Rejection, share: float
) -> dict[str, Any]:
    """What `ssdg evaluate --reject` tells. `known` are scores of images of a class, `strange` of images of none."""
    threshold, curve = rejection.threshold(share), coverage_curve(known, right)
    accepted = known >= threshold
    report: dict[str, Any] = {
        "score": rejection.score,
        "share": share,
        "threshold": threshold,
        "held_out": rejection.images,
        "accepted": int(accepted.sum()),
        "coverage": share_of(accepted),
        "accuracy": share_of(right[accepted]),
        "area": round(curve.area, 4),
        "curve": {name: [round(value, 4) for value in values] for name, values in vars(curve).items()},
    }
    if len(strange):
        rejected = np.concatenate([strange, known]) < threshold
        is_strange = np.arange(len(rejected)) < len(strange)
        report["ood"] = {
            "images": len(strange),
            "rejected": int((rejected & is_strange).sum()),
            "precision": share_of(is_strange[rejected]),
            "recall": share_of(rejected[is_strange]),
            "auroc": round(100 * auroc(-strange, -known), 4),
        }
    return report


def auroc(positive: NDArray[np.floating[Any]], negative: NDArray[np.floating[Any]]) -> float:
    """The chance that a positive scores above a negative, ties counted half."""
    order = np.sort(negative)
    below, up_to = np.searchsorted(order, positive, "left"), np.searchsorted(order, positive, "right")
    return float((below + up_to).sum() / (2 * len(positive) * len(negative)))


def share_of(marked: Mask) -> float | None:
    """Percent that is marked, None of nothing."""
    return round(100.0 * float(marked.mean()), 4) if len(marked) else None
