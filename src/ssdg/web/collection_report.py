"""The report of a crawl or an ingest: per class the images requested, found and kept, and why others were refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..data.sources.manifest import Manifest


@dataclass(frozen=True)
class ClassReport:
    """The counts of one class."""

    label: str
    num_requested: int | None
    num_found: int
    num_kept: int
    refused: dict[str, int]  # reason -> count, most frequent first
    is_requested: bool = True  # False for files without a class or of a class that was not requested

    def as_json(self) -> dict[str, Any]:
        """Return the counts under the keys of `--json`."""
        return {
            "label": self.label,
            "asked": self.num_requested,
            "found": self.num_found,
            "kept": self.num_kept,
            "refused": self.refused,
            "wanted": self.is_requested,
        }


@dataclass(frozen=True)
class CollectionReport:
    """The counts of all classes, with notes for the user."""

    classes: Sequence[ClassReport]
    notes: Sequence[str] = ()  # sentences

    @property
    def num_found(self) -> int:
        """The number of files or URLs of the requested classes."""
        return sum(count.num_found for count in self.classes if count.is_requested)

    @property
    def empty(self) -> list[ClassReport]:
        """The requested classes without a kept image."""
        return [count for count in self.classes if count.is_requested and not count.num_kept]

    def as_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {"classes": [count.as_json() for count in self.classes], "notes": list(self.notes)}


def count_classes(
    manifest: Manifest, labels: Iterable[str], num_requested: int | None = None, *, is_requested: bool = True
) -> list[ClassReport]:
    """Count the rows of a manifest by class, including those of earlier commands in the same folder."""
    return [_count_class(manifest, label, num_requested, is_requested) for label in labels]


def _count_class(manifest: Manifest, label: str, num_requested: int | None, is_requested: bool) -> ClassReport:
    rows = manifest.rows_of(label)
    reasons = Counter(row.reason or "put aside" for row in rows if not row.kept)
    num_kept = len(rows) - reasons.total()
    return ClassReport(label, num_requested, len(rows), num_kept, dict(reasons.most_common()), is_requested)
