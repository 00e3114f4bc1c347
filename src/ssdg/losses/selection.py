"""Small-loss choices: which samples are taken for clean."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from .classification import require_rows

Choice = Literal["whole", "per-class", "balanced"]


def clean_rate(epoch: int, *, ramp_epochs: float, delta: float) -> float:
    """r(t+1) = 1 − min(t/T_k · δ, δ) of Algorithm 1, with `epoch` = t counted from 0, so that r = 1 at first."""
    return 1.0 - min(epoch / ramp_epochs * delta, delta)


def num_kept(total: int, rate: float) -> int:
    """The smallest count that is at least `rate`·`total`, and at least 1 where there is anything to keep."""
    # The margin keeps 0.07 · 100 = 7.000000000000001 at 7.
    return min(total, max(1, math.ceil(rate * total - 1e-9)))


def small_loss_rows(losses: Tensor, rate: float) -> Tensor:
    """Rows of the |U'| ≥ r|U| samples of smallest loss (Algorithm 1): (num_kept,), smallest first."""
    require_rows(losses, "small_loss_rows")
    return losses.topk(num_kept(len(losses), rate), largest=False).indices


def clean_mask(logits: Tensor, rate: float, *, choice: Choice = "whole", first_only: bool = False) -> Tensor:
    """The clean set: networks agree (Eq. agreement), then small loss at `rate` (Eq. small_loss). (n,) bool.

    `logits` is (networks, n, K). A sample's loss is its cross-entropy against the agreed class, summed over
    the networks, or of the first alone with `first_only`. The smallest losses are those of all agreed samples
    (`whole`), of each agreed class at the same rate (`per-class`), or of as many samples of every agreed class as
    there are (`balanced`), the largest of them cut to one size so that at least `rate` of all are kept.
    """
    votes = logits.argmax(-1)
    agreed = (votes == votes[0]).all(0)
    log_probs = logits.log_softmax(-1).gather(-1, votes[0].expand(len(logits), -1).unsqueeze(-1)).squeeze(-1)
    losses = -(log_probs[0] if first_only else log_probs.sum(0))
    classes = [agreed] if choice == "whole" else [agreed & (votes[0] == k) for k in range(logits.shape[-1])]
    groups = [rows for group in classes if len(rows := group.nonzero().squeeze(-1))]
    counts = [len(rows) for rows in groups]
    kept = even_counts(counts, rate) if choice == "balanced" else [num_kept(count, rate) for count in counts]
    keep = torch.zeros_like(agreed)
    for rows, count in zip(groups, kept, strict=True):
        keep[rows[losses[rows].topk(count, largest=False).indices]] = True
    return keep


def even_counts(counts: list[int], rate: float) -> list[int]:
    """How many of each group to keep: min(count, level), for the lowest level that keeps `rate` of all."""
    wanted, level = num_kept(sum(counts), rate), 0
    while sum(min(count, level) for count in counts) < wanted:
        level += 1
    return [min(count, level) for count in counts]
