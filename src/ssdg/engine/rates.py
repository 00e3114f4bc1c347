"""The learning rate of every step: a level that falls from cycle to cycle, and a shape within each stage."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..methods.api import Learner

RISE = 0.1  # of the steps


def hump(step: int, steps: int) -> float:
    """A share of the rate: a straight line up over the first tenth of the steps, half a cosine down towards zero.

    A fresh head on features that fit their domain sends large gradients at first, which a high rate would follow
    anywhere; and what a stage leaves behind is labels and weights of its last step, which a low rate makes calm.
    """
    rise = max(1, round(RISE * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / (steps - rise)))


@dataclass(frozen=True)
class Rate:
    """lr = lr_initial · `scale` · the shape's share, for every optimizer of a learner."""

    scale: float = 1.0
    shape: str = "fixed"

    def give(self, learner: Learner, step: int, steps: int) -> None:
        """Set the rate of this step; it follows from the step's number alone, so that none of it needs saving."""
        share = hump(step, steps) if self.shape == "hump" else 1.0
        for optimizer in learner.opts.values():
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
                group["lr"] = group["initial_lr"] * self.scale * share
