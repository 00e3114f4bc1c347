"""Labels of a labeler that knows one class more: what it takes for unknown takes no part in what follows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Rejecting:
    """An open-set learner as one whose last class is 'unknown'."""

    def __init__(self, learner: Any) -> None:
        self.nets, self.opts, self.step = learner.nets, learner.opts, learner.step
        self.logits = learner.open_logits


def known_rule(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest known class, kept where no class is likelier; the last of (networks, n, K + 1) is 'unknown'."""
    probs = logits.softmax(-1).mean(0)
    known = probs[:, :-1].max(-1)
    return known.indices, torch.as_tensor(known.values >= probs[:, -1])
