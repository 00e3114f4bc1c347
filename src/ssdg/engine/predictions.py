"""Predictions and their rows. Needs no torch."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import atomic_path

COLUMNS = ("path", "class", "confidence", "second", "second_confidence", "error")
MORE_COLUMNS = ("guess", "score")  # where a model may answer 'unknown'
UNKNOWN = "unknown"
DIGITS = 6  # of a number in a file, after the point


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image, or why it could not be read."""

    path: str
    label: str = ""
    confidence: float = 0.0
    second: str = ""
    second_confidence: float = 0.0
    error: str = ""
    score: float | None = None  # where the model may answer 'unknown': how known the image looks
    is_unknown: bool = False

    def record(self, *, rejecting: bool = False) -> dict[str, Any]:
        """The row by the names of its columns: text, numbers rounded, None where there is nothing."""
        is_read = not self.error
        answers = (
            UNKNOWN if self.is_unknown else self.label,
            round(self.confidence, DIGITS),
            self.second,
            round(self.second_confidence, DIGITS),
        )
        row = dict(
            zip(COLUMNS, (self.path, *(a if is_read else None for a in answers), self.error or None), strict=True)
        )
        if rejecting:
            row["guess"] = self.label or None
            row["score"] = None if self.score is None else round(self.score, DIGITS)
        return row


def cells(record: dict[str, Any]) -> list[str]:
    """The row of a CSV file."""
    return [f"{v:.{DIGITS}f}" if isinstance(v, float) else "" if v is None else str(v) for v in record.values()]


def columns(*, rejecting: bool) -> tuple[str, ...]:
    """The names of a file's columns, in order."""
    return (*COLUMNS, *MORE_COLUMNS) if rejecting else COLUMNS


def best_two(paths: Sequence[str], probs: NDArray[np.floating[Any]], classes: Sequence[str]) -> Iterator[Prediction]:
    """The two likeliest classes of each image; `probs` is (n, K)."""
    rows, rest = np.arange(len(probs)), probs.copy()
    first = rest.argmax(1)
    rest[rows, first] = -1  # no probability is so small
    second = rest.argmax(1)
    for path, a, b, p, q in zip(
        paths, first, second, probs[rows, first].tolist(), probs[rows, second].tolist(), strict=True
    ):
        yield Prediction(path, classes[a], p, classes[b], q)


def write_predictions(path: Path, rows: Iterable[Prediction]) -> None:
    """Write the rows as they come into a CSV file, atomically."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(cells(row.record()) for row in rows)
