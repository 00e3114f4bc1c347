"""Predictions as rows of a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from ..files import atomic_path

COLUMNS = ("path", "class", "confidence", "second", "second_confidence", "error")


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image, or why it could not be read."""

    path: str
    label: str = ""
    confidence: float = 0.0
    second: str = ""
    second_confidence: float = 0.0
    error: str = ""

    def cells(self) -> tuple[str, ...]:
        """The row of the file."""
        if self.error:
            return (self.path, "", "", "", "", self.error)
        numbers = f"{self.confidence:.6f}", f"{self.second_confidence:.6f}"
        return (self.path, self.label, numbers[0], self.second, numbers[1], "")


def best_two(paths: Sequence[str], probs: Tensor, classes: Sequence[str]) -> Iterator[Prediction]:
    """The two likeliest classes of each image; `probs` is (n, K)."""
    values, indices = probs.topk(2)
    for path, (first, second), (p, q) in zip(paths, indices.tolist(), values.tolist(), strict=True):
        yield Prediction(path, classes[first], p, classes[second], q)


def write_predictions(path: Path, rows: Iterable[Prediction]) -> int:
    """Write the rows as they come, atomically; returns how many images could not be read."""
    unreadable = 0
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows:
            unreadable += bool(row.error)
            writer.writerow(row.cells())
    return unreadable
