"""Counts what a step costs: images through backbones, forth and back."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ssdg.data.sets import Batch
from ssdg.methods.api import Learner, Progress


def count_passes(learner: Learner, batch: Batch, at: Progress) -> tuple[float, float]:
    """(forward, backward) passes of one step through all backbones, in units of the labeled batch."""
    counts = {"forward": 0, "backward": 0}

    def forth(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        counts["forward"] += len(output)
        if output.requires_grad:
            output.register_hook(lambda grad: counts.__setitem__("backward", counts["backward"] + len(grad)))

    ends = [last_stage(module) for module in learner.nets.modules() if hasattr(module, "style_stages")]
    handles = [end.register_forward_hook(forth) for end in ends]
    learner.nets.train()
    learner.step(batch, at)
    for handle in handles:
        handle.remove()
    return counts["forward"] / len(batch.labeled.x), counts["backward"] / len(batch.labeled.x)


def last_stage(backbone: nn.Module) -> nn.Module:
    """Where all passes of the digits CNN end, whether they are pooled afterwards or not."""
    stage: nn.Module = backbone.stage4  # type: ignore[assignment]
    return stage
