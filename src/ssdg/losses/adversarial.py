"""Adversarial losses: domain discrimination, conditioning on predictions, and the open-set boundary."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from .classification import require_rows
from .information import entropy


def ramp(fraction: float, gamma: float = 10.0) -> float:
    """λ_p = 2 / (1 + exp(−γ p)) − 1 (Ganin et al. 2016): 0 at p = 0, toward 1; `fraction` = p in [0, 1]."""
    return 2 / (1 + math.exp(-gamma * fraction)) - 1


def domain_loss(
    logits_l: Tensor, logits_u: Tensor, weights_l: Tensor | None = None, weights_u: Tensor | None = None
) -> Tensor:
    """−1/n Σ w_i log D(x_i) − 1/m Σ w_j log(1 − D(u_j)): both domains count equally, whatever their batch sizes.

    D = sigmoid of the logits (n,) and (m,), the discriminator's probability that an image is labeled. Ganin et al.
    2016, Eq. 9, and with weights Long et al. 2018. It is 2 log 2 if the domains are indistinguishable.
    """
    require_rows(logits_l, "domain_loss")
    require_rows(logits_u, "domain_loss")
    losses_l, losses_u = F.softplus(-logits_l), F.softplus(logits_u)
    if weights_l is not None:
        losses_l = weights_l * losses_l
    if weights_u is not None:
        losses_u = weights_u * losses_u
    return losses_l.mean() + losses_u.mean()


def multilinear(features: Tensor, probs: Tensor) -> Tensor:
    """f ⊗ g (Long et al. 2018): all products of a feature and a class probability, (B, d_f·K), class by class."""
    require_rows(features, "multilinear")
    return (probs.unsqueeze(2) * features.unsqueeze(1)).flatten(1)


def random_multilinear(features: Tensor, probs: Tensor, map_f: Tensor, map_g: Tensor) -> Tensor:
    """(R_f f ⊙ R_g g) / √d (Long et al. 2018): (B, d), whose inner products equal those of f ⊗ g in expectation.

    `map_f` (d_f, d) and `map_g` (K, d) hold independent entries of mean 0 and variance 1.
    """
    require_rows(features, "random_multilinear")
    return (features @ map_f) * (probs @ map_g) / math.sqrt(map_f.shape[1])


def entropy_weights(probs: Tensor) -> Tensor:
    """1 + exp(−H(g)) of each row (Long et al. 2018), divided by its batch mean: (B,), higher if more certain.

    The mean is a constant to the gradient: dividing by it keeps the scale of the loss without weakening the pull
    toward certain predictions.
    """
    require_rows(probs, "entropy_weights")
    weights = 1 + (-entropy(probs)).exp()
    return weights / weights.detach().mean()


def unknown_logit(logits: Tensor) -> Tensor:
    """log p_{K+1} − log(1 − p_{K+1}) of the last of K+1 classes: (B,)."""
    return logits[:, -1] - logits[:, :-1].logsumexp(-1)


def boundary_loss(logits: Tensor, boundary: float = 0.5) -> Tensor:
    """−t log p_{K+1} − (1 − t) log(1 − p_{K+1}), mean over the batch (Saito et al. 2018, OSBP, Eq. 3).

    `logits` (B, K+1), the unknown class last; `boundary` = t in (0, 1). Minimal at p_{K+1} = t.
    """
    require_rows(logits, "boundary_loss")
    unknown = unknown_logit(logits)
    return (boundary * F.softplus(-unknown) + (1 - boundary) * F.softplus(unknown)).mean()
