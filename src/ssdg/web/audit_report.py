"""What an audit came to, in numbers and lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from .annotations import Truth, agreement, ood_table
from .audit import Audit
from .findings import DUPLICATE, LEAK, NEAR
from .store import DAMAGED


@dataclass(frozen=True)
class ClassCount:
    """One web-label; None where nothing was looked for."""

    label: str
    images: int
    damaged: int
    duplicates: int
    leaks: int | None
    two_labels: int
    label_issues: int | None
    outliers: int | None
    kept: int


_NUMBERS = tuple(one.name for one in fields(ClassCount) if one.name != "label")


@dataclass(frozen=True)
class AuditReport:
    """All web-labels, and every image that something is wrong with."""

    classes: Sequence[ClassCount]
    found: Sequence[dict[str, Any]]  # damaged files, leaks and copies
    ood: Sequence[dict[str, Any]]  # the paper's table; empty without annotations
    agreement: dict[str, Any] | None
    notes: Sequence[str]

    @property
    def total(self) -> ClassCount:
        """The sum of all classes."""
        return _sum(self.classes)

    @property
    def empty(self) -> list[str]:
        """Web-labels that had images and have none left."""
        return [one.label for one in self.classes if one.images and not one.kept]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "classes": [asdict(one) for one in self.classes],
            "total": asdict(self.total),
            "found": list(self.found),
            "ood": list(self.ood),
            "agreement": self.agreement,
            "notes": list(self.notes),
        }


def make_report(told: Audit, truth: Truth | None) -> AuditReport:
    """Count by web-label and list what was found."""
    labels = sorted({row.label for row in told.rows})
    notes = [*told.notes, *([truth.note] if truth and truth.note else [])]
    return AuditReport(
        [_count(label, told) for label in labels],
        [_found(number, told) for number in sorted(told.findings)],
        ood_table(told.rows, told.staying, truth) if truth else [],
        agreement(told.rows, told.marks, truth) if truth and told.marks else None,
        notes,
    )


def _count(label: str, told: Audit) -> ClassCount:
    numbers = [number for number, row in enumerate(told.rows) if row.label == label]
    kinds = Counter(told.findings[number].kind for number in numbers if number in told.findings)
    marks = told.marks
    return ClassCount(
        label,
        len(numbers),
        kinds[DAMAGED],
        kinds[DUPLICATE] + kinds[NEAR],
        kinds[LEAK] if told.compared else None,
        sum(number in told.labels for number in numbers),
        int(marks.issue[numbers].sum()) if marks else None,
        int(marks.outlier[numbers].sum()) if marks else None,
        sum(number not in told.taken for number in numbers),
    )


def _sum(counts: Sequence[ClassCount]) -> ClassCount:
    columns: dict[str, list[Any]] = {name: [getattr(one, name) for one in counts] for name in _NUMBERS}
    totals: dict[str, Any] = {name: None if None in values else sum(values) for name, values in columns.items()}
    return ClassCount("all", **totals)


def _found(number: int, told: Audit) -> dict[str, Any]:
    row, finding = told.rows[number], told.findings[number]
    return {
        "kind": finding.kind,
        "path": row.path,
        "label": row.label,
        "detail": finding.detail,
        "other": finding.other,
        "similarity": finding.similarity,
        "taken_out": number in told.taken,
    }
