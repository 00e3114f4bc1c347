"""Images of no class, and the keywords of crawls: what was let in, what was repaired."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..schema import Counts
from .curves import Figure, bars, line
from .observatory import NO_CLASS, stage_title
from .run_folder import Run

BINS = 20
PERCENT = (0.0, 100.0)


def open_set(run: Run) -> dict[str, Any]:
    """The panel, or the sentence that there is nothing to tell."""
    figures = [*confidences(run), *left_out(run), *separation(run), *repairs(run)]
    return {"note": _note(run, bool(figures)), "figures": figures}


def _note(run: Run, is_open: bool) -> str:
    web = run.result.web_labels if run.result else None
    if web is None:
        return (
            "" if is_open else "No crawl among the unlabeled domains, and no image that is known to be of no class."
        )
    told = []
    for name, row in web.domains.items():
        right = row.get("accuracy")
        known = "" if right is None else f", {right:.1f} % of those whose class is known are right"
        told.append(f"{name}: {row.get('kept') or 0:,.0f} of {row.get('images') or 0:,.0f} have one{known}")
    return f"Web-labels are {web.strategy}. {'; '.join(told)}."


def confidences(run: Run) -> list[Figure]:
    """How sure the networks are of images of a class and of none, in the last cycle of every stage."""
    last = {(kind, domain): cycle for kind, cycle, domain in sorted(run.labels)}
    found = []
    for (kind, domain), cycle in last.items():
        sampled = run.samples.domains.get(domain) if run.samples else None
        if sampled is None or sampled.truth is None or NO_CLASS not in sampled.truth:
            continue
        true = np.array(sampled.truth)
        sure = run.labels[kind, cycle, domain].confidence[np.array(sampled.rows, np.int64)]
        series = {"of a class": share(sure[true >= 0]), "of no class": share(sure[true == NO_CLASS])}
        title = f"Confidence in images of {domain}, cycle {cycle}: {stage_title(kind)}"
        note = f"{int((true >= 0).sum()):,} sampled images of a class, {int((true == NO_CLASS).sum()):,} of none."
        edges = [f"{100 * place // BINS}–{100 * (place + 1) // BINS}" for place in range(BINS)]
        found.append(bars(title, edges, series, x="confidence, %", y="percent of the images", note=note))
    return found


def share(sure: NDArray[np.float32]) -> list[float]:
    """Percent of the images in each of the bins from 0 to 1."""
    counts = np.histogram(np.nan_to_num(sure), bins=BINS, range=(0.0, 1.0))[0]
    return [100 * float(count) / max(1, len(sure)) for count in counts]


def _rows(run: Run, kind: str, field: str) -> dict[str, dict[int, Counts]]:
    """Counts by domain and cycle of a kind of stage, where the field is known."""
    found: dict[str, dict[int, Counts]] = {}
    for audit in run.audits:
        for name, row in audit.domains.items() if audit.kind == kind else ():
            if row.get(field) is not None:
                found.setdefault(name, {})[audit.round] = row
    return found


def left_out(run: Run) -> list[Figure]:
    """Percent of the images of no class and of a class that the clean set leaves out."""
    found = []
    for name, rows in _rows(run, "eid", "ood").items():
        series = {
            "of no class": [_missing(row["ood"], row["ood_kept"]) for row in rows.values()],
            "of a class": [
                _missing((row["images"] or 0) - (row["ood"] or 0), (row["kept"] or 0) - (row["ood_kept"] or 0))
                for row in rows.values()
            ],
        }
        names = [f"cycle {cycle}" for cycle in rows]
        title = f"Left out of the clean set of {name}"
        found.append(line(title, names, series, x="cycle", y="percent left out", bounds=PERCENT, least=10.0))
    return found


def _missing(images: float | None, kept: float | None) -> float | None:
    return 100 * (images - (kept or 0)) / images if images else None


def separation(run: Run) -> list[Figure]:
    """AUROC of the confidence: 50 is chance."""
    known = {
        f"{name}: {stage_title(kind)}": {cycle: row["ood_auroc"] for cycle, row in rows.items()}
        for kind in ("apl", "eid")
        for name, rows in _rows(run, kind, "ood_auroc").items()
    }
    cycles = sorted({cycle for values in known.values() for cycle in values})
    series = {name: [values.get(cycle) for cycle in cycles] for name, values in known.items()}
    names, note = (
        [f"cycle {cycle}" for cycle in cycles],
        "50: no better than chance. 100: every image of no class below all others.",
    )
    title = "How well a low confidence tells images of no class"
    return (
        [line(title, names, series, x="cycle", y="AUROC, %", bounds=PERCENT, least=10.0, note=note)] if series else []
    )


def repairs(run: Run) -> list[Figure]:
    """Wrong web-labels that the labels put right, and right ones that they break, per cycle."""
    found = []
    for kind in ("apl", "eid"):
        for name, rows in _rows(run, kind, "repaired").items():
            parts = {"wrong before": "web_wrong", "repaired": "repaired", "broken": "broken"}
            series = {told: [float(row.get(field) or 0) for row in rows.values()] for told, field in parts.items()}
            title = f"Web-labels of {name}: {stage_title(kind)}"
            names = [f"cycle {cycle}" for cycle in rows]
            found.append(bars(title, names, series, x="cycle", y="images", note="Kept images whose class is known."))
    return found
