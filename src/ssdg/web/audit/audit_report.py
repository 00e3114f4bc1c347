"""The outcome of an audit in numbers and lists, checked against human annotations where they exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ...data.sources.benchmark import is_ood
from ...data.sources.manifest import Row
from ...errors import UserError
from ..store import DAMAGED
from ..untrusted import CLASS, PATH, read_table
from .auditor import Audit
from .inspection import DUPLICATE, LEAK, NEAR
from .label_issues import Marks

_WORDS = {"1": True, "yes": True, "true": True, "0": False, "no": False, "false": False, "": False}


@dataclass(frozen=True)
class Truth:
    """By the number of the row: is it of no class; and where it is told, the class that it is of."""

    ood: Mapping[int, bool]
    label: Mapping[int, str]
    note: str = ""


def read_annotations(path: Path, rows: Sequence[Row]) -> Truth:
    """A CSV file with the column `path` (or origin, of the manifest) and one of `ood` (1 or 0) and `class`."""
    table = read_table(path, None)
    if PATH not in table.columns or not {"ood", CLASS} & set(table.columns):
        raise UserError(f"'{path}' needs the column path and one of ood (1 or 0) and class; it has {table.columns}")
    places = {place: n for n, row in reversed(list(enumerate(rows))) for place in (row.origin, row.path) if place}
    known = {row.label for row in rows if not is_ood(row.label)}
    ood, label, strange = {}, {}, 0
    for line in table.rows:
        number = places.get(line[PATH])
        if number is None:
            strange += 1
        elif told := line.get(CLASS, ""):
            ood[number], label[number] = told not in known, told
        else:
            ood[number] = _is_yes(line.get("ood", ""), path)
    if not ood:
        raise UserError(
            f"none of the {len(table.rows)} paths in '{path}' is an image of this crawl; give paths or origins"
        )
    note = f"{strange} paths of '{path.name}' are no images of this crawl" if strange else ""
    return Truth(ood, label, note)


def _is_yes(word: str, path: Path) -> bool:
    if word.strip().lower() not in _WORDS:
        raise UserError(f"'{word}' in the column ood of '{path}' is neither 1 nor 0; give one of them")
    return _WORDS[word.strip().lower()]


def ood_table(rows: Sequence[Row], staying: Sequence[int], truth: Truth) -> list[dict[str, Any]]:
    """The paper's table: per class the annotated images that stay, and how many are of no class; all of them last."""
    groups: dict[str, list[bool]] = {}
    for number in staying:
        if number in truth.ood:
            groups.setdefault(rows[number].label, []).append(truth.ood[number])
    lines = [_line(label, groups[label]) for label in sorted(groups)]
    return [*lines, _line("all", [one for group in groups.values() for one in group])]


def _line(label: str, told: Sequence[bool]) -> dict[str, Any]:
    percent = round(100 * sum(told) / len(told), 2) if told else None
    return {"label": label, "images": len(told), "ood": sum(told), "ood_percent": percent}


def agreement(rows: Sequence[Row], marks: Marks, truth: Truth) -> dict[str, Any]:
    """How well the marks tell what is annotated; percent, None where there is nothing to tell apart."""
    scored = [n for n in truth.ood if marks.outlier_score[n] is not None]
    judged = [n for n in truth.label if marks.quality[n] is not None and not truth.ood[n]]
    wrong = [n for n in judged if truth.label[n] != rows[n].label]
    issues = [n for n in judged if marks.issue[n]]
    outliers = [n for n in scored if marks.outlier[n]]
    return {
        "outlier_auroc": _auroc([bool(truth.ood[n]) for n in scored], [marks.outlier_score[n] for n in scored]),
        "outliers_of_no_class": _share([truth.ood[n] for n in outliers]),
        "wrong_web_labels": len(wrong) if truth.label else None,
        "label_issues_right": _share([n in wrong for n in issues]),
        "wrong_web_labels_found": _share([bool(marks.issue[n]) for n in wrong]),
        "suggested_right": _share([marks.suggested[n] == truth.label[n] for n in wrong if marks.issue[n]]),
    }


def _auroc(positive: Sequence[bool], score: Sequence[float | None]) -> float | None:
    from sklearn.metrics import roc_auc_score

    return round(100 * float(roc_auc_score(positive, score)), 2) if len(set(positive)) == 2 else None


def _share(right: Sequence[bool]) -> float | None:
    return round(100 * sum(right) / len(right), 2) if right else None


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
