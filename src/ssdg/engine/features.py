"""What a learner's first backbone makes of images: pooled features, for pictures of domains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..artifact.tensors import Meta
from ..data.sets import Inputs, LabeledBatch, MixedSet
from ..data.streams import MixedStream, Pipeline
from ..methods.api import Learner, Settings
from ..models.backbones import backbones_of
from ..seeds import derive_seed

Features = NDArray[np.float32]  # (images, features)


@dataclass(frozen=True, eq=False)
class Passed:
    """A stage as it ended: the learner has the weights of that moment until the next stage is passed."""

    key: str
    round: int
    learner: Learner
    inputs: Inputs
    settings: Settings
    seed: int  # of the stage's batches
    product: bool
    meta: Meta


def plain(pipeline: Pipeline) -> Pipeline:
    """Images as they are and all of a batch: augmentation must not tell mixed images from others."""
    return replace(pipeline, kind="none", rank=0, world=1)


def pooled(learner: Learner, batches: Iterable[Tensor]) -> Features:
    """What the learner's first backbone makes of images, in float32 on the CPU."""
    backbone = backbones_of(learner.nets)[0]
    with evaluating(learner.nets), torch.inference_mode():
        return np.concatenate([backbone(x).float().cpu().numpy() for x in batches])


@contextmanager
def evaluating(nets: nn.Module) -> Iterator[None]:
    """Evaluation mode; afterwards every module has the mode it had."""
    modes = [(module, module.training) for module in nets.modules()]
    nets.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def first_mixed(stage: Passed, mixed: MixedSet, num: int, pipeline: Pipeline) -> Iterator[LabeledBatch]:
    """The first images of the intermediate domain in the order in which the stage drew them, at most one pass."""
    batch, left = stage.settings.batch, min(num, len(mixed))
    stream = MixedStream(mixed, batch, derive_seed(stage.seed, "labeled"), pipeline)
    for step in range(-(-left // batch)):
        drawn, part = stream.draw(step), slice(0, left - step * batch)
        yield LabeledBatch(drawn.x[part], drawn.y[part], drawn.domain[part], drawn.trusted[part])
