"""Whether bfloat16 preserves the answers of float32 on a sample: a rule and no timing, so it is reproducible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import unknown
from .classifier import Answer

MIN_AGREEMENT = 0.999  # of the images of the sample
SAMPLE = 256  # images of a stream that are classified in both precisions
NUM_SAMPLE_BATCHES = 8  # of a set that can be read in any order
Decision = Literal["fp32", "bf16"]
PRECISIONS = ("auto", "fp32", "bf16")


def check_precision(precision: str) -> None:
    """Reject an unknown precision."""
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)


def agreement(exact: Answer, rounded: Answer, threshold: float | None = None) -> float:
    """Return the fraction of images with the same class, the same votes and, with a threshold, the same rejection."""
    is_same = exact.probs.argmax(1) == rounded.probs.argmax(1)
    if exact.votes is not None and rounded.votes is not None:
        is_same &= (exact.votes == rounded.votes).all(0)
    if threshold is not None and exact.scores is not None and rounded.scores is not None:
        is_same &= (exact.scores < threshold) == (rounded.scores < threshold)
    return float(is_same.mean())


def decide(agreement_rate: float) -> Decision:
    """Return the precision that the agreement on a sample allows."""
    return "bf16" if agreement_rate >= MIN_AGREEMENT else "fp32"


def sample_batches(num_images: int, batch: int) -> list[int]:
    """Return the indices of the batches to compute in both precisions, evenly spaced: sets are sorted by class.

    A set of fewer than twice as many images has none: comparing would take longer than it saves.
    """
    num_batches = num_images // batch
    if num_batches < 2 * NUM_SAMPLE_BATCHES:
        return []
    return (np.arange(NUM_SAMPLE_BATCHES) * num_batches // NUM_SAMPLE_BATCHES).tolist()


@dataclass
class StreamRule:
    """The choice for a stream of unknown length, from its images SAMPLE to 2 · SAMPLE; constant memory.

    The images before it are classified in float32 only: short streams need no comparison.
    """

    decision: Decision | None
    threshold: float | None = None  # of rejection
    num_seen: int = 0
    num_sampled: int = 0
    num_agreed: int = 0

    @property
    def is_sampling(self) -> bool:
        """Whether the next images are classified in both precisions."""
        return self.decision is None and self.num_seen >= SAMPLE

    def skip(self, num_images: int) -> None:
        """Count images before the sample."""
        self.num_seen += num_images

    def compare(self, exact: Answer, rounded: Answer) -> None:
        """Count images of the sample; decide once there are enough."""
        num_images = len(exact.probs)
        self.num_sampled += num_images
        self.num_agreed += round(agreement(exact, rounded, self.threshold) * num_images)
        if self.num_sampled >= SAMPLE:
            self.decision = decide(self.num_agreed / self.num_sampled)
