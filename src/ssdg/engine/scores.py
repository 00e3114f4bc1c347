"""Scores of networks in one forward pass per image: logits, accuracies, and unsupervised scores.

Unsupervised scores see no label, no domain name and no target: only predictions on images that training may see.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.sets import ImageTable, Task
from ..data.streams import EVAL_BATCH, Pipeline, evaluation_batches
from ..methods.api import Learner


def all_logits(
    learner: Learner, table: ImageTable, pipeline: Pipeline, view: int = 0, batch: int = EVAL_BATCH
) -> Tensor:
    """Return (networks, n, K) in float32 on the CPU: every image once, in order; `view` selects a stored view."""
    learner.nets.eval()
    logits: Tensor | None = None
    start = 0
    with torch.inference_mode():
        for x in evaluation_batches(table, batch, pipeline, view):
            part = learner.logits(x).float()
            if logits is None:  # one allocation from the start: small pieces between large ones fragment the heap
                logits = torch.empty(len(part), len(table), part.shape[-1], device=part.device)
            logits[:, start : start + len(x)] = part
            start += len(x)
    if logits is None:
        raise ValueError("there is no image to classify")
    return logits.cpu()  # once: every copy of a part would wait for the device


def mean_probs(logits: Tensor) -> Tensor:
    """Return class probabilities averaged over the networks: (n, K)."""
    return logits.softmax(-1).mean(0)


def accuracies(logits: Tensor, y: NDArray[np.int64]) -> list[float]:
    """Return the accuracy (%) of network 1, network 2, ... and last of their mean."""
    votes = [*logits.argmax(-1), mean_probs(logits).argmax(-1)]
    truth = torch.from_numpy(y)
    return [round(100.0 * float((vote == truth).double().mean()), 4) for vote in votes]


MAX_IMAGES = 500  # forward passes at the end of each epoch: a seventh of the evaluation on digits
TEMPERATURE = 0.05  # of the density, from its paper
Scores = dict[str, float | None]  # by name; None where there is nothing to score


def agreement(logits: Tensor) -> float | None:
    """Return the percentage of images on which all networks of (networks, n, K) agree; None for a single network."""
    _require_images(logits.shape[1], "agreement")
    if len(logits) < 2:
        return None
    votes = logits.argmax(-1)
    return 100.0 * float((votes == votes[0]).all(0).double().mean())


def information(probs: Tensor) -> float:
    """Return H(mean_i p_i) − mean_i H(p_i) of probs (n, K) in nats: the mutual information of image and prediction.

    In [0, log K]; highest if every prediction is certain and classes are used equally, 0 if all are equal.
    """
    _require_images(len(probs), "information")
    p = probs.double()
    return max(0.0, float(_entropy(p.mean(0)) - _entropy(p).mean()))  # rounding may give a value below 0


def density(probs: Tensor, temperature: float = TEMPERATURE) -> float | None:
    """Return the soft neighborhood density (Saito et al., ICCV 2021) of probs (n, K) in nats; None for one image.

    s_ij = cos(p_i, p_j) / temperature;  P_i = softmax over j ≠ i of s_ij;  the mean over i of H(P_i). In
    [0, log(n − 1)]: highest if every image is equally near to all others, so one class for all is highest, too.
    """
    _require_images(len(probs), "density")
    if len(probs) < 2:
        return None
    unit = torch.nn.functional.normalize(probs.double(), dim=1)
    near = (unit @ unit.T / temperature).fill_diagonal_(-torch.inf)
    return float(_entropy(near.softmax(1)).mean())


def _entropy(probs: Tensor) -> Tensor:
    """Return −Σ p log p of every row, with 0 log 0 = 0."""
    each: Tensor = torch.special.entr(probs)
    return each.sum(-1)


def _require_images(count: int, name: str) -> None:
    if count == 0:
        raise ValueError(f"{name} needs at least one image")


def watched_images(task: Task) -> ImageTable | None:
    """Return up to MAX_IMAGES unlabeled images: those of the lowest digests, independent of their domains."""
    if not task.unlabeled:
        return None
    pool = task.pool.images
    words = np.ascontiguousarray(pool.digest).view(">u8")  # 16 bytes as two numbers, in the order of the bytes
    return pool.take(np.lexsort((words[:, 1], words[:, 0]))[:MAX_IMAGES])


def unsupervised_scores(learner: Learner, watched: ImageTable, pipeline: Pipeline) -> dict[str, Any]:
    """Return all scores of the networks, rounded; None for all if a logit is not finite."""
    logits = all_logits(learner, watched, pipeline)
    if not bool(logits.isfinite().all()):
        return {"agreement": None, "information": None, "density": None}
    probs = mean_probs(logits.double())
    scores: Scores = {"agreement": agreement(logits), "information": information(probs), "density": density(probs)}
    return {name: None if value is None else round(value, 6) for name, value in scores.items()}
