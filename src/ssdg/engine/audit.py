"""The auditor: compares pseudo-labels and web-labels with the hidden truth, for the result and never for a method."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.hidden import OOD, Problem
from ..data.sets import PseudoLabels, UnlabeledSet
from ..inference.rejection import Mask, auroc, share_of
from ..schema import DomainAudit

STATEMENT = (
    "Hidden labels of unlabeled and target domains were read by the auditor and the evaluator only, "
    "after the weights they describe were fixed, and copied into samples/ for reports; "
    "no method, loss, sampler or selection can import them."
)
Row = dict[str, Any]  # fields of `DomainAudit`
Classes = NDArray[np.int64]


def audit_labels(labels: PseudoLabels, pool: UnlabeledSet, problem: Problem) -> dict[str, DomainAudit]:
    """Audit the labels of every unlabeled domain of the pool.

    Counts images and selected images and, where the truth is known, their accuracy. Images of no class are counted
    separately: how many there are, how many were selected, and how well rejection and low confidence identify them.
    For a crawl, counts the wrong web-labels that the labels repair and the right ones that they break.
    """
    audits = {}
    for number in np.unique(pool.domain):
        rows = pool.domain == number
        name = problem.domains[number]
        truth, web = problem.truth.get(name), problem.web_labels.get(name)
        y, keep = labels.y[rows], labels.keep[rows]
        row: Row = {"images": len(y), "kept": int(keep.sum())}
        if truth is not None:
            row |= accuracy(y, keep, truth) | count_ood(keep, truth)
            row |= ood_detection(keep, truth, labels.confidence[rows])
            row |= repairs(y, keep, truth, web) if web is not None else {}
        audits[name] = DomainAudit(**row)
    return audits


def audit_web(problem: Problem) -> dict[str, DomainAudit]:
    """Audit the web-labels of every crawl: images, those with a web-label and, if known, their accuracy."""
    audits = {}
    for name, web in problem.web_labels.items():
        keep, truth = web >= 0, problem.truth[name]
        row = {"images": len(web), "kept": int(keep.sum())}
        audits[name] = DomainAudit(**row, **accuracy(web, keep, truth), **count_ood(keep, truth))
    return audits


def audit_domains(problem: Problem, *, are_known: bool) -> Row:
    """Compare discovered domains with the true ones, where these are known.

    Purity is the percentage of images in the majority true domain of their discovered domain.
    """
    names = sorted({name for origin in problem.origin.values() for name in origin})
    counts = {domain: dict(Counter(origin)) for domain, origin in problem.origin.items()}
    record: Row = {"of": names}
    if are_known:
        largest = sum(max(row.values()) for row in counts.values())
        record["purity"] = round(100.0 * largest / sum(len(origin) for origin in problem.origin.values()), 4)
        record["true_domains"] = counts
    return record


def accuracy(y: Classes, keep: Mask, truth: Classes) -> Row:
    """Return the accuracy (%) on images of a known class: all of them, and the selected ones."""
    known = truth >= 0
    if not known.any():
        return {}
    is_right = y == truth
    return {"accuracy": share_of(is_right[known]), "kept_accuracy": share_of(is_right[known & keep])}


def count_ood(keep: Mask, truth: Classes) -> Row:
    """Return how many images of no class there are, and how many were selected."""
    is_ood = truth == OOD
    return {"ood": int(is_ood.sum()), "ood_kept": int((is_ood & keep).sum())} if is_ood.any() else {}


def ood_detection(keep: Mask, truth: Classes, confidence: NDArray[np.float32]) -> Row:
    """Return how well not being selected, and a low confidence, identify images of no class.

    Precision: the share of images of no class among those not selected. Recall: the share not selected among images
    of no class. Without an image of a known class only recall has a meaning.
    """
    is_ood, known = truth == OOD, truth >= 0
    if not is_ood.any():
        return {}
    row: Row = {"ood_recall": share_of(~keep[is_ood])}
    if known.any():
        row["ood_precision"] = share_of(is_ood[~keep & (is_ood | known)])
        row["ood_auroc"] = round(100 * auroc(-confidence[is_ood], -confidence[known]), 4)
    return row


def repairs(y: Classes, keep: Mask, truth: Classes, web: Classes) -> Row:
    """Count, among selected images of a known class, the web-labels that the labels repair and break."""
    counted = keep & (truth >= 0) & (web >= 0)
    if not counted.any():
        return {}
    was_right, is_right = (web == truth)[counted], (y == truth)[counted]
    return {
        "web_wrong": int((~was_right).sum()),
        "repaired": int((~was_right & is_right).sum()),
        "broken": int((was_right & ~is_right).sum()),
    }
