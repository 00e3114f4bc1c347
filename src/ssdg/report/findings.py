"""Issues that a run's numbers show, each with the number behind it and what to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from ..schema import LabelKind
from .curves import target_role
from .observatory import class_names
from .run_folder import AuditRow, Run

MIN_CLEAN_ACCURACY = 50.0  # % of a clean set
MAX_CLASS_SHARE = 0.4  # of a clean set: beyond it later cycles got worse in our benchmarks
MAX_TIMES_EVEN_SHARE = 2.0
MIN_AGREEMENT = 50.0  # %
MIN_LABELED_ACCURACY = 80.0  # %
FALL = 1.0  # percentage points that count as worse
STILL_FALLING = 0.25  # the last epoch's part of a cycle's fall in loss
MAX_OOD_KEPT = 50.0  # % of the images of no known class


@dataclass(frozen=True)
class Finding:
    """One sentence, the number behind it, and what to try."""

    level: Literal["warning", "hint"]
    text: str
    number: str
    advice: str


def findings(run: Run) -> list[dict[str, str]]:
    """Return all findings, warnings first."""
    rules = (unfinished, wrong_clean_sets, dominant_classes, empty_classes, falling_labels, disagreement)
    others = (below_probe, weak_on_labeled, falling_target, falling_loss, ood_kept, broken_labels)
    results = [finding for rule in (*rules, *others) for finding in rule(run)]
    return [asdict(finding) for finding in sorted(results, key=lambda finding: finding.level != "warning")]


def suggest(run: Run, remedies: Mapping[str, str], otherwise: str = "") -> str:
    """Join the remedies whose setting the run has, such as {"labeler.epochs": "train the labelers longer"}."""
    known = [text for setting, text in remedies.items() if has_setting(run.config, setting)]
    if not known:
        return otherwise
    text = known[0] if len(known) == 1 else f"{', '.join(known[:-1])}, or {known[-1]}"
    return f"{text[0].upper()}{text[1:]}."


def has_setting(config: Mapping[str, Any], name: str) -> bool:
    """Tell whether a configuration has a setting; `labeler.epochs` is the setting `epochs` of a group."""
    group, _, rest = name.partition(".")
    if not rest:
        return group in config
    return isinstance(config.get(group), Mapping) and has_setting(config[group], rest)


def _last(run: Run, kind: LabelKind, field: str) -> list[AuditRow]:
    """Return the audit of every labeling and domain in the last cycle in which a field is known."""
    return list({(row.title, row.domain): row for row in run.audit_rows(kind, field)}.values())


def unfinished(run: Run) -> Iterator[Finding]:
    """Report a run without a result."""
    if run.result is None:
        done = f"{len(run.epochs)} epochs so far"
        yield Finding("hint", "The run is not finished.", done, "If it is not running, resume it with ssdg resume.")


def wrong_clean_sets(run: Run) -> Iterator[Finding]:
    """Report a clean set with mostly wrong labels, which teaches its errors to the next cycle."""
    for row in _last(run, "clean-set", "kept_accuracy"):
        accuracy = row.counts.kept_accuracy or 0.0
        if accuracy < MIN_CLEAN_ACCURACY:
            yield Finding(
                "warning",
                f"More than half of the labels in the clean set of {row.domain} are wrong.",
                f"accuracy {accuracy:.1f} % in cycle {row.round}",
                suggest(
                    run,
                    {
                        "clean_rate": "select fewer images (clean_rate)",
                        "labeler.epochs": "train the labelers longer (labeler.epochs)",
                        "cycles": "use fewer cycles (cycles)",
                    },
                ),
            )


def dominant_classes(run: Run) -> Iterator[Finding]:
    """Report a clean set that one class dominates."""
    names = class_names(run)
    limit = max(MAX_CLASS_SHARE, MAX_TIMES_EVEN_SHARE / max(1, len(names)))
    for labels in run.last_labels("clean-set"):
        counts = np.bincount(labels.y[labels.keep], minlength=len(names))
        if counts.sum() and counts.max() / counts.sum() > limit:
            share, name = counts.max() / counts.sum(), names[int(counts.argmax())]
            remedies = {
                "clean_choice": "select the same number of every class (clean_choice=balanced)",
                "warm_epochs": "train longer before the first cycle (warm_epochs)",
                "labeler.epochs": "train the labelers longer (labeler.epochs)",
            }
            yield Finding(
                "warning",
                f"Class {name} dominates the clean set of {labels.domain}.",
                f"{100 * share:.1f} % in cycle {labels.round}; an even share is {100 / len(names):.1f} %",
                f"Such a set makes later cycles worse. {suggest(run, remedies)}".rstrip(),
            )


def empty_classes(run: Run) -> Iterator[Finding]:
    """Report classes that no image of a domain is labeled with."""
    names = class_names(run)
    for labels in run.last_labels("pseudo-labels"):
        counts = np.bincount(labels.y[labels.keep], minlength=len(names))[: len(run.task.classes) or None]
        empty = [name for name, count in zip(names, counts, strict=False) if not count]
        remedies = {
            "labeler.epochs": "train the labelers longer (labeler.epochs)",
            "warm_epochs": "use a warm start (warm_epochs)",
        }
        if empty:
            yield Finding(
                "warning",
                f"No image of {labels.domain} gets the pseudo-label {_listed(empty)}.",
                f"{len(empty)} of {len(counts)} classes in cycle {labels.round}",
                f"No problem if the domain has no such images. {suggest(run, remedies)}".rstrip(),
            )


def _listed(names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def falling_labels(run: Run) -> Iterator[Finding]:
    """Report pseudo-labels that get worse from cycle to cycle."""
    accuracies: dict[tuple[str, str], list[float]] = {}
    for row in run.audit_rows("pseudo-labels", "accuracy"):
        accuracies.setdefault((row.title, row.domain), []).append(row.counts.accuracy or 0.0)
    for (_, domain), values in accuracies.items():
        if len(values) > 1 and values[-1] < values[0] - FALL:
            yield Finding(
                "warning",
                f"Pseudo-labels of {domain} get worse from cycle to cycle.",
                f"accuracy {values[0]:.1f} % in the first cycle, {values[-1]:.1f} % in the last",
                suggest(
                    run,
                    {
                        "cycles": "use fewer cycles (cycles)",
                        "clean_rate": "select fewer images (clean_rate)",
                        "clean_choice": "select the same number of every class (clean_choice=balanced)",
                    },
                ),
            )


def disagreement(run: Run) -> Iterator[Finding]:
    """Report networks that mostly disagree."""
    for labels in run.last_labels("clean-set"):
        if labels.agreement is not None and labels.agreement < MIN_AGREEMENT:
            yield Finding(
                "warning",
                f"The networks agree on less than half of {labels.domain}.",
                f"{labels.agreement:.1f} % in cycle {labels.round}",
                suggest(
                    run,
                    {
                        "epochs": "train longer (epochs)",
                        "iterations": "train longer epochs (iterations)",
                        "lr": "lower the learning rate (lr)",
                    },
                ),
            )


def weak_on_labeled(run: Run) -> Iterator[Finding]:
    """Report networks that have not learned the labeled domain."""
    accuracies = [row.validation[-1] for row in run.product if row.validation]
    if accuracies and accuracies[-1] < MIN_LABELED_ACCURACY:
        yield Finding(
            "warning",
            "The networks have not learned the labeled domain.",
            f"accuracy {accuracies[-1]:.1f} % on its held-out images",
            "Train longer (epochs, iterations), change lr, or start from pretrained weights.",
        )


def below_probe(run: Run) -> Iterator[Finding]:
    """Report a run that is less accurate than a linear classifier on the pretrained features."""
    if run.result is None or run.result.probe is None:
        return
    probe = run.result.probe
    for title, reference, scores in (
        (f"the {target_role(run)} domain", probe.target, run.result.target),
        ("held-out labeled images", probe.validation, run.result.validation),
    ):
        if reference is not None and scores is not None:
            accuracy = scores.final["mean"]
            if accuracy < reference:
                yield Finding(
                    "warning",
                    f"The run is less accurate on {title} than a linear probe of the pretrained features.",
                    f"{accuracy:.1f} %, probe {reference:.1f} %",
                    "Ship the probe or self-training instead (--method probe or self-training), or freeze more "
                    "layers (freeze), lower lr, or start from the probe (head=probe).",
                )
            return  # the target decides; held-out images only where it has no labels


def falling_target(run: Run) -> Iterator[Finding]:
    """Report later cycles that end below the first."""
    ends = {row.round: row.target[-1] for row in run.product if row.target}
    if len(ends) > 1:
        first, last = ends[min(ends)], ends[max(ends)]
        if last < first - FALL:
            yield Finding(
                "hint",
                "The last cycle ends below the first on the unseen domain.",
                f"{first:.1f} % after cycle {min(ends)}, {last:.1f} % after cycle {max(ends)}",
                "Do not tune settings on the unseen domain: look for the cause in the pseudo-labels.",
            )


def falling_loss(run: Run) -> Iterator[Finding]:
    """Report a loss that still falls at the end."""
    rows = [row for row in run.product if row.round == run.product[-1].round and "loss" in row.losses]
    values = [row.losses["loss"] for row in rows]
    if run.result is None or len(values) < 3 or values[0] <= values[-1]:
        return
    part = (values[-2] - values[-1]) / (values[0] - values[-1])
    if part > STILL_FALLING:
        yield Finding(
            "hint",
            "The loss is still falling in the last epoch.",
            f"{100 * part:.0f} % of its fall in this cycle",
            "More epochs may help.",
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
                suggest(
                    run,
                    {
                        "clean_rate": "select fewer images (clean_rate)",
                        "apl": "use a labeler that rejects them (apl=osbp)",
                    },
                ),
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
        return "The keywords are more accurate: refine them (--web-label refined) or trust them (retained)."
    remedies = {"warm_epochs": "train longer before the first cycle (warm_epochs)", "epochs": "train longer (epochs)"}
    keywords = {"web_label": "trust the keywords (--web-label retained)"}
    return f"The networks override keywords too early. {suggest(run, {**remedies, **keywords})}"
