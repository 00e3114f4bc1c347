"""Entropies of predictions, and bounds on mutual information: CLUB (Cheng et al. 2020) and contrastive.

In the CLUB bound, q(z'|z) is a Gaussian per sample with independent dimensions: `mean` and `log_var` are (B, D),
predicted from z.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .classification import require_rows


def entropy(probs: Tensor) -> Tensor:
    """−Σ_k p_k log p_k of each row: (B,), with 0 log 0 = 0. In [0, log K]."""
    require_rows(probs, "entropy")
    # The floor keeps the gradient finite at p = 0, where that of p log p is not.
    return -(probs * probs.clamp_min(torch.finfo(probs.dtype).tiny).log()).sum(-1)


def label_diversity(logits: Tensor) -> Tensor:
    """L_div (Eq. divloss): mean entropy of the predictions minus the entropy of the mean prediction.

    Minimal, −log K, if every prediction is certain and all classes are predicted equally often.
    """
    require_rows(logits, "label_diversity")
    log_probs = logits.log_softmax(-1)
    probs = log_probs.exp()
    entropies = -(probs * log_probs).sum(-1)
    return entropies.mean() - entropy(probs.mean(0))


def gaussian_nll(mean: Tensor, log_var: Tensor, z: Tensor) -> Tensor:
    """−log q(z'_i | z_i) per dimension, mean over the batch: the training loss of the network that predicts q."""
    require_rows(z, "gaussian_nll")
    return 0.5 * ((z - mean).square() * (-log_var).exp() + log_var).mean() + 0.5 * math.log(2 * math.pi)


def mutual_information_upper_bound(mean: Tensor, log_var: Tensor, z: Tensor) -> Tensor:
    """1/N Σ_i [log q(z'_i | z_i) − 1/N Σ_j log q(z'_j | z_i)], in nats (vCLUB; Wang et al. 2021).

    An upper bound if q is the true conditional. The mean over j of (z'_j − m_i)² is (z̄' − m_i)² + Var z', so all N²
    pairs cost no more than N; the log variances cancel.
    """
    require_rows(z, "mutual_information_upper_bound")
    center = z.mean(0)
    all_pairs = (center - mean).square() + (z - center).square().mean(0)
    matched_pairs = (z - mean).square()
    return 0.5 * ((all_pairs - matched_pairs) * (-log_var).exp()).sum(1).mean()


def supervised_contrastive_loss(z: Tensor, y: Tensor, temperature: float) -> Tensor:
    """−log of the softmax, over all other samples, of the similarity to one of the same class (Khosla et al. 2020).

    Mean over a sample's positives, then over samples that have any; zero if none has. Similarity is the cosine
    divided by `temperature`. Latents shorter than 10⁻³ are not scaled up to length 1, so that a dead one does not
    have an exploding gradient. Lowering the loss raises a lower bound on the information that samples of a class
    share.
    """
    require_rows(z, "supervised_contrastive_loss")
    unit = F.normalize(z, eps=1e-3)
    is_self = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (unit @ unit.T / temperature).masked_fill(is_self, torch.finfo(z.dtype).min)
    log_probs = similarity.log_softmax(1)
    positives = (y[:, None] == y) & ~is_self
    num_positives = positives.sum(1)
    losses = -log_probs.where(positives, 0.0).sum(1) / num_positives.clamp_min(1)
    return losses.sum() / (num_positives > 0).sum().clamp_min(1)
