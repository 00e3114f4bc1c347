"""Small-loss selection: which samples count as clean."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from .classification import require_rows

Choice = Literal["whole", "per-class", "balanced"]


def clean_rate(epoch: int, *, ramp_epochs: float, delta: float) -> float:
    """r(t+1) = 1 − min(t/T_k · δ, δ) of Algorithm 1, with `epoch` = t counted from 0, so that r starts at 1."""
    return 1.0 - min(epoch / ramp_epochs * delta, delta)


def num_selected(total: int, rate: float) -> int:
    """The smallest integer that is at least `rate`·`total`, and at least 1 unless `total` is 0."""
    # The margin keeps 0.07 · 100 = 7.000000000000001 at 7.
    return min(total, max(1, math.ceil(rate * total - 1e-9)))


def small_loss_rows(losses: Tensor, rate: float) -> Tensor:
    """Rows of the |U'| ≥ r|U| samples with the smallest loss (Algorithm 1): (num_selected,), smallest first."""
    require_rows(losses, "small_loss_rows")
    return losses.topk(num_selected(len(losses), rate), largest=False).indices


def clean_mask(
    logits: Tensor,
    rate: float,
    *,
    choice: Choice = "whole",
    first_only: bool = False,
    eligible: Tensor | None = None,
) -> Tensor:
    """Select the clean set: networks agree (Eq. agreement), then small loss at `rate` (Eq. small_loss). (n,) bool.

    `logits` is (networks, n, K). A sample's loss is its cross-entropy against the agreed class, summed over
    the networks, or of the first alone with `first_only`. The smallest losses are taken from all agreed samples
    (`whole`), from each agreed class at the same rate (`per-class`), or equally many from each agreed class
    (`balanced`): classes are cut to a common size, the smallest that selects at least `rate` of all.
    Samples outside of `eligible` (n,) count as not agreed.
    """
    votes = logits.argmax(-1)
    agreed = (votes == votes[0]).all(0)
    if eligible is not None:
        agreed &= eligible
    log_probs = logits.log_softmax(-1).gather(-1, votes[0].expand(len(logits), -1).unsqueeze(-1)).squeeze(-1)
    losses = -(log_probs[0] if first_only else log_probs.sum(0))
    masks = [agreed] if choice == "whole" else [agreed & (votes[0] == k) for k in range(logits.shape[-1])]
    groups = [rows for mask in masks if len(rows := mask.nonzero().squeeze(-1))]
    sizes = [len(rows) for rows in groups]
    counts = balanced_counts(sizes, rate) if choice == "balanced" else [num_selected(size, rate) for size in sizes]
    selected = torch.zeros_like(agreed)
    for rows, count in zip(groups, counts, strict=True):
        selected[rows[losses[rows].topk(count, largest=False).indices]] = True
    return selected


def fair_share_mask(probs: Tensor, rate: float) -> Tensor:
    """Select the most confident samples of every predicted class: at most `rate` · n / K of each, and at least 1.

    `probs` is (n, K). A class that is never predicted contributes none. (n,) bool.
    """
    require_rows(probs, "fair_share_mask")
    confidence, predicted = probs.max(-1)
    limit = num_selected(len(probs), rate / probs.shape[-1])
    selected = torch.zeros_like(predicted, dtype=torch.bool)
    for k in sorted(set(predicted.tolist())):
        rows = (predicted == k).nonzero().squeeze(-1)
        selected[rows[confidence[rows].topk(min(limit, len(rows))).indices]] = True
    return selected


def mean_over_networks(logits: Tensor, num_networks: int) -> Tensor:
    """Return the mean probabilities of each view, (views, n, K), of logits (views · networks, n, K)."""
    return logits.reshape(-1, num_networks, *logits.shape[1:]).softmax(-1).mean(1)


def view_agreement(probs: Tensor) -> float:
    """Return how often the plain image and a randomized view get the same class, of (views, n, K): [0, 1].

    The first view is the plain image. Without further views, it is 1.
    """
    require_rows(probs[0], "view_agreement")
    votes = probs.argmax(-1)
    return float((votes[1:] == votes[0]).double().mean()) if len(votes) > 1 else 1.0


CONFIDENT_SHARE = 0.3  # of a class's fair share: predictions that keywords are compared with


def weigh_keywords(probs: Tensor, keywords: Tensor, reliability: float) -> Tensor:
    """Return P(class | image, keyword) ∝ p(class | image)^`reliability` · P(keyword | class): (n, K).

    `probs` (n, K) are a network's, `keywords` (n,) the class that a search was for, -1 for none. A keyword k is right
    with probability q_k, and otherwise stands for any other class: q_k is the share of the confident predictions for
    its images that match it, with one match and one mismatch added.
    """
    require_rows(probs, "weigh_keywords")
    num_classes = probs.shape[1]
    is_confident, predicted = fair_share_mask(probs, CONFIDENT_SHARE), probs.argmax(-1)
    posterior = probs.clamp_min(torch.finfo(probs.dtype).tiny).log() * reliability
    for k in range(num_classes):
        has_keyword = keywords == k
        matches = predicted[has_keyword & is_confident] == k
        quality = (float(matches.sum()) + 1) / (len(matches) + 2)
        log_odds = math.log(quality) - math.log((1 - quality) / max(1, num_classes - 1))
        posterior[has_keyword, k] += log_odds
    return posterior.softmax(-1)


def balanced_counts(sizes: list[int], rate: float) -> list[int]:
    """Return min(size, limit) for each group, with the lowest limit that selects at least `rate` of all samples."""
    required, limit = num_selected(sum(sizes), rate), 0
    while sum(min(size, limit) for size in sizes) < required:
        limit += 1
    return [min(size, limit) for size in sizes]
