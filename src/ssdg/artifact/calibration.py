"""Confidence that means something: temperature scaling, calibration error, and the score behind 'unknown'."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from torch import Tensor

from ..inference.rejection import Scores

LOWEST, HIGHEST = 0.05, 20.0  # between which a temperature is looked for
FEWEST = 10  # images; a temperature of fewer is their luck
BINS = 15  # of confidence, for the expected calibration error
GAIN = 1e-9  # nats; a temperature that gains less is no better than 1
Classes = NDArray[np.int64]
LogProbs = NDArray[np.float64]  # (n, K)


def mean_log_probs(logits: Tensor) -> Tensor:
    """log p, of p the mean of the networks' probabilities: (n, K) from (networks, n, K), also where p underflows."""
    return logits.double().log_softmax(-1).logsumexp(0) - math.log(len(logits))


def calibrated_probs(logits: Tensor, temperature: float | None) -> Tensor:
    """q = softmax(log p / T) in float64, (n, K); p itself where no temperature is known.

    The likeliest class is that of p: dividing by T > 0 keeps the order.
    """
    return (mean_log_probs(logits) / (temperature or 1.0)).softmax(-1)


def nll(log_probs: LogProbs, y: Classes, temperature: float = 1.0) -> float:
    """The mean of −log q of the true class, in nats, for q = softmax(log p / T)."""
    scaled = log_probs / temperature
    top = scaled.max(1)
    totals = top + np.log(np.exp(scaled - top[:, None]).sum(1))
    return float((totals - scaled[np.arange(len(y)), y]).mean())


def ece(log_probs: LogProbs, y: Classes, temperature: float = 1.0, bins: int = BINS) -> float:
    """Expected calibration error: |share right − mean confidence| in bins of equal width, weighed by their images."""
    scaled = log_probs / temperature
    odds = np.exp(scaled - scaled.max(1, keepdims=True))
    confidence = odds.max(1) / odds.sum(1)
    gap = (scaled.argmax(1) == y) - confidence
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    return float(np.abs(np.bincount(place, gap, bins)).sum() / len(y))


def choose_temperature(log_probs: LogProbs, y: Classes) -> float | None:
    """The T in [LOWEST, HIGHEST] of the least `nll`.

    None where there is none to choose: too few images, or none that is classified wrong; then the likelihood only
    asks for ever more confidence. Otherwise it is convex in 1 / T and so has one valley in log T.
    """
    if len(y) < FEWEST or bool((log_probs.argmax(1) == y).all()):
        return None
    found = math.exp(lowest_point(lambda at: nll(log_probs, y, math.exp(at)), math.log(LOWEST), math.log(HIGHEST)))
    return round(found, 6) if nll(log_probs, y, found) < nll(log_probs, y) - GAIN else 1.0


def lowest_point(height: Callable[[float], float], left: float, right: float, width: float = 1e-7) -> float:
    """Where a function of one valley is lowest between two points: golden section, to within `width`."""
    ratio = (math.sqrt(5) - 1) / 2
    low, high = right - ratio * (right - left), left + ratio * (right - left)
    at_low, at_high = height(low), height(high)
    while right - left > width:
        if at_low <= at_high:
            right, high, at_high = high, low, at_low
            low = right - ratio * (right - left)
            at_low = height(low)
        else:
            left, low, at_low = low, high, at_high
            high = left + ratio * (right - left)
            at_high = height(high)
    return (left + right) / 2


class Change(BaseModel):
    """A measure without and with the temperature."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    before: FiniteFloat = Field(ge=0)
    after: FiniteFloat = Field(ge=0)


class Calibration(BaseModel):
    """Of `model.json`: the temperature, and what it does to the held-out labeled images that it was chosen by."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    temperature: FiniteFloat | None = Field(gt=0, le=1000)  # None: too few images, or all of them right
    images: int = Field(ge=1)
    nll: Change
    ece: Change


def calibrate(logits: Tensor, y: Classes) -> Calibration | None:
    """The temperature by logits (networks, n, K) of images of known class; None where there are none."""
    log_probs: LogProbs = mean_log_probs(logits).numpy()
    known = np.isfinite(log_probs).all(1)  # logits that are not finite tell nothing
    log_probs, y = log_probs[known], y[known]
    if not len(y):
        return None
    temperature = choose_temperature(log_probs, y)
    changes = {
        measure.__name__: Change(
            before=round(measure(log_probs, y), 6), after=round(measure(log_probs, y, temperature or 1.0), 6)
        )
        for measure in (nll, ece)
    }
    return Calibration(temperature=temperature, images=len(y), **changes)


def known_scores(logits: Tensor) -> Scores:
    """How known each image looks: (n,), in nats, from logits (networks, n, K); 0 where all classes are as likely.

    s(x) = mean over the networks of KL(uniform ‖ p(x)) = log Σ_k exp z_k − mean_k z_k − log K. Without the mean of
    the logits this is the energy of Liu et al. (NeurIPS 2020); but cross-entropy leaves that mean to chance.
    """
    log_probs = logits.double().log_softmax(-1)
    scores: Scores = -log_probs.mean((0, 2)).numpy() - math.log(logits.shape[-1])
    return np.nan_to_num(scores, copy=False, nan=0.0, posinf=0.0)  # logits that are not finite tell nothing
