"""What classifies images: networks of a run, or an exported file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..engine.rejection import Rejection, Scores
from ..errors import UserError

Images = NDArray[np.uint8]  # (n, size, size, 3), RGB


@dataclass(frozen=True, eq=False)
class Answer:
    """What a classifier says of n images."""

    probs: NDArray[np.floating[Any]]  # (n, K)
    scores: Scores | None = None  # (n,): how known each image looks, where that can be told
    votes: NDArray[np.int64] | None = None  # (networks, n): the class that each network alone takes, where it is told


class OutOfMemory(Exception):
    """So many images at once do not fit into the memory of the device."""


class Classifier(Protocol):
    """Anything that answers for images of one size."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the columns of an answer's probabilities."""

    @property
    def size(self) -> int:
        """Height and width of the images."""

    @property
    def rejection(self) -> Rejection | None:
        """When to answer 'unknown', where that is known."""

    def free_bytes(self) -> int:
        """The memory that is free on its device now."""

    def answer(self, images: Images) -> Answer:
        """Probabilities and scores; the only place that says what a confidence is."""


def require_rejection(classifier: Classifier) -> Rejection:
    """When a classifier answers 'unknown'; one that cannot is refused."""
    if classifier.rejection is None:
        raise UserError(
            "this model has no thresholds for --reject: its run held out no labeled images, is of an earlier version "
            "of ssdg, or was exported without scores; leave --reject out, or train anew with five or more labeled "
            "images of a class"
        )
    return classifier.rejection
