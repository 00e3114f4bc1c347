"""Predictions as rows of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..files import atomic_path

COLUMNS = ("path", "class", "confidence", "second", "second_confidence", "error")
MORE_COLUMNS = ("guess", "score")  # where a model may answer 'unknown'
UNKNOWN = "unknown"


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

    def cells(self) -> tuple[str, ...]:
        """The row of the file."""
        if self.error:
            return (self.path, "", "", "", "", self.error)
        numbers = f"{self.confidence:.6f}", f"{self.second_confidence:.6f}"
        label = UNKNOWN if self.is_unknown else self.label
        return (self.path, label, numbers[0], self.second, numbers[1], "")

    def more_cells(self) -> tuple[str, ...]:
        """The likeliest class, also of an image that is unknown, and the score."""
        return (self.label, "" if self.score is None else f"{self.score:.6f}")


@dataclass
class Written:
    """How many rows of a kind a file got."""

    unreadable: int = 0
    unknown: int = 0


def best_two(paths: Sequence[str], probs: Tensor, classes: Sequence[str]) -> Iterator[Prediction]:
    """The two likeliest classes of each image; `probs` is (n, K)."""
    values, indices = probs.topk(2)
    for path, (first, second), (p, q) in zip(paths, indices.tolist(), values.tolist(), strict=True):
        yield Prediction(path, classes[first], p, classes[second], q)


def write_predictions(path: Path, rows: Iterable[Prediction], *, rejecting: bool = False) -> Written:
    """Write the rows as they come, atomically; where images were rejected, with the columns that tell of it."""
    count = Written()
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow((*COLUMNS, *MORE_COLUMNS) if rejecting else COLUMNS)
        for row in rows:
            count.unreadable += bool(row.error)
            count.unknown += row.is_unknown
            writer.writerow((*row.cells(), *row.more_cells()) if rejecting else row.cells())
    return count
