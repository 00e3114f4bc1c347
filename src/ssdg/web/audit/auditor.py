"""Look a crawl over before it is trained on. No file is deleted: what is taken out is refused in the manifest."""

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
    inspect_items,
    inspect_rows,
    other_labels,
)
from .label_issues import Extract, Marks, mark, spread

LABEL_ISSUE, OUTLIER, TWO_LABELS = "label-issue", "outlier", "two-labels"
AUDIT_REASONS = frozenset({DAMAGED, LEAK, DUPLICATE, NEAR, LABEL_ISSUE, OUTLIER, TWO_LABELS})
REFUSABLE = {"label-issues": LABEL_ISSUE, "outliers": OUTLIER, "two-labels": TWO_LABELS}  # words of --refuse
SPARE = "audit_spare"  # a column that people write: an image that is never taken out
FOUND_COLUMNS = ("audit_found", "audit_other", "audit_similarity", "audit_other_labels")
MARK_COLUMNS = (
    "audit_label_issue",
    "audit_suggested",
    "audit_label_quality",
    "audit_outlier",
    "audit_outlier_score",
)


@dataclass(frozen=True)
class Plan:
    """What to look for, and what to take out."""

    against: Sequence[Item] = ()  # images that must not be in the crawl
    similarity: float = 0.9  # from which on two images are copies
    keep_leaks: bool = False
    refuse: frozenset[str] = frozenset()  # of `REFUSABLE`
    outlier_rate: float = 0.1
    extract: Extract | None = None  # features; without them neither label issues nor outliers are looked for


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found, by the number of the row in `rows`: the images that are kept, or were before an audit.

    `taken` has the reason and the detail of what is taken out.
    """

    rows: Sequence[Row]
    findings: Mapping[int, Finding]
    labels: Mapping[int, Sequence[str]]  # other web-labels of the same image
    marks: Marks | None
    taken: Mapping[int, tuple[str, str]]
    compared: int = 0  # images of --against
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def staying(self) -> list[int]:
        """The rows that training will read."""
        return [number for number in range(len(self.rows)) if number not in self.taken]


def audit(root: Path, manifest: Manifest, plan: Plan) -> Audit:
    """Find damaged files, leaks and copies, then mark what is left; the manifest is not changed."""
    rows = audited_rows(manifest)
    seen, others = inspect_rows(root, rows), inspect_items(plan.against, "compare with")
    damaged, leaks = find_damage(seen), find_leaks(seen, others, plan.against, plan.similarity)
    spared = {number for number, row in enumerate(rows) if row.extra.get(SPARE, "").strip()}
    out = damaged | {number: leak for number, leak in leaks.items() if not plan.keep_leaks and number not in spared}
    left = [number for number in range(len(rows)) if number not in out]
    copied = find_copies(rows, seen, sorted(left, key=lambda number: number not in spared), plan.similarity)
    out |= {number: copy for number, copy in copied.items() if number not in spared}
    labels = other_labels(rows, copied, [row for row in manifest.rows.values() if not row.path])
    looked_at = [number for number in left if number not in out]
    marks = _marks(root, rows, looked_at, plan.extract, plan.outlier_rate) if plan.extract else None
    taken = {number: (found.kind, found.detail) for number, found in sorted(out.items())}
    unspared = [number for number in looked_at if number not in spared]
    taken |= _taken_by_marks(unspared, labels, marks, {REFUSABLE[word] for word in plan.refuse})
    findings = {**copied, **leaks, **damaged}
    notes = [*(marks.notes if marks else ()), *_unread(others.damage, plan.against)]
    return Audit(rows, findings, labels, marks, taken, len(plan.against), notes)


def audited_rows(manifest: Manifest) -> list[Row]:
    """The rows that are kept and those that an audit took out: every audit decides anew.

    What a crawl or an ingest refused has no path, and what people put aside has none of the reasons of an audit.
    """
    return [row for row in manifest.rows.values() if row.kept or (row.path and row.reason in AUDIT_REASONS)]


def _marks(root: Path, rows: Sequence[Row], looked_at: Sequence[int], extract: Extract, outlier_rate: float) -> Marks:
    items = [_item(root, rows[number]) for number in looked_at]
    labels = ["" if is_ood(rows[number].label) else rows[number].label for number in looked_at]
    return spread(mark(extract(items), labels, outlier_rate), looked_at, len(rows))


def _item(root: Path, row: Row) -> Item:
    about = (root / row.path).stat()
    return Item(row.path, str(root / row.path), stamp=f"{about.st_size} {about.st_mtime_ns} {about.st_ctime_ns}")


def _taken_by_marks(
    numbers: Sequence[int], labels: Mapping[int, Sequence[str]], marks: Marks | None, reasons: set[str]
) -> dict[int, tuple[str, str]]:
    """What --refuse takes out; an image with several marks has the first of these reasons."""
    details: dict[str, Callable[[int], str]] = {
        TWO_LABELS: lambda number: f"also found as {', '.join(labels[number])}" if number in labels else ""
    }
    if marks is not None:
        details[LABEL_ISSUE] = lambda n: f"looks like {marks.suggested[n]}" if marks.issue[n] else ""
        details[OUTLIER] = lambda n: f"outlier score {marks.outlier_score[n]}" if marks.outlier[n] else ""
    taken: dict[int, tuple[str, str]] = {}
    for reason, detail in details.items():
        found = {number: (reason, detail(number)) for number in numbers if reason in reasons and detail(number)}
        taken = found | taken
    return taken


def _unread(damage: Mapping[int, str], items: Sequence[Item]) -> list[str]:
    if not damage:
        return []
    first = min(damage)
    return [
        f"{len(damage)} images to compare with could not be read, the first is {items[first].path}: {damage[first]}"
    ]


def apply(manifest: Manifest, told: Audit) -> Manifest:
    """The manifest with what the audit decided; rows that it did not look at are as they were."""
    columns = [*FOUND_COLUMNS, *(MARK_COLUMNS if told.marks is not None else ())]
    more = [name for name in columns if name not in manifest.extra_columns]
    changed = {row.key: _decided(row, number, told) for number, row in enumerate(told.rows)}
    rows = {key: changed.get(key, row) for key, row in manifest.rows.items()}
    return Manifest(rows, (*manifest.extra_columns, *more))


def _decided(row: Row, number: int, told: Audit) -> Row:
    row = replace(row, extra={**row.extra, **_cells(number, told)})
    if number in told.taken:
        reason, detail = told.taken[number]
        return replace(row, state=REFUSED, reason=reason, detail=detail)
    return row if row.kept else replace(row, state=KEPT, reason="", detail="")


def _cells(number: int, told: Audit) -> dict[str, str]:
    """The columns of the audit for one row."""
    finding, marks = told.findings.get(number), told.marks
    similarity = finding.similarity if finding else None
    values: dict[str, object] = {
        "audit_found": finding.kind if finding else "",
        "audit_other": finding.other if finding else "",
        "audit_similarity": similarity,
        "audit_other_labels": ", ".join(told.labels.get(number, ())),
    }
    if marks is not None:
        values |= {
            "audit_label_issue": "yes" if marks.issue[number] else "",
            "audit_suggested": marks.suggested[number],
            "audit_label_quality": marks.quality[number],
            "audit_outlier": "yes" if marks.outlier[number] else "",
            "audit_outlier_score": marks.outlier_score[number],
        }
    return {name: "" if value is None else str(value) for name, value in values.items()}
