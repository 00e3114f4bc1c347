"""One pass over images: logits, accuracies."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.sets import ImageTable
from ..data.streams import Pipeline, evaluation_batches
from ..methods.api import Learner

EVAL_BATCH = 128  # larger ones are no faster on a CPU and need more memory than training


def all_logits(learner: Learner, table: ImageTable, pipeline: Pipeline, batch: int = EVAL_BATCH) -> Tensor:
    """(networks, n, K) in float32 on the CPU: every image once, in order."""
    learner.nets.eval()
    whole: Tensor | None = None
    start = 0
    with torch.inference_mode():
        for x in evaluation_batches(table, batch, pipeline):
            part = learner.logits(x).float()
            if whole is None:  # in one piece from the start: small pieces between large ones scatter the heap
                whole = torch.empty(len(part), len(table), part.shape[-1], device=part.device)
            whole[:, start : start + len(x)] = part
            start += len(x)
    if whole is None:
        raise ValueError("there is no image to classify")
    return whole.cpu()  # once: every look at a part would wait for the device


def mean_probs(logits: Tensor) -> Tensor:
    """Class probabilities averaged over the networks: (n, K)."""
    return logits.softmax(-1).mean(0)


def accuracies(logits: Tensor, y: NDArray[np.int64]) -> list[float]:
    """Percent right of network 1, network 2, ... and last of their mean."""
    votes = [*logits.argmax(-1), mean_probs(logits).argmax(-1)]
    truth = torch.from_numpy(y)
    return [round(100.0 * float((vote == truth).double().mean()), 4) for vote in votes]
