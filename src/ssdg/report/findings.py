"""Issues that a run's numbers show, each with the numbers behind it and what to try.

Findings are shown, never used in training: those about accuracies on unlabeled and target domains read the audits of
hidden labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

from . import domain_findings, label_findings
from .curves import target_role
from .finding import LOWER_RATE, MORE_EPOCHS, MORE_ITERATIONS, PROBE_HEAD, Finding, pretrained_advice, suggest
from .run_folder import Run

MIN_LABELED_ACCURACY = 80.0  # %: below it, pseudo-labels of other domains can hardly be better
MAX_FALL = 1.0  # percentage points that count as worse
MAX_BELOW_PROBE = 1.0  # percentage points: five of 500 held-out images, which may be chance
# Percentage points. The paper's mean on PACS is 73.8 % where held-out images are nearly all correct: 25 are usual.
MAX_GAP = 30.0
STILL_FALLING = 0.25  # the last epoch's part of a cycle's fall in loss: an even fall over four epochs


def findings(run: Run) -> list[dict[str, str]]:
    """Return all findings, warnings first."""
    rules = (*RULES[:1], *label_findings.RULES, *RULES[1:], *domain_findings.RULES)
    results = [finding for rule in rules for finding in rule(run)]
    return [asdict(finding) for finding in sorted(results, key=lambda finding: finding.level != "warning")]


def unfinished(run: Run) -> Iterator[Finding]:
    """Report a run without a result."""
    if run.result is None:
        done = f"{len(run.epochs)} epochs so far"
        yield Finding(
            "hint", "The run is not finished.", done, "If it is not running, resume it: ssdg resume FOLDER."
        )


def below_probe(run: Run) -> Iterator[Finding]:
    """Report a run that is less accurate than a linear classifier on the pretrained features."""
    if run.probe is None:
        return
    for title, reference, accuracy, margin in (
        (f"the {target_role(run)} domain", run.probe.target, run.accuracy("target"), 0.0),
        ("held-out labeled images", run.probe.validation, run.accuracy("validation"), MAX_BELOW_PROBE),
    ):
        if reference is not None and accuracy is not None and accuracy < reference - margin:
            yield Finding(
                "warning",
                f"The run is less accurate on {title} than a linear probe of the pretrained features.",
                f"{accuracy:.1f} %, probe {reference:.1f} %",
                "Ship the probe or self-training instead (--method probe, --method self-training). "
                + suggest(run, LOWER_RATE, PROBE_HEAD),
            )


def weak_on_labeled(run: Run) -> Iterator[Finding]:
    """Report networks that have not learned the labeled domain."""
    accuracies = [row.validation[-1] for row in run.product if row.validation]
    if accuracies and accuracies[-1] < MIN_LABELED_ACCURACY:
        yield Finding(
            "warning",
            "The networks have not learned the labeled domain.",
            f"accuracy {accuracies[-1]:.1f} % on its held-out images",
            f"{suggest(run, MORE_EPOCHS, MORE_ITERATIONS, LOWER_RATE)} {pretrained_advice(run)}".strip(),
        )


def wide_gap(run: Run) -> Iterator[Finding]:
    """Report a target accuracy far below that on held-out images of the labeled domain."""
    target, held_out = run.accuracy("target"), run.accuracy("validation")
    if target is not None and held_out is not None and held_out - target > MAX_GAP:
        advice = f"Add unlabeled images of further domains (--unlabeled). {pretrained_advice(run)}".rstrip()
        yield Finding(
            "hint",
            f"The accuracy on the {target_role(run)} domain is far below that on held-out labeled images.",
            f"{target:.1f} % and {held_out:.1f} %, a gap of {held_out - target:.1f} points",
            f"{advice} Do not tune settings on the {target_role(run)} domain.",
        )


def falling_target(run: Run) -> Iterator[Finding]:
    """Report later cycles that end below the first."""
    ends = {row.round: row.target[-1] for row in run.product if row.target}
    if len(ends) > 1:
        first, last = ends[min(ends)], ends[max(ends)]
        if last < first - MAX_FALL:
            yield Finding(
                "hint",
                f"The last cycle ends below the first on the {target_role(run)} domain.",
                f"{first:.1f} % after cycle {min(ends)}, {last:.1f} % after cycle {max(ends)}",
                f"Do not tune settings on the {target_role(run)} domain: look for the cause in the pseudo-labels.",
            )


def falling_loss(run: Run) -> Iterator[Finding]:
    """Report a loss that still falls at the end."""
    rows = [row for row in run.product if row.round == run.product[-1].round and "loss" in row.losses]
    values = [row.losses["loss"] for row in rows]
    if run.result is None or len(values) < 3 or values[0] <= values[-1]:
        return
    part = (values[-2] - values[-1]) / (values[0] - values[-1])
    if part > STILL_FALLING:
        number = f"{100 * part:.0f} % of its fall in this cycle"
        yield Finding("hint", "The loss is still falling in the last epoch.", number, suggest(run, MORE_EPOCHS))


RULES: tuple[Callable[[Run], Iterator[Finding]], ...] = (
    unfinished,
    below_probe,
    weak_on_labeled,
    wide_gap,
    falling_target,
    falling_loss,
)
