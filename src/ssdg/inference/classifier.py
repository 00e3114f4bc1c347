"""The interface of anything that classifies images, and the batch size that fits into memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .rejection import Rejection, Scores

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


MOST = 128  # larger batches are no faster on a CPU
SHARE = 4  # of the free memory a batch may take one in so many
# The widest maps of our backbones take about 30 times an image in float32, and two or three of them live at once.
MAPS = 64
_GROUP = Path("/sys/fs/cgroup")


def check_batch(given: int | str) -> int | None:
    """So many images at once as were asked for; None for `auto`."""
    if isinstance(given, str):
        return None
    if given < 1:
        raise UserError(f"--batch {given} is no number of images; give auto, or a whole number from 1 on")
    return given


def auto_batch(free: int, size: int) -> int:
    """The largest power of two that fits a quarter of `free`, an image taking 64 times its size in float32."""
    fitting = free // SHARE // (MAPS * size * size * 3 * 4)
    return min(MOST, 1 << max(fitting, 1).bit_length() - 1)


def free_memory(group: Path = _GROUP, told: Path = Path("/proc/meminfo")) -> int:
    """Bytes that this machine, or the container that we are in, can still give; 1 GB where nobody tells."""
    known = [*_available(told), *_left_in(group)]
    return max(min(known), 0) if known else 1 << 30


def _available(told: Path) -> list[int]:
    try:
        lines = told.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _left_in(group: Path) -> list[int]:
    try:
        limit, used = (
            (group / name).read_text(encoding="utf-8").strip() for name in ("memory.max", "memory.current")
        )
    except OSError:
        return []
    return [int(limit) - int(used)] if limit.isdigit() and used.isdigit() else []
