"""The open-set panel: images of no known class, and the keywords of crawls as labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..schema import DomainAudit, LabelKind
from .curves import PERCENT, Figure, bars, line
from .observatory import NO_CLASS
from .run_folder import Run

BINS = 20
KINDS: tuple[LabelKind, ...] = ("pseudo-labels", "clean-set")
KNOWN, NONE = "known class", "no known class"


def open_set(run: Run) -> dict[str, Any]:
    """Return the panel, or a sentence if there is nothing to show."""
    figures = [*confidences(run), *discarded(run), *separation(run), *repairs(run)]
    return {"note": _note(run, bool(figures)), "figures": figures}


def _note(run: Run, is_open: bool) -> str:
    web = run.result.web_labels if run.result else None
    if web is None:
        return "" if is_open else "This run has no crawls and no images known to be of no known class."
    parts = []
    for name, row in web.domains.items():
        known = "" if row.accuracy is None else f", {row.accuracy:.1f} % accurate where the class is known"
        parts.append(f"{name}: {row.kept:,} of {row.images:,} images have one{known}")
    return f"Web-labels are {web.strategy}. {'; '.join(parts)}."


def confidences(run: Run) -> list[Figure]:
    """Return the confidence on images of a known class and of none, in the last cycle of every labeling."""
    figures = []
    for labels in run.last_labels():
        domain = run.samples.domains.get(labels.domain) if run.samples else None
        if domain is None or domain.truth is None or NO_CLASS not in domain.truth:
            continue
        true = np.array(domain.truth)
        confidence = labels.confidence[np.array(domain.rows, np.int64)]
        series = {KNOWN: histogram(confidence[true >= 0]), NONE: histogram(confidence[true == NO_CLASS])}
        title = f"Confidence on {labels.domain}, cycle {labels.round}: {labels.title}"
        note = (
            f"Sampled images: {int((true >= 0).sum()):,} of a {KNOWN}, {int((true == NO_CLASS).sum()):,} of {NONE}."
        )
        edges = [f"{100 * bin // BINS}–{100 * (bin + 1) // BINS}" for bin in range(BINS)]
        figures.append(bars(title, edges, series, x="confidence (%)", y="images (%)", note=note))
    return figures


def histogram(confidence: NDArray[np.float32]) -> list[float]:
    """Return the share of images (%) in each bin from 0 to 1."""
    counts = np.histogram(np.nan_to_num(confidence), bins=BINS, range=(0.0, 1.0))[0]
    return [100 * float(count) / max(1, len(confidence)) for count in counts]


Audited = dict[tuple[str, str], dict[int, DomainAudit]]  # by title and domain, then by cycle


def _audited(run: Run, kind: LabelKind, field: str) -> Audited:
    """Return the audits of a kind in which a field is known."""
    audited: Audited = {}
    for row in run.audit_rows(kind, field):
        audited.setdefault((row.title, row.domain), {})[row.round] = row.counts
    return audited


def discarded(run: Run) -> list[Figure]:
    """Return the share of images (%) of a known class and of none that the clean set discards."""
    figures = []
    several = len(run.titles("clean-set")) > 1
    for (title, domain), rows in _audited(run, "clean-set", "ood").items():
        counts = [(row.images, row.kept, row.ood or 0, row.ood_kept or 0) for row in rows.values()]
        series = {
            KNOWN: [_discarded_share(n - ood, kept - ood_kept) for n, kept, ood, ood_kept in counts],
            NONE: [_discarded_share(ood, ood_kept) for _, _, ood, ood_kept in counts],
        }
        names = [f"cycle {cycle}" for cycle in rows]
        caption = f"Discarded from the clean set of {domain}{f': {title}' if several else ''}"
        figures.append(line(caption, names, series, x="cycle", y="discarded (%)", bounds=PERCENT, least=10.0))
    return figures


def _discarded_share(images: int, kept: int) -> float | None:
    return 100 * (images - kept) / images if images else None


def separation(run: Run) -> list[Figure]:
    """Return the AUROC of low confidence as a detector of images of no known class."""
    known = {
        f"{domain}: {title}": {cycle: row.ood_auroc for cycle, row in rows.items()}
        for kind in KINDS
        for (title, domain), rows in _audited(run, kind, "ood_auroc").items()
    }
    if not known:
        return []
    cycles = sorted({cycle for values in known.values() for cycle in values})
    series = {name: [values.get(cycle) for cycle in cycles] for name, values in known.items()}
    names = [f"cycle {cycle}" for cycle in cycles]
    title = "Detection of images of no known class by low confidence"
    note = "50: chance. 100: every image of no known class has a lower confidence than all others."
    return [line(title, names, series, x="cycle", y="AUROC (%)", bounds=PERCENT, least=10.0, note=note)]


def repairs(run: Run) -> list[Figure]:
    """Return wrong web-labels that the labels repair, and right ones that they break, per cycle."""
    figures = []
    for kind in KINDS:
        for (title, domain), rows in _audited(run, kind, "repaired").items():
            series = {
                "wrong before": [float(row.web_wrong or 0) for row in rows.values()],
                "repaired": [float(row.repaired or 0) for row in rows.values()],
                "broken": [float(row.broken or 0) for row in rows.values()],
            }
            names = [f"cycle {cycle}" for cycle in rows]
            note = "Selected images whose class is known."
            figures.append(bars(f"Web-labels of {domain}: {title}", names, series, x="cycle", y="images", note=note))
    return figures
