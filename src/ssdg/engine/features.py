"""Pooled features of a learner's first backbone, for pictures of domains."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..data.sets import LabeledBatch, MixedSet
from ..data.streams import MixedStream, Pipeline
from ..methods.api import Learner, StageRequest
from ..models.backbones import backbones_of
from ..schema import StageMeta
from ..seeds import derive_seed

Features = NDArray[np.float32]  # (images, features)


@dataclass(frozen=True, eq=False)
class FinishedStage:
    """A stage at its end: the learner has the weights of that moment until the next stage starts."""

    request: StageRequest
    seed: int  # of the stage's batches
    meta: StageMeta


def without_augmentation(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline that leaves images unchanged, for the whole batch: mixed images must not look augmented."""
    stored = replace(pipeline.stored, num_views=0) if pipeline.stored is not None else None
    return replace(pipeline, kind="none", rank=0, world=1, stored=stored)


def pooled_features(learner: Learner, batches: Iterable[Tensor]) -> Features:
    """Return the features of the learner's first backbone, in float32 on the CPU."""
    backbone = backbones_of(learner.nets)[0]
    with evaluation_mode(learner.nets), torch.inference_mode():
        return np.concatenate([backbone(x).float().cpu().numpy() for x in batches])


@contextmanager
def evaluation_mode(nets: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode; restore the mode of every module afterwards."""
    modes = [(module, module.training) for module in nets.modules()]
    nets.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def first_mixed(stage: FinishedStage, mixed: MixedSet, num: int, pipeline: Pipeline) -> Iterator[LabeledBatch]:
    """Yield the first images of the intermediate domain in the order the stage drew them, at most one pass."""
    batch, remaining = stage.request.settings.batch, min(num, len(mixed))
    stream = MixedStream(mixed, batch, derive_seed(stage.seed, "labeled"), pipeline)
    for step in range(-(-remaining // batch)):
        drawn, part = stream.draw(step), slice(0, remaining - step * batch)
        yield LabeledBatch(drawn.x[part], drawn.y[part], drawn.domain[part], drawn.trusted[part])
