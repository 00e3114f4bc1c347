"""What stands out in a run's figures, in plain words, each with the number that says so and what to try."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from .observatory import class_names
from .run_folder import Run

LEAST_RIGHT = 50.0  # percent of a clean set
MOST_OF_ONE_CLASS = 0.4  # of a clean set: beyond it later cycles got worse in our benchmarks
TIMES_ITS_SHARE = 2.0
LEAST_AGREED = 50.0
LEAST_ON_LABELED = 80.0
FALL = 1.0  # points of percent that count as worse
STILL_FALLING = 0.25  # the last epoch's part of what a cycle's loss fell
MOST_STRANGERS = 50.0  # percent of images of no class that are kept
ADVICE = {  # by what is done with web-labels
    "ignored": "The keywords know better: let them have a say (--web-label refined), or trust them (retained).",
    "refined": "The networks overrule keywords too early: train longer first (warm_epochs, epochs), or trust the "
    "keywords (--web-label retained).",
}


@dataclass(frozen=True)
class Finding:
    """One sentence, the number behind it, and what to try."""

    level: Literal["warning", "hint"]
    text: str
    number: str
    advice: str


def findings(run: Run) -> list[dict[str, str]]:
    """All that stands out, warnings first."""
    rules = (unfinished, wrong_clean_sets, one_class, empty_classes, falling_labels, disagreement)
    others = (weak_on_labeled, falling_target, falling_loss, strangers, broken_labels)
    found = [finding for rule in (*rules, *others) for finding in rule(run)]
    return [asdict(finding) for finding in sorted(found, key=lambda one: one.level != "warning")]


def _last(run: Run, kind: str, field: str) -> Iterator[tuple[str, int, dict[str, float | None]]]:
    """The counts of every domain in the last cycle in which a field is known."""
    found = {}
    for audit in run.audits:
        for name, row in audit.domains.items() if audit.kind == kind else ():
            if row.get(field) is not None:
                found[name] = (name, audit.round, row)
    yield from found.values()


def unfinished(run: Run) -> Iterator[Finding]:
    """A run without a result."""
    if run.result is None:
        done = f"{len(run.epochs)} epochs so far"
        yield Finding(
            "hint", "The run has not ended.", done, "If nothing runs any more, ssdg resume goes on with it."
        )


def wrong_clean_sets(run: Run) -> Iterator[Finding]:
    """A clean set that is wrong more often than right teaches its mistakes to the next cycle."""
    for name, cycle, row in _last(run, "eid", "kept_accuracy"):
        right = row["kept_accuracy"] or 0.0
        if right < LEAST_RIGHT:
            yield Finding(
                "warning",
                f"More than half of the clean set of {name} is wrong.",
                f"{right:.1f} % right in cycle {cycle}",
                "Keep fewer (clean_rate), train the labelers longer (labeler.epochs), or stop after fewer cycles.",
            )


def one_class(run: Run) -> Iterator[Finding]:
    """A clean set in which one class crowds out the others."""
    names = class_names(run)
    limit = max(MOST_OF_ONE_CLASS, TIMES_ITS_SHARE / max(1, len(names)))
    for domain in run.task.unlabeled:
        cycles = [cycle for kind, cycle, owner in run.labels if (kind, owner) == ("eid", domain)]
        if not cycles:
            continue
        labels = run.labels["eid", max(cycles), domain]
        counts = np.bincount(labels.y[labels.keep], minlength=len(names))
        if counts.sum() and counts.max() / counts.sum() > limit:
            share, name = counts.max() / counts.sum(), names[int(counts.argmax())]
            yield Finding(
                "warning",
                f"Class {name} crowds the clean set of {domain}.",
                f"{100 * share:.1f} % of it in cycle {max(cycles)}, where an even share is {100 / len(names):.1f} %",
                "Take as many of every class (clean_choice=balanced), or train longer before the first cycle "
                "(warm_epochs, labeler.epochs): such a set makes later cycles worse.",
            )


def empty_classes(run: Run) -> Iterator[Finding]:
    """Classes that no image of a domain is labeled with."""
    names = class_names(run)
    for domain in run.task.unlabeled:
        cycles = [cycle for kind, cycle, owner in run.labels if (kind, owner) == ("apl", domain)]
        if not cycles:
            continue
        labels = run.labels["apl", max(cycles), domain]
        counts = np.bincount(labels.y[labels.keep], minlength=len(names))[: len(run.task.classes) or None]
        empty = [name for name, count in zip(names, counts, strict=False) if not count]
        if empty:
            yield Finding(
                "warning",
                f"No image of {domain} gets the pseudo-label {_listed(empty)}.",
                f"{len(empty)} of {len(counts)} classes in cycle {max(cycles)}",
                "If the domain has such images, train the labelers longer (labeler.epochs) or start them warm "
                "(warm_epochs); if it has none, nothing is wrong.",
            )


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def falling_labels(run: Run) -> Iterator[Finding]:
    """Pseudo-labels that get worse with the cycles."""
    known: dict[str, list[float]] = {}
    for audit in run.audits:
        for name, row in audit.domains.items() if audit.kind == "apl" else ():
            if row.get("accuracy") is not None:
                known.setdefault(name, []).append(row["accuracy"] or 0.0)
    for name, values in known.items():
        if len(values) > 1 and values[-1] < values[0] - FALL:
            yield Finding(
                "warning",
                f"Pseudo-labels of {name} get worse from cycle to cycle.",
                f"{values[0]:.1f} % right in the first, {values[-1]:.1f} % in the last",
                "The intermediate domain misleads its labeler: use fewer cycles, or a cleaner set "
                "(clean_rate, clean_choice=balanced).",
            )


def disagreement(run: Run) -> Iterator[Finding]:
    """Two networks that mostly do not agree."""
    last = {domain: cycle for kind, cycle, domain in sorted(run.labels) if kind == "eid"}
    for domain, cycle in last.items():
        labels = run.labels["eid", cycle, domain]
        agreed = 100 * float(labels.agreed.mean()) if len(labels.y) and len(labels.votes) > 1 else 100.0
        if agreed < LEAST_AGREED:
            yield Finding(
                "warning",
                f"The two networks agree on less than half of {domain}.",
                f"{agreed:.1f} % in cycle {cycle}",
                "Only what they agree on can be kept: train longer (epochs, iterations) or with a smaller lr.",
            )


def weak_on_labeled(run: Run) -> Iterator[Finding]:
    """Networks that have not learned the labeled domain itself."""
    scored = [row.validation[-1] for row in run.product if row.validation]
    if scored and scored[-1] < LEAST_ON_LABELED:
        yield Finding(
            "warning",
            "The networks have not learned the labeled domain itself.",
            f"{scored[-1]:.1f} % of its held-out images are right",
            "Training was too short or too fast: more epochs or iterations, another lr, pretrained weights.",
        )


def falling_target(run: Run) -> Iterator[Finding]:
    """Later cycles that end below the first."""
    ends = {row.round: row.target[-1] for row in run.product if row.target}
    if len(ends) > 1:
        first, last = ends[min(ends)], ends[max(ends)]
        if last < first - FALL:
            yield Finding(
                "hint",
                "The last cycle ends below the first on the unseen domain.",
                f"{first:.1f} % after cycle {min(ends)}, {last:.1f} % after cycle {max(ends)}",
                "The unseen domain must not choose the settings: look at the clean sets for the reason.",
            )


def falling_loss(run: Run) -> Iterator[Finding]:
    """A loss that still falls at the end."""
    rows = [row for row in run.product if row.round == run.product[-1].round and "loss" in row.losses]
    values = [row.losses["loss"] for row in rows]
    if run.result is None or len(values) < 3 or values[0] <= values[-1]:
        return
    part = (values[-2] - values[-1]) / (values[0] - values[-1])
    if part > STILL_FALLING:
        yield Finding(
            "hint",
            "The loss is still falling in the last epoch.",
            f"{100 * part:.0f} % of what it fell in this cycle",
            "More epochs may help.",
        )


def strangers(run: Run) -> Iterator[Finding]:
    """Clean sets that take images of no class in."""
    for name, cycle, row in _last(run, "eid", "ood_kept"):
        images, kept = row.get("ood") or 0.0, row["ood_kept"] or 0.0
        if images and 100 * kept / images > MOST_STRANGERS:
            yield Finding(
                "warning",
                f"Most images of no class stay in the clean set of {name}.",
                f"{kept:,.0f} of {images:,.0f} in cycle {cycle}",
                "Lower clean_rate, or let the labeler refuse them (apl=osbp).",
            )


def broken_labels(run: Run) -> Iterator[Finding]:
    """Labels that break more web-labels than they repair."""
    for name, cycle, row in _last(run, "eid", "repaired"):
        broken, repaired = row.get("broken") or 0.0, row["repaired"] or 0.0
        if broken > repaired:
            yield Finding(
                "warning",
                f"The labels of {name} break more web-labels than they repair.",
                f"{broken:,.0f} broken, {repaired:,.0f} repaired in cycle {cycle}",
                ADVICE.get(str(run.config.get("web_label")), ADVICE["ignored"]),
            )
