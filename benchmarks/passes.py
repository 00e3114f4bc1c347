"""Count the forward and backward passes of a step, in images per backbone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ssdg.data.sets import Batch
from ssdg.methods.api import Learner, Progress


def count_passes(learner: Learner, batch: Batch, at: Progress) -> tuple[float, float]:
    """(forward, backward) passes of one step through all backbones, in units of the labeled batch."""
    counts = {"forward": 0, "backward": 0}

    def add(kind: str, tensor: Tensor) -> None:
        counts[kind] += len(tensor)

    def counting(maps: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def counted(x: Tensor) -> Tensor:
            out = maps(x)
            add("forward", out)
            if out.requires_grad:
                out.register_hook(lambda grad: add("backward", grad))  # type: ignore[no-untyped-call]
            return out

        return counted

    backbones: list[Any] = [module for module in learner.nets.modules() if hasattr(module, "style_stages")]
    for backbone in backbones:
        backbone.maps = counting(backbone.maps)  # every pass goes through it, pooled afterwards or not
    learner.nets.train()
    learner.step(batch, at)
    for backbone in backbones:
        del backbone.maps
    return counts["forward"] / len(batch.labeled.x), counts["backward"] / len(batch.labeled.x)
