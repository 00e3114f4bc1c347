"""Compares pseudo-labels and web-labels with the hidden truth. Its figures go to the result, never to a method."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.hidden import OOD, Problem
from ..data.sets import PseudoLabels, UnlabeledSet
from ..inference.rejection import Mask, auroc, share_of

STATEMENT = (
    "Hidden labels of unlabeled and target domains were read by the auditor and the evaluator only, "
    "after the weights they describe were fixed, and copied into samples/ for reports; "
    "no method, loss, sampler or selection can import them."
)
Row = dict[str, Any]
Classes = NDArray[np.int64]


def audit_labels(labels: PseudoLabels, pool: UnlabeledSet, problem: Problem) -> dict[str, Row]:
    """Per unlabeled domain: images, kept images and, where the truth is known, percent right of all and of kept.

    Images of no class are counted apart: how many there are, how many were kept, how well not keeping an image and
    how well a low confidence tells them. Of a crawl: how many wrong web-labels the labels repair, and how many right
    ones they break.
    """
    report = {}
    for number in np.unique(pool.domain):
        here = pool.domain == number
        name = problem.domains[number]
        truth, web = problem.truth.get(name), problem.web_labels.get(name)
        y, keep = labels.y[here], labels.keep[here]
        row = {"images": len(y), "kept": int(keep.sum())}
        if truth is not None:
            row |= rightness(y, keep, truth) | strangers(keep, truth)
            row |= rejection(keep, truth, labels.confidence[here])
            row |= repairs(y, keep, truth, web) if web is not None else {}
        report[name] = row
    return report


def audit_web(problem: Problem) -> dict[str, Row]:
    """Per crawl: images, those with a web-label and, where the truth is known, percent of these that are right."""
    report = {}
    for name, web in problem.web_labels.items():
        keep, truth = web >= 0, problem.truth[name]
        row = {"images": len(web), "kept": int(keep.sum())}
        report[name] = row | rightness(web, keep, truth) | strangers(keep, truth)
    return report


def audit_domains(problem: Problem, *, are_known: bool) -> Row:
    """Where discovered domains came from. Where the true ones are known, how many images of each are in each, and the
    purity: percent of images that are of the most frequent true domain of their discovered one.
    """
    names = sorted({name for origin in problem.origin.values() for name in origin})
    table = {found: dict(Counter(origin)) for found, origin in problem.origin.items()}
    told: Row = {"of": names}
    if are_known:
        largest = sum(max(row.values()) for row in table.values())
        told["purity"] = round(100.0 * largest / sum(len(origin) for origin in problem.origin.values()), 4)
        told["true_domains"] = table
    return told


def rightness(y: Classes, keep: Mask, truth: Classes) -> Row:
    """Of the images whose class is known, how many have it."""
    known = truth >= 0
    if not known.any():
        return {}
    right = y == truth
    return {"accuracy": share_of(right[known]), "kept_accuracy": share_of(right[known & keep])}


def strangers(keep: Mask, truth: Classes) -> Row:
    """How many images of no class there are, and how many were kept."""
    strange = truth == OOD
    return {"ood": int(strange.sum()), "ood_kept": int((strange & keep).sum())} if strange.any() else {}


def rejection(keep: Mask, truth: Classes, confidence: NDArray[np.float32]) -> Row:
    """How well not being kept tells images of no class from those of a known one, and how well a low confidence does.

    Precision: of the images that were not kept, those of no class. Recall: of the images of no class, those not kept.
    Where no image is known to be of a class, recall alone means anything.
    """
    strange, known = truth == OOD, truth >= 0
    if not strange.any():
        return {}
    row: Row = {"ood_recall": share_of(~keep[strange])}
    if known.any():
        row["ood_precision"] = share_of(strange[~keep & (strange | known)])
        row["ood_auroc"] = round(100 * auroc(-confidence[strange], -confidence[known]), 4)
    return row


def repairs(y: Classes, keep: Mask, truth: Classes, web: Classes) -> Row:
    """Among kept images whose class is known: web-labels that were wrong and are right now, and the other way."""
    counted = keep & (truth >= 0) & (web >= 0)
    if not counted.any():
        return {}
    was, now = (web == truth)[counted], (y == truth)[counted]
    return {"web_wrong": int((~was).sum()), "repaired": int((~was & now).sum()), "broken": int((was & ~now).sum())}
