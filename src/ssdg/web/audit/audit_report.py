"""The report of an audit: counts, findings, and agreement with human annotations if there are any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from ...data.sources.benchmark import is_ood
from ...data.sources.manifest import Row
from ...errors import UserError
from ...inference.rejection import auroc
from ..store import DAMAGED
from ..untrusted import CLASS, PATH, read_table
from .auditor import AuditResult
from .inspection import DUPLICATE, LEAK, NEAR
from .label_issues import Marks

_BOOLEANS = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False, "": False}


@dataclass(frozen=True)
class Annotations:
    """Human annotations by row index: whether the image belongs to no class, and its true class if annotated."""

    ood: Mapping[int, bool]
    label: Mapping[int, str]
    note: str = ""


def read_annotations(path: Path, rows: Sequence[Row]) -> Annotations:
    """Read a CSV file with the column `path` (a path or origin of the manifest) and `ood` (1 or 0) or `class`."""
    table = read_table(path, None)
    if PATH not in table.columns or not {"ood", CLASS} & set(table.columns):
        raise UserError(
            f"'{path}' needs the column path and one of ood (1 or 0) and class; it has {', '.join(table.columns)}"
        )
    indices = {name: n for n, row in reversed(list(enumerate(rows))) for name in (row.origin, row.path) if name}
    classes = {row.label for row in rows if not is_ood(row.label)}
    ood, label, num_unknown = {}, {}, 0
    for cells in table.rows:
        index = indices.get(cells[PATH])
        if index is None:
            num_unknown += 1
        elif true_class := cells.get(CLASS, ""):
            ood[index], label[index] = true_class not in classes, true_class
        else:
            ood[index] = _parse_boolean(cells.get("ood", ""), path)
    if not ood:
        raise UserError(
            f"none of the {len(table.rows)} paths in '{path}' is an image of this crawl; "
            "use paths or origins of its manifest"
        )
    note = f"{num_unknown} paths in '{path.name}' are not images of this crawl" if num_unknown else ""
    return Annotations(ood, label, note)


def _parse_boolean(text: str, path: Path) -> bool:
    if text.strip().lower() not in _BOOLEANS:
        raise UserError(f"invalid value '{text}' in the column ood of '{path}'; use 1 or 0")
    return _BOOLEANS[text.strip().lower()]


def count_ood(rows: Sequence[Row], remaining: Sequence[int], annotations: Annotations) -> list[dict[str, Any]]:
    """Return the table of the paper: per class the annotated remaining images and those of no class; totals last."""
    groups: dict[str, list[bool]] = {}
    for index in remaining:
        if index in annotations.ood:
            groups.setdefault(rows[index].label, []).append(annotations.ood[index])
    lines = [_ood_line(label, groups[label]) for label in sorted(groups)]
    return [*lines, _ood_line("all", [value for group in groups.values() for value in group])]


def _ood_line(label: str, ood: Sequence[bool]) -> dict[str, Any]:
    return {"label": label, "images": len(ood), "ood": sum(ood), "ood_percent": _percent(ood)}


def compute_agreement(rows: Sequence[Row], marks: Marks, annotations: Annotations) -> dict[str, Any]:
    """Compare the marks with the annotations, in percent; None if undefined."""
    ood, true_label = annotations.ood, annotations.label
    scored = [n for n in ood if marks.outlier_score[n] is not None]
    checked = [n for n in true_label if marks.quality[n] is not None and not ood[n]]
    wrong = [n for n in checked if true_label[n] != rows[n].label]
    issues = [n for n in checked if marks.issue[n]]
    outliers = [n for n in scored if marks.outlier[n]]
    return {
        "outlier_auroc": _outlier_auroc(scored, marks, annotations),
        "outliers_of_no_class": _percent([ood[n] for n in outliers]),
        "wrong_web_labels": len(wrong) if true_label else None,
        "label_issues_right": _percent([n in wrong for n in issues]),
        "wrong_web_labels_found": _percent([bool(marks.issue[n]) for n in wrong]),
        "suggested_right": _percent([marks.suggested[n] == true_label[n] for n in wrong if marks.issue[n]]),
    }


def _outlier_auroc(scored: Sequence[int], marks: Marks, annotations: Annotations) -> float | None:
    scores = np.array([marks.outlier_score[n] for n in scored], np.float64)
    is_positive = np.array([annotations.ood[n] for n in scored], np.bool_)
    if is_positive.all() or not is_positive.any():
        return None
    return round(100 * auroc(scores[is_positive], scores[~is_positive]), 2)


def _percent(values: Sequence[bool]) -> float | None:
    return round(100 * sum(values) / len(values), 2) if values else None


@dataclass(frozen=True)
class ClassCount:
    """The counts of one web-label; None if not checked."""

    label: str
    images: int
    damaged: int
    duplicates: int
    leaks: int | None
    two_labels: int
    label_issues: int | None
    outliers: int | None
    kept: int


_NUMBERS = tuple(field.name for field in fields(ClassCount) if field.name != "label")


@dataclass(frozen=True)
class AuditReport:
    """The counts of all web-labels, and every image with a finding."""

    classes: Sequence[ClassCount]
    findings: Sequence[dict[str, Any]]  # damaged files, leaks and copies
    ood: Sequence[dict[str, Any]]  # the table of the paper; empty without annotations
    agreement: dict[str, Any] | None
    notes: Sequence[str]

    @property
    def total(self) -> ClassCount:
        """The sum of all classes."""
        return _sum(self.classes)

    @property
    def empty(self) -> list[str]:
        """The web-labels whose images were all removed."""
        return [count.label for count in self.classes if count.images and not count.kept]

    def as_json(self) -> dict[str, Any]:
        """Return the report as `--json` prints it."""
        return {
            "classes": [asdict(count) for count in self.classes],
            "total": asdict(self.total),
            "found": list(self.findings),
            "ood": list(self.ood),
            "agreement": self.agreement,
            "notes": list(self.notes),
        }


def build_report(result: AuditResult, annotations: Annotations | None) -> AuditReport:
    """Count by web-label, list the findings, and compare with the annotations."""
    rows, marks = result.rows, result.marks
    labels = sorted({row.label for row in rows})
    return AuditReport(
        [_count_class(label, result) for label in labels],
        [_describe_finding(index, result) for index in sorted(result.findings)],
        count_ood(rows, result.remaining, annotations) if annotations else [],
        compute_agreement(rows, marks, annotations) if annotations and marks else None,
        [*result.notes, *([annotations.note] if annotations and annotations.note else [])],
    )


def _count_class(label: str, result: AuditResult) -> ClassCount:
    indices = [index for index, row in enumerate(result.rows) if row.label == label]
    kinds = Counter(result.findings[index].kind for index in indices if index in result.findings)
    marks = result.marks
    return ClassCount(
        label,
        len(indices),
        kinds[DAMAGED],
        kinds[DUPLICATE] + kinds[NEAR],
        kinds[LEAK] if result.num_compared else None,
        sum(index in result.other_labels for index in indices),
        int(marks.issue[indices].sum()) if marks else None,
        int(marks.outlier[indices].sum()) if marks else None,
        sum(index not in result.removed for index in indices),
    )


def _sum(counts: Sequence[ClassCount]) -> ClassCount:
    columns: dict[str, list[Any]] = {name: [getattr(count, name) for count in counts] for name in _NUMBERS}
    totals: dict[str, Any] = {name: None if None in values else sum(values) for name, values in columns.items()}
    return ClassCount("all", **totals)


def _describe_finding(index: int, result: AuditResult) -> dict[str, Any]:
    row, finding = result.rows[index], result.findings[index]
    return {
        "kind": finding.kind,
        "path": row.path,
        "label": row.label,
        "detail": finding.detail,
        "other": finding.other,
        "similarity": finding.similarity,
        "taken_out": index in result.removed,
    }
