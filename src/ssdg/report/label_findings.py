"""Findings about pseudo-labels and clean sets: wrong, unbalanced, or worse from cycle to cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..schema import LabelKind
from .finding import (
    FEWER_CYCLES,
    LONGER_LABELERS,
    LONGER_START,
    LOWER_RATE,
    MORE_EPOCHS,
    MORE_ITERATIONS,
    OPEN_LABELER,
    SELECT_EVENLY,
    SELECT_FEWER,
    Finding,
    listed,
    suggest,
)
from .observatory import class_names
from .run_folder import AuditRow, Labels, Run

KINDS: tuple[LabelKind, ...] = ("pseudo-labels", "clean-set")
NAMES: dict[LabelKind, str] = {"pseudo-labels": "pseudo-labels", "clean-set": "clean set"}
# The field of an audit with the accuracy of the labels used for training, by kind.
FIELDS: dict[LabelKind, str] = {"pseudo-labels": "accuracy", "clean-set": "kept_accuracy"}
MIN_ACCURACY = 50.0  # %: below it, most labels teach an error
MAX_CLASS_SHARE = 0.4  # of the labels: beyond it later cycles got worse in our benchmarks
MAX_TIMES_EVEN_SHARE = 2.0  # with few classes, 40 % may be an even share
MIN_TIMES_EVEN_SHARE = 0.2  # below it, a class has fewer than one label where an even set has five
MIN_AGREEMENT = 50.0  # %: below it, networks contradict each other more often than not
# Percentage points that count as worse. Pseudo-labels are of the same images in every cycle; clean sets are not, so
# their accuracy varies by a few points anyway.
MAX_FALL: dict[LabelKind, float] = {"pseudo-labels": 1.0, "clean-set": 5.0}
# Without the truth, worse labels are inferred; the limits are wide, because each of these also varies in good runs.
MAX_AGREEMENT_FALL = 5.0  # percentage points
MAX_CHANGE_RISE = 5.0  # percentage points: labels that change more in later cycles do not settle
MAX_BALANCE_FALL = 0.1  # part of the effective number of classes that is lost
MAX_OOD_KEPT = 50.0  # % of the images of no known class
Counts = NDArray[np.int64]


def _last(run: Run, kind: LabelKind, field: str) -> list[AuditRow]:
    """Return the last audit of every domain in which a field is known; rounds before it are not in use any more."""
    rows = run.audit_rows(kind, field)
    return list({run.lineage(kind, row.title, row.domain): row for row in rows}.values())


def wrong_labels(run: Run) -> Iterator[Finding]:
    """Report labels that are mostly wrong and teach their errors to the next cycle."""
    for kind in KINDS:
        for row in _last(run, kind, FIELDS[kind]):
            accuracy = getattr(row.counts, FIELDS[kind])
            if accuracy < MIN_ACCURACY:
                labels = "labels in the clean set" if kind == "clean-set" else "pseudo-labels"
                yield Finding(
                    "warning",
                    f"More than half of the {labels} of {row.domain} are wrong.",
                    f"accuracy {accuracy:.1f} % in cycle {row.round}",
                    suggest(run, *SELECT_FEWER, LONGER_LABELERS, FEWER_CYCLES),
                )


def _class_counts(labels: Labels, num_names: int) -> Counts:
    return np.bincount(labels.y[labels.keep], minlength=num_names)


def dominant_classes(run: Run) -> Iterator[Finding]:
    """Report pseudo-labels and clean sets that one class dominates."""
    names = class_names(run)
    limit = max(MAX_CLASS_SHARE, MAX_TIMES_EVEN_SHARE / max(1, len(names)))
    for kind in KINDS:
        for labels in run.last_labels(kind):
            counts = _class_counts(labels, len(names))
            if not counts.sum() or counts.max() / counts.sum() <= limit:
                continue
            share, name = counts.max() / counts.sum(), names[int(counts.argmax())]
            advice = suggest(run, SELECT_EVENLY, LONGER_START, LONGER_LABELERS)
            yield Finding(
                "warning",
                f"Class {name} dominates the {NAMES[kind]} of {labels.domain}.",
                f"{100 * share:.1f} % in cycle {labels.round}; an even share is {100 / len(names):.1f} %",
                f"Such labels make later cycles worse. {advice}".rstrip(),
            )


def missing_classes(run: Run) -> Iterator[Finding]:
    """Report classes with no or few labels; those of a clean set only if the pseudo-labels had them."""
    reported: set[tuple[str, str]] = set()
    for kind in KINDS:
        for labels in run.last_labels(kind):
            names = class_names(run)[: len(run.task.classes) or None]
            counts = _class_counts(labels, len(class_names(run)))[: len(names)]
            if counts.sum() < len(names):  # too few labels for one of every class
                continue
            known = {n: int(c) for n, c in zip(names, counts, strict=True) if (labels.domain, n) not in reported}
            even = counts.sum() / len(names)
            empty = [name for name, count in known.items() if not count]
            few = [name for name, count in known.items() if 0 < count < MIN_TIMES_EVEN_SHARE * even]
            reported |= {(labels.domain, name) for name in empty + few}
            if empty:
                number = f"{len(empty)} of {len(names)} classes in cycle {labels.round}"
                yield Finding("warning", _missing(labels, empty, "no"), number, _missing_advice(run))
            if few:
                parts = [f"{known[name]:,} of class {name}" for name in few]
                number = f"{listed(parts, 'and')} in cycle {labels.round}; an even share is {even:,.0f}"
                yield Finding("hint", _missing(labels, few, "few"), number, _missing_advice(run))


def _missing(labels: Labels, names: list[str], how_many: str) -> str:
    if labels.kind == "clean-set":
        classes = "class" if len(names) == 1 else "classes"
        return f"The clean set of {labels.domain} has {how_many} images of {classes} {listed(names, 'and')}."
    selected = "" if labels.keep.all() else "selected "
    images, verb = (f"No {selected}image", "has") if how_many == "no" else (f"Few {selected}images", "have")
    return f"{images} of {labels.domain} {verb} the pseudo-label {listed(names, 'or')}."


def _missing_advice(run: Run) -> str:
    advice = suggest(run, SELECT_EVENLY, LONGER_LABELERS, LONGER_START) or suggest(run, MORE_ITERATIONS, MORE_EPOCHS)
    return f"Not an issue if the domain has hardly any such images. {advice}".rstrip()


def falling_labels(run: Run) -> Iterator[Finding]:
    """Report labels whose accuracy in the last cycle is below that of an earlier one."""
    for kind in KINDS:
        accuracies: dict[tuple[str, str], dict[int, float]] = {}  # the last labeling of every cycle counts
        for row in run.audit_rows(kind, FIELDS[kind]):
            by_cycle = accuracies.setdefault(run.lineage(kind, row.title, row.domain), {})
            by_cycle[row.round] = getattr(row.counts, FIELDS[kind])
        for (_, domain), by_cycle in accuracies.items():
            values = [(accuracy, cycle) for cycle, accuracy in by_cycle.items()]
            (best, best_cycle), (last, last_cycle) = max(values), values[-1]
            if last < best - MAX_FALL[kind]:
                yield Finding(
                    "warning",
                    _worse(kind, domain),
                    f"accuracy {best:.1f} % in cycle {best_cycle}, {last:.1f} % in cycle {last_cycle}",
                    suggest(run, FEWER_CYCLES, *SELECT_FEWER, SELECT_EVENLY),
                )


def _worse(kind: LabelKind, domain: str) -> str:
    if kind == "clean-set":
        return f"The clean set of {domain} gets worse from cycle to cycle."
    return f"Pseudo-labels of {domain} get worse from cycle to cycle."


def drifting_labels(run: Run) -> Iterator[Finding]:
    """Report signs that labels get worse, for domains whose true classes are not known."""
    audited = {(row.title, row.domain) for kind in KINDS for row in run.audit_rows(kind, FIELDS[kind])}
    for labels in run.last_labels():
        cycles = run.labels_of(labels.title, labels.domain)
        if (labels.title, labels.domain) in audited or len(cycles) < 2:
            continue
        signs = [sign for rule in (_less_agreement, _less_balance, _less_stable) if (sign := rule(cycles))]
        if signs:
            yield Finding(
                "hint",
                f"The {NAMES[labels.kind]} of {labels.domain} may be getting worse from cycle to cycle.",
                "; ".join(signs),
                "Its true classes are not known, so check the thumbnails below. "
                + suggest(run, FEWER_CYCLES, *SELECT_FEWER, SELECT_EVENLY),
            )


def _less_agreement(cycles: list[Labels]) -> str:
    first, last = cycles[0].agreement, cycles[-1].agreement
    if first is None or last is None or first - last <= MAX_AGREEMENT_FALL:
        return ""
    return f"agreement of the votes {_both(cycles, f'{first:.1f} %', f'{last:.1f} %')}"


def _less_balance(cycles: list[Labels]) -> str:
    first, last = (effective_classes(labels) for labels in (cycles[0], cycles[-1]))
    if last >= (1 - MAX_BALANCE_FALL) * first:
        return ""
    return f"effective number of classes {_both(cycles, f'{first:.1f}', f'{last:.1f}')}"


def effective_classes(labels: Labels) -> float:
    """Return exp(entropy) of the selected labels: K if all K classes have the same number of labels."""
    counts = np.bincount(labels.y[labels.keep])
    shares = counts[counts > 0] / max(1, counts.sum())
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _less_stable(cycles: list[Labels]) -> str:
    """Compare the first change of cycle with the last; there are two changes from three cycles on."""
    if len(cycles) < 3:
        return ""
    first, last = _changed_share(*cycles[:2]), _changed_share(*cycles[-2:])
    if last - first <= MAX_CHANGE_RISE:
        return ""
    return f"changed labels {_both(cycles[1:], f'{first:.1f} %', f'{last:.1f} %')}"


def _both(cycles: list[Labels], first: str, last: str) -> str:
    return f"{first} in cycle {cycles[0].round}, {last} in cycle {cycles[-1].round}"


def _changed_share(before: Labels, after: Labels) -> float:
    return 100 * float((before.y != after.y).mean()) if len(before.y) == len(after.y) > 0 else 0.0


def disagreement(run: Run) -> Iterator[Finding]:
    """Report networks that mostly disagree."""
    for labels in run.last_labels("clean-set"):
        if labels.agreement is not None and labels.agreement < MIN_AGREEMENT:
            yield Finding(
                "warning",
                f"The networks agree on less than half of {labels.domain}.",
                f"{labels.agreement:.1f} % in cycle {labels.round}",
                suggest(run, MORE_EPOCHS, MORE_ITERATIONS, LOWER_RATE),
            )


def ood_kept(run: Run) -> Iterator[Finding]:
    """Report clean sets that contain many images of no known class."""
    for row in _last(run, "clean-set", "ood_kept"):
        images, kept = row.counts.ood or 0, row.counts.ood_kept or 0
        if images and 100 * kept / images > MAX_OOD_KEPT:
            yield Finding(
                "warning",
                f"Most images of no known class stay in the clean set of {row.domain}.",
                f"{kept:,} of {images:,} in cycle {row.round}",
                suggest(run, *SELECT_FEWER, OPEN_LABELER),
            )


def broken_labels(run: Run) -> Iterator[Finding]:
    """Report labels that break more web-labels than they repair."""
    for row in _last(run, "clean-set", "repaired"):
        broken, repaired = row.counts.broken or 0, row.counts.repaired or 0
        if broken > repaired:
            yield Finding(
                "warning",
                f"The labels of {row.domain} break more web-labels than they repair.",
                f"{broken:,} broken, {repaired:,} repaired in cycle {row.round}",
                _web_advice(run),
            )


def _web_advice(run: Run) -> str:
    if run.config.get("web_label") != "refined":
        return "The keywords are more accurate. Refine them (--web-label refined) or use them (--web-label retained)."
    start = "The networks override keywords too early. Use the keywords (--web-label retained)."
    return f"{start} {suggest(run, LONGER_START, MORE_EPOCHS)}".rstrip()


RULES: tuple[Callable[[Run], Iterator[Finding]], ...] = (
    wrong_labels,
    dominant_classes,
    missing_classes,
    falling_labels,
    drifting_labels,
    disagreement,
    ood_kept,
    broken_labels,
)
