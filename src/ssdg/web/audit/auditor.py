"""Audit a crawl before training on it. No file is deleted: removed images are refused in the manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...data.sources.benchmark import is_ood
from ...data.sources.manifest import KEPT, REFUSED, Manifest, Row
from ...data.sources.tree import Item
from ..store import DAMAGED
from .inspection import (
    DUPLICATE,
    LEAK,
    NEAR,
    Finding,
    find_copies,
    find_damage,
    find_leaks,
    find_other_labels,
    inspect_items,
    inspect_rows,
)
from .label_issues import Extract, Marks, expand_marks, mark_images

LABEL_ISSUE, OUTLIER, TWO_LABELS = "label-issue", "outlier", "two-labels"
AUDIT_REASONS = frozenset({DAMAGED, LEAK, DUPLICATE, NEAR, LABEL_ISSUE, OUTLIER, TWO_LABELS})
REFUSABLE = {"label-issues": LABEL_ISSUE, "outliers": OUTLIER, "two-labels": TWO_LABELS}  # values of --refuse
SPARE = "audit_spare"  # a column that users fill in: such an image is never removed
FINDING_COLUMNS = ("audit_found", "audit_other", "audit_similarity", "audit_other_labels")
MARK_COLUMNS = (
    "audit_label_issue",
    "audit_suggested",
    "audit_label_quality",
    "audit_outlier",
    "audit_outlier_score",
)


@dataclass(frozen=True)
class AuditPlan:
    """What to look for, and what to remove."""

    against: Sequence[Item] = ()  # images that must not be in the crawl
    similarity: float = 0.9  # two images at least this similar are copies
    keep_leaks: bool = False
    refuse: frozenset[str] = frozenset()  # keys of `REFUSABLE`
    outlier_rate: float = 0.1
    extract: Extract | None = None  # computes features; None: no search for label issues and outliers


@dataclass(frozen=True, eq=False)
class AuditResult:
    """The findings by index into `rows`, which are the images kept now or removed by an earlier audit.

    `removed` maps the index of each removed image to its reason and detail.
    """

    rows: Sequence[Row]
    findings: Mapping[int, Finding]
    other_labels: Mapping[int, Sequence[str]]  # other web-labels of the same image
    marks: Marks | None
    removed: Mapping[int, tuple[str, str]]
    num_compared: int = 0  # images of --against
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def remaining(self) -> list[int]:
        """The indices of the images that training will read."""
        return [index for index in range(len(self.rows)) if index not in self.removed]


def audit(root: Path, manifest: Manifest, plan: AuditPlan) -> AuditResult:
    """Find damaged files, leaks and copies, then mark the remaining images; the manifest is not changed."""
    rows = audited_rows(manifest)
    crawl, others = inspect_rows(root, rows), inspect_items(plan.against, "compare with")
    damaged, leaks = find_damage(crawl), find_leaks(crawl, others, plan.against, plan.similarity)
    spared = {index for index, row in enumerate(rows) if row.extra.get(SPARE, "").strip()}
    faulty = damaged | {index: leak for index, leak in leaks.items() if not plan.keep_leaks and index not in spared}
    intact = [index for index in range(len(rows)) if index not in faulty]
    copied = find_copies(rows, crawl, sorted(intact, key=lambda index: index not in spared), plan.similarity)
    faulty |= {index: copy for index, copy in copied.items() if index not in spared}
    labels = find_other_labels(rows, copied, [row for row in manifest.rows.values() if not row.path])
    unique = [index for index in intact if index not in faulty]
    marks = _mark_rows(root, rows, unique, plan.extract, plan.outlier_rate) if plan.extract else None
    removed = {index: (finding.kind, finding.detail) for index, finding in sorted(faulty.items())}
    removable = [index for index in unique if index not in spared]
    removed |= _remove_by_marks(removable, labels, marks, {REFUSABLE[name] for name in plan.refuse})
    findings = {**copied, **leaks, **damaged}
    notes = [*(marks.notes if marks else ()), *_note_unreadable(others.damage, plan.against)]
    return AuditResult(rows, findings, labels, marks, removed, len(plan.against), notes)


def audited_rows(manifest: Manifest) -> list[Row]:
    """Return the kept rows and those that an earlier audit removed: every audit starts over.

    Rows refused by a crawl or an ingest have no path, and rows refused by users have none of the audit reasons.
    """
    return [row for row in manifest.rows.values() if row.kept or (row.path and row.reason in AUDIT_REASONS)]


def _mark_rows(
    root: Path, rows: Sequence[Row], indices: Sequence[int], extract: Extract, outlier_rate: float
) -> Marks:
    items = [_item(root, rows[index]) for index in indices]
    labels = ["" if is_ood(rows[index].label) else rows[index].label for index in indices]
    return expand_marks(mark_images(extract(items), labels, outlier_rate), indices, len(rows))


def _item(root: Path, row: Row) -> Item:
    status = (root / row.path).stat()
    return Item(row.path, str(root / row.path), stamp=f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}")


def _remove_by_marks(
    indices: Sequence[int], labels: Mapping[int, Sequence[str]], marks: Marks | None, reasons: set[str]
) -> dict[int, tuple[str, str]]:
    """Return what --refuse removes; an image with several marks gets the first of these reasons."""
    details: dict[str, Callable[[int], str]] = {
        TWO_LABELS: lambda index: f"also found as {', '.join(labels[index])}" if index in labels else ""
    }
    if marks is not None:
        details[LABEL_ISSUE] = lambda n: f"looks like {marks.suggested[n]}" if marks.issue[n] else ""
        details[OUTLIER] = lambda n: f"outlier score {marks.outlier_score[n]}" if marks.outlier[n] else ""
    removed: dict[int, tuple[str, str]] = {}
    for reason, detail in details.items():
        matches = {index: (reason, detail(index)) for index in indices if reason in reasons and detail(index)}
        removed = matches | removed
    return removed


def _note_unreadable(damage: Mapping[int, str], items: Sequence[Item]) -> list[str]:
    if not damage:
        return []
    first = min(damage)
    return [f"{len(damage)} images of --against could not be read, the first is {items[first].path}: {damage[first]}"]


def update_manifest(manifest: Manifest, result: AuditResult) -> Manifest:
    """Return the manifest with the decisions of the audit; rows that were not audited stay unchanged."""
    columns = [*FINDING_COLUMNS, *(MARK_COLUMNS if result.marks is not None else ())]
    new_columns = [name for name in columns if name not in manifest.extra_columns]
    audited = {row.key: _update_row(row, index, result) for index, row in enumerate(result.rows)}
    rows = {key: audited.get(key, row) for key, row in manifest.rows.items()}
    return Manifest(rows, (*manifest.extra_columns, *new_columns))


def _update_row(row: Row, index: int, result: AuditResult) -> Row:
    row = replace(row, extra={**row.extra, **_audit_cells(index, result)})
    if index in result.removed:
        reason, detail = result.removed[index]
        return replace(row, state=REFUSED, reason=reason, detail=detail)
    return row if row.kept else replace(row, state=KEPT, reason="", detail="")


def _audit_cells(index: int, result: AuditResult) -> dict[str, str]:
    """Return the audit columns of one row."""
    finding, marks = result.findings.get(index), result.marks
    values: dict[str, object] = {
        "audit_found": finding.kind if finding else "",
        "audit_other": finding.other if finding else "",
        "audit_similarity": finding.similarity if finding else None,
        "audit_other_labels": ", ".join(result.other_labels.get(index, ())),
    }
    if marks is not None:
        values |= {
            "audit_label_issue": "yes" if marks.issue[index] else "",
            "audit_suggested": marks.suggested[index],
            "audit_label_quality": marks.quality[index],
            "audit_outlier": "yes" if marks.outlier[index] else "",
            "audit_outlier_score": marks.outlier_score[index],
        }
    return {name: "" if value is None else str(value) for name, value in values.items()}
