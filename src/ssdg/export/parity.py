"""How far an exported file is from torch: differences of probabilities and scores, classes that differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..engine.unknown import known_scores
from ..inference import Model
from .files import Outputs, Run
from .graph import PROBS, SCORE, Form
from .images import Pixels

FIRST = (1, 7)  # images of the first batches: alone, and an odd number
BATCH = 32
CLOSE = 2e-4  # the two likeliest classes are no further apart: rounding may exchange them
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Parity:
    """The largest differences, and how many images get the same class."""

    images: int
    probs: float
    score: float | None  # relative where the score is above 1
    same: int
    exchanged: int  # images of another class that was no close call

    @property
    def agreement(self) -> float:
        """The share of images that get the same class."""
        return self.same / self.images

    @property
    def worst(self) -> float:
        """The largest difference of all outputs; NaN and infinity count as such."""
        return max(self.probs, self.score or 0.0)


def as_taken(pixels: Pixels, form: Form) -> NDArray[Any]:
    """The images as the graph takes them."""
    if form.inside:
        return pixels
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)


def batches(pixels: Pixels) -> Iterator[Pixels]:
    """All images, repeated where they are few: one alone, an odd number, then plain batches."""
    whole = pixels[np.arange(max(len(pixels), sum(FIRST))) % len(pixels)]
    ends = np.cumsum([*FIRST, *[BATCH] * (len(whole) // BATCH + 1)])
    yield from (part for part in np.split(whole, ends[ends < len(whole)]) if len(part))


def torch_outputs(model: Model, pixels: Pixels, form: Form) -> Outputs:
    """What the model itself says, by its own code and in float64 after the networks."""
    parts: list[Outputs] = []
    for part in batches(pixels):
        logits = model.logits(part)
        logits = logits if form.row is None else logits[form.row : form.row + 1]
        scores = {SCORE: torch.from_numpy(known_scores(logits)).numpy()} if form.reject else {}
        parts.append({PROBS: model.probs(logits).numpy(), **scores})
    return joined(parts)


def outputs(run: Run, pixels: Pixels, form: Form) -> Outputs:
    """What a file says."""
    return joined([run(as_taken(part, form)) for part in batches(pixels)])


def joined(parts: list[Outputs]) -> Outputs:
    """Batches one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compare(wanted: Outputs, found: Outputs) -> Parity:
    """A file against what it should say."""
    probs, others = wanted[PROBS], found[PROBS]
    same = probs.argmax(1) == others.argmax(1)
    best = np.sort(probs, 1)[:, -2:]
    score = None
    if SCORE in wanted:
        score = largest((found[SCORE] - wanted[SCORE]) / np.maximum(1, np.abs(wanted[SCORE])))
    exchanged = ~same & (best[:, 1] - best[:, 0] > CLOSE)
    return Parity(len(probs), largest(others - probs), score, int(same.sum()), int(exchanged.sum()))


def largest(differences: NDArray[Any]) -> float:
    """Of absolute values; infinite where one is not finite."""
    return float(np.nan_to_num(np.abs(differences), nan=np.inf, posinf=np.inf).max())
