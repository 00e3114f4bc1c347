"""How experts of several domains learn from each other."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from .shapes import require_rows


def collaboration(probs: Tensor, expert_probs: Tensor, domain: Tensor) -> Tensor:
    """Mean over the batch of ‖p̄ − p‖², p̄ the mean of the experts of all domains but the image's own.

    `probs` (experts, B, K): what every expert says, expert d being that of domain d; `expert_probs` (B, K): p, what
    the image's own expert is taken to say; `domain` (B,). In [0, 2]. (Zhou et al., 2021, DAEL, its consistency loss.)
    """
    require_rows(expert_probs, "collaboration")
    num_experts = len(probs)
    if num_experts < 2:
        raise ValueError("collaboration needs at least two experts; there are no others to learn")
    others = (1 - F.one_hot(domain, num_experts).to(probs.dtype)) / (num_experts - 1)
    mean = (others.T.unsqueeze(-1) * probs).sum(0)
    return (mean - expert_probs).square().sum(-1).mean()
