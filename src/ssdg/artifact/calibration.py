"""Temperature scaling, calibration error, and the score that separates known from unknown images."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from torch import Tensor

from ..inference.rejection import Scores

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0  # bounds of the search
MIN_IMAGES = 10  # with fewer images the temperature fits their noise
NUM_BINS = 15  # confidence bins of the expected calibration error
MIN_GAIN = 1e-9  # nats; a temperature that lowers the NLL by less is no better than 1
Classes = NDArray[np.int64]
LogProbs = NDArray[np.float64]  # (n, K)


def mean_log_probs(logits: Tensor) -> Tensor:
    """Return log p (n, K) from logits (networks, n, K), where p is the mean of the networks' probabilities.

    Computed in log space, so it stays finite where p underflows.
    """
    return logits.double().log_softmax(-1).logsumexp(0) - math.log(len(logits))


def calibrated_probs(logits: Tensor, temperature: float | None) -> Tensor:
    """Return q = softmax(log p / T) in float64, (n, K); without a temperature, q = p.

    q and p have the same most likely class, because dividing by T > 0 preserves the order.
    """
    return (mean_log_probs(logits) / (temperature or 1.0)).softmax(-1)


def nll(log_probs: LogProbs, y: Classes, temperature: float = 1.0) -> float:
    """Return the mean of −log q of the true class, in nats, for q = softmax(log p / T)."""
    scaled = log_probs / temperature
    top = scaled.max(1)
    totals = top + np.log(np.exp(scaled - top[:, None]).sum(1))
    return float((totals - scaled[np.arange(len(y)), y]).mean())


def ece(log_probs: LogProbs, y: Classes, temperature: float = 1.0, bins: int = NUM_BINS) -> float:
    """Return the expected calibration error: |accuracy − mean confidence| per equal-width bin, weighted by size."""
    scaled = log_probs / temperature
    odds = np.exp(scaled - scaled.max(1, keepdims=True))
    confidence = odds.max(1) / odds.sum(1)
    gap = (scaled.argmax(1) == y) - confidence
    bin_index = np.minimum((confidence * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(bin_index, gap, bins)).sum() / len(y))


def choose_temperature(log_probs: LogProbs, y: Classes) -> float | None:
    """Return the T in [MIN_TEMPERATURE, MAX_TEMPERATURE] that minimizes `nll`.

    Return None if there are too few images or none is misclassified: without a mistake, the likelihood only asks
    for ever more confidence. Otherwise the NLL is convex in 1 / T, so it has a single minimum in log T.
    """
    if len(y) < MIN_IMAGES or bool((log_probs.argmax(1) == y).all()):
        return None
    log_t = golden_section_search(
        lambda log_t: nll(log_probs, y, math.exp(log_t)), math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE)
    )
    temperature = math.exp(log_t)
    return round(temperature, 6) if nll(log_probs, y, temperature) < nll(log_probs, y) - MIN_GAIN else 1.0


def golden_section_search(
    function: Callable[[float], float], left: float, right: float, width: float = 1e-7
) -> float:
    """Return the minimizer of a unimodal function on [left, right], to within `width`."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = right - ratio * (right - left), left + ratio * (right - left)
    at_low, at_high = function(low), function(high)
    while right - left > width:
        if at_low <= at_high:
            right, high, at_high = high, low, at_low
            low = right - ratio * (right - left)
            at_low = function(low)
        else:
            left, low, at_low = low, high, at_high
            high = left + ratio * (right - left)
            at_high = function(high)
    return (left + right) / 2


class BeforeAfter(BaseModel):
    """A metric before and after temperature scaling."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    before: FiniteFloat = Field(ge=0)
    after: FiniteFloat = Field(ge=0)


class Calibration(BaseModel):
    """`calibration` in `model.json`: the temperature, and its effect on the held-out labeled images that chose it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    temperature: FiniteFloat | None = Field(gt=0, le=1000)  # None: too few images, or all classified correctly
    images: int = Field(ge=1)
    nll: BeforeAfter
    ece: BeforeAfter


def calibrate(logits: Tensor, y: Classes) -> Calibration | None:
    """Choose the temperature from logits (networks, n, K) of labeled images; None if no logits are finite."""
    log_probs: LogProbs = mean_log_probs(logits).numpy()
    is_finite = np.isfinite(log_probs).all(1)
    log_probs, y = log_probs[is_finite], y[is_finite]
    if not len(y):
        return None
    temperature = choose_temperature(log_probs, y)
    metrics = {
        metric.__name__: BeforeAfter(
            before=round(metric(log_probs, y), 6), after=round(metric(log_probs, y, temperature or 1.0), 6)
        )
        for metric in (nll, ece)
    }
    return Calibration(temperature=temperature, images=len(y), **metrics)


def known_scores(logits: Tensor) -> Scores:
    """Return how known each image looks: (n,), in nats, from logits (networks, n, K); 0 for uniform probabilities.

    s(x) = mean over the networks of KL(uniform ‖ p(x)) = log Σ_k exp z_k − mean_k z_k − log K. Without the mean of
    the logits this is the energy score of Liu et al. (NeurIPS 2020), but cross-entropy does not constrain that mean.
    """
    log_probs = logits.double().log_softmax(-1)
    scores: Scores = -log_probs.mean((0, 2)).numpy() - math.log(logits.shape[-1])
    return np.nan_to_num(scores, copy=False, nan=0.0, posinf=0.0)  # non-finite logits score as unknown
