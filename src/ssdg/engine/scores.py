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


MOST_IMAGES = 500  # one more pass at the end of each epoch: a seventh of the evaluation of digits
TEMPERATURE = 0.05  # of the density, as its paper has it
Scores = dict[str, float | None]  # by name; None where there is nothing to score


def agreement(logits: Tensor) -> float | None:
    """Percent of images to which all networks give the same class, of (networks, n, K); None of a single network."""
    _require_images(logits.shape[1], "agreement")
    if len(logits) < 2:
        return None
    votes = logits.argmax(-1)
    return 100.0 * float((votes == votes[0]).all(0).double().mean())


def information(probs: Tensor) -> float:
    """H(mean_i p_i) − mean_i H(p_i), in nats: the mutual information of image and predicted class, of probs (n, K).

    In [0, log K]; highest when every prediction is certain and the classes are used equally, 0 when all are alike.
    """
    _require_images(len(probs), "information")
    p = probs.double()
    return max(0.0, float(_entropy(p.mean(0)) - _entropy(p).mean()))  # a rounding may lie below 0


def density(probs: Tensor, temperature: float = TEMPERATURE) -> float | None:
    """Soft neighbourhood density (Saito et al., ICCV 2021), in nats, of probs (n, K); None of a single image.

    s_ij = cos(p_i, p_j) / temperature;  P_i = softmax over j ≠ i of s_ij;  the mean over i of H(P_i). In
    [0, log(n − 1)]: highest when every image has all others as near, so that one class for all is highest too.
    """
    _require_images(len(probs), "density")
    if len(probs) < 2:
        return None
    unit = torch.nn.functional.normalize(probs.double(), dim=1)
    near = (unit @ unit.T / temperature).fill_diagonal_(-torch.inf)
    return float(_entropy(near.softmax(1)).mean())


def _entropy(probs: Tensor) -> Tensor:
    """−Σ p log p of every row, with 0 log 0 = 0."""
    each: Tensor = torch.special.entr(probs)
    return each.sum(-1)


def _require_images(count: int, name: str) -> None:
    if count == 0:
        raise ValueError(f"{name} needs at least one image; there is none")


def watched_images(task: Task) -> ImageTable | None:
    """Up to MOST_IMAGES unlabeled images: those of the lowest digests, whatever domains they are sorted into."""
    if not task.unlabeled:
        return None
    pool = task.pool.images
    words = np.ascontiguousarray(pool.digest).view(">u8")  # 16 bytes as two numbers, in the order of the bytes
    return pool.take(np.lexsort((words[:, 1], words[:, 0]))[:MOST_IMAGES])


def unsupervised_scores(learner: Learner, watched: ImageTable, pipeline: Pipeline) -> dict[str, Any]:
    """All scores of the networks as they are now, rounded; logits that are not finite score nothing."""
    logits = all_logits(learner, watched, pipeline)
    if not bool(logits.isfinite().all()):
        return {"agreement": None, "information": None, "density": None}
    probs = mean_probs(logits.double())
    found: Scores = {"agreement": agreement(logits), "information": information(probs), "density": density(probs)}
    return {name: None if value is None else round(value, 6) for name, value in found.items()}
