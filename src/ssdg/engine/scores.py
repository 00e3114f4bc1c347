"""Scores of networks in one forward pass per image: logits, accuracies, and unsupervised scores.

Unsupervised scores see no label, no domain name and no target: only predictions on images that training may see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.sets import ImageTable, Task
from ..data.streams import Pipeline
from ..devices import evaluation_batch
from ..inference.agreement import agreement as answer_agreement
from ..inference.agreement import decide, sample_batches
from ..inference.classifier import Answer
from ..machine import bf16_copy, gains_from_bf16
from ..methods.api import Learner


def all_logits(
    learner: Learner, table: ImageTable, pipeline: Pipeline, view: int = 0, batch: int | None = None
) -> Tensor:
    """Return (networks, n, K) in float32 on the CPU: every image once, in order; `view` selects a stored view.

    With `pipeline.inference` bf16, the backbones compute in bfloat16 if a sample keeps its predictions: the choice is
    a function of weights and images. The sample is not computed again.
    """
    learner.nets.eval()
    if not len(table):
        raise ValueError("there is no image to classify")
    batch = batch or evaluation_batch(pipeline.device, table.size)
    logits: Tensor | None = None
    with torch.inference_mode():

        def read(start: int) -> Tensor:
            return pipeline.plain(table, np.arange(start, min(start + batch, len(table))), view)

        learner, computed = choose_learner(learner, len(table), batch, pipeline, read)
        for start in range(0, len(table), batch):
            part = computed.pop(start) if start in computed else learner.logits(read(start)).float()
            if logits is None:  # one allocation from the start: small pieces between large ones fragment the heap
                logits = torch.empty(len(part), len(table), part.shape[-1], device=part.device)
            logits[:, start : start + batch] = part
    assert logits is not None
    return logits.cpu()  # once: every copy of a part would wait for the device


def choose_learner(
    learner: Learner, num_images: int, batch: int, pipeline: Pipeline, read: Callable[[int], Tensor]
) -> tuple[Learner, dict[int, Tensor]]:
    """Return the learner in the precision to use, and the logits of the sample by the start of their batch.

    `read` returns the images of the batch that starts at a row.
    """
    is_allowed = pipeline.inference == "bf16" and gains_from_bf16(learner.nets)
    starts = [batch * index for index in sample_batches(num_images, batch)] if is_allowed else []
    if not starts:
        return learner, {}
    twin = bf16_copy(learner, pipeline.device.type)
    exact, rounded = dict[int, Tensor](), dict[int, Tensor]()
    for start in starts:
        x = read(start)
        exact[start], rounded[start] = learner.logits(x).float(), twin.logits(x).float()
    before, after = (to_answer(torch.cat([*parts.values()], 1).cpu()) for parts in (exact, rounded))
    return (twin, rounded) if decide(answer_agreement(before, after)) == "bf16" else (learner, exact)


def to_answer(logits: Tensor) -> Answer:
    """Return the answers of (networks, n, K) logits."""
    return Answer(mean_probs(logits).numpy(), votes=logits.argmax(-1).numpy())


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
