"""The batches of a stage: how many steps, how many images, in which order."""

from __future__ import annotations

import math

from ..data.sets import Inputs, LabeledSet, MixedSet, concat_labeled
from ..data.streams import (
    BalancedStream,
    BatchStream,
    LabeledStream,
    MixedStream,
    Pipeline,
    UnionStream,
    UnlabeledStream,
    WholeStream,
)
from ..methods.api import Settings
from ..seeds import derive_seed


def steps_per_epoch(inputs: Inputs, settings: Settings) -> int:
    """Return the steps of one pass over the smaller of labeled and unlabeled set; in DCG the larger, or the union."""
    if inputs.whole:
        return 1
    if settings.iterations is not None:
        return settings.iterations
    images = len(inputs.labeled)
    if inputs.unlabeled is not None:
        images = min(images, len(inputs.unlabeled))
    if inputs.pseudo is not None:
        images = images + len(inputs.pseudo) if inputs.union else max(images, len(inputs.pseudo))
    return math.ceil(images / settings.batch)


def images_per_step(inputs: Inputs, batch: int) -> int:
    """Return the images drawn for a step; mixing draws two for one."""
    if inputs.whole:
        return len(inputs.labeled)
    num_batches = 2 if isinstance(inputs.labeled, MixedSet) and inputs.labeled.mix != "x+u" else 1
    num_batches += inputs.pseudo is not None and not inputs.union
    num_batches += inputs.ratio if inputs.unlabeled is not None else 0
    return batch * num_batches


def make_stream(inputs: Inputs, batch: int, seed: int, pipeline: Pipeline) -> BatchStream:
    """Return the stage's stream of batches."""
    if inputs.whole:
        assert isinstance(inputs.labeled, LabeledSet)
        return BatchStream(WholeStream(inputs.labeled, pipeline))
    seeds = {name: derive_seed(seed, name) for name in ("labeled", "pseudo", "unlabeled")}
    if inputs.union and inputs.pseudo is not None:
        assert isinstance(inputs.labeled, LabeledSet)
        union = concat_labeled([inputs.labeled, inputs.pseudo])
        return BatchStream(UnionStream(union, batch, seeds["labeled"], pipeline))
    labeled: LabeledStream | MixedStream
    if isinstance(inputs.labeled, MixedSet):
        labeled = MixedStream(inputs.labeled, batch, seeds["labeled"], pipeline)
    else:
        kind = BalancedStream if inputs.balanced else LabeledStream
        views = inputs.views if inputs.unlabeled is None else ()
        labeled = kind(inputs.labeled, batch, seeds["labeled"], pipeline, views)
    pseudo = LabeledStream(inputs.pseudo, batch, seeds["pseudo"], pipeline) if inputs.pseudo else None
    unlabeled = None
    if inputs.unlabeled is not None:
        count = batch * inputs.ratio
        unlabeled = UnlabeledStream(inputs.unlabeled, count, seeds["unlabeled"], pipeline, inputs.views)
    return BatchStream(labeled, pseudo, unlabeled)
