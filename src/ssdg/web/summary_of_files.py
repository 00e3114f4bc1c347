"""What a crawl or an ingest came to: per class what was asked, found and kept, and why the rest was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..data.sources.manifest import Manifest
from .crawl.crawler import Outcome, Plan
from .ingest import Listing, Wish
from .store import Store


@dataclass(frozen=True)
class ClassReport:
    """One class."""

    label: str
    asked: int | None
    found: int
    kept: int
    refused: dict[str, int]  # by reason, most first
    wanted: bool = True  # not for files of a class that was not asked for, or of none


@dataclass(frozen=True)
class Report:
    """All classes that were asked for."""

    classes: Sequence[ClassReport]
    notes: Sequence[str] = ()  # sentences

    @property
    def found(self) -> int:
        """Files or addresses of the classes that are wanted."""
        return sum(one.found for one in self.classes if one.wanted)

    @property
    def empty(self) -> list[ClassReport]:
        """Classes without a kept image."""
        return [one for one in self.classes if one.wanted and not one.kept]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"classes": [vars(one) for one in self.classes], "notes": list(self.notes)}


def make_report(
    manifest: Manifest, labels: Iterable[str], asked: int | None = None, notes: Sequence[str] = ()
) -> Report:
    """Count the rows of a manifest, earlier crawls into the same folder included."""
    return Report([_count(manifest, label, asked) for label in labels], notes)


def crawl_report(store: Store, plan: Plan, outcome: Outcome) -> Report:
    """The report of a crawl, with what hindered it."""
    notes = [f"{label}: the engine {plan.source} gave no more: {why}" for label, why in outcome.problems.items()]
    if store.lost:
        notes.append(f"{store.lost} files of the manifest were missing or cut off, and were forgotten")
    if outcome.stopped:
        notes.append(f"{outcome.stopped}; the same command goes on from here")
    return make_report(store.manifest, plan.labels, plan.per_class, notes)


def ingest_report(store: Store, wish: Wish, listing: Listing) -> Report:
    """The report of an ingest; files of no class or of others than asked for come last."""
    wanted = wish.classes or tuple(listing.labels)
    others = sorted({row.label for row in store.manifest.rows.values()} - set(wanted))
    told = make_report(store.manifest, wanted)
    rest = [replace(one, wanted=False) for one in make_report(store.manifest, others).classes]
    return Report([*told.classes, *rest], [listing.note] if listing.note else [])


def _count(manifest: Manifest, label: str, asked: int | None) -> ClassReport:
    rows = manifest.of(label)
    reasons = Counter(row.reason or "put aside" for row in rows if not row.kept)
    return ClassReport(label, asked, len(rows), len(rows) - reasons.total(), dict(reasons.most_common()))
