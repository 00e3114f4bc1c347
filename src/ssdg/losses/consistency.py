"""Consistency between views of an unlabeled image and between domain experts, with their schedules."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .classification import require_rows


def sharpen(probs: Tensor, temperature: float) -> Tensor:
    """p_k^(1/T) / Σ_j p_j^(1/T) of each row (Berthelot et al. 2019, Eq. 7); T < 1 makes it more certain."""
    require_rows(probs, "sharpen")
    # In log space, because powers of small numbers would all underflow to zero. The floor keeps the log finite.
    return (probs.clamp_min(torch.finfo(probs.dtype).tiny).log() / temperature).softmax(-1)


def mix_up(values: Tensor, order: Tensor, share: Tensor) -> Tensor:
    """λ_i v_i + (1 − λ_i) v_order[i] for images, soft labels or any rows; `share` is λ (B,), `order` (B,)."""
    require_rows(values, "mix_up")
    share = share.to(values.dtype).view(-1, *[1] * (values.ndim - 1))
    return torch.lerp(values[order], values, share)


def confident_pseudo_labels(logits: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Return the most likely class (B,) and whether its probability reaches the threshold (B,)."""
    require_rows(logits, "confident_pseudo_labels")
    confidence, y = logits.softmax(-1).max(-1)
    return y, confidence >= threshold


def masked_cross_entropy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """Cross-entropy where `mask` (B,) is true, zero elsewhere; the mean is over all B (Sohn et al. 2020, Eq. 4)."""
    require_rows(logits, "masked_cross_entropy")
    return (F.cross_entropy(logits, y, reduction="none") * mask).mean()


def squared_distance(probs: Tensor, target: Tensor) -> Tensor:
    """1/K Σ_k (p_k − q_k)², averaged over the batch. In [0, 2/K]."""
    require_rows(probs, "squared_distance")
    return (probs - target).square().mean()


def collaboration(probs: Tensor, expert_probs: Tensor, domain: Tensor) -> Tensor:
    """Mean over the batch of ‖p̄ − p‖², where p̄ averages the experts of all domains except the image's.

    `probs` (experts, B, K): predictions of all experts, expert d belonging to domain d. `expert_probs` (B, K): p, the
    target prediction of the expert of the image's domain. `domain` (B,). In [0, 2]. (Zhou et al. 2021, DAEL, its
    consistency loss.)
    """
    require_rows(expert_probs, "collaboration")
    num_experts = len(probs)
    if num_experts < 2:
        raise ValueError(f"collaboration needs at least two experts, not {num_experts}")
    weights = (1 - F.one_hot(domain, num_experts).to(probs.dtype)) / (num_experts - 1)
    mean = (weights.T.unsqueeze(-1) * probs).sum(0)
    return (mean - expert_probs).square().sum(-1).mean()


def sigmoid_ramp(fraction: float, length: float) -> float:
    """exp(−5 (1 − t)²) with t = `fraction` / `length`, then constant at 1; length 0 means no ramp."""
    return math.exp(-5 * (1 - linear_ramp(fraction, length)) ** 2)


def linear_ramp(fraction: float, length: float) -> float:
    """`fraction` / `length`, then constant at 1; length 0 means no ramp."""
    return 1.0 if fraction >= length else fraction / length


def ema_decay(step: int, limit: float) -> float:
    """min(1 − 1/(step + 1), limit), with `step` counted from 0.

    Until the limit is reached, the average is the plain mean of all weights so far, so random initial weights do not
    linger.
    """
    return min(1 - 1 / (step + 1), limit)
