"""The interface of anything that classifies images, and the batch size that fits into memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.sources.decode import ResizeMode
from ..errors import UserError, brief
from ..limits import MAX_IMAGES
from .rejection import Rejection, Scores

Images = NDArray[np.uint8]  # (n, size, size, 3), RGB
MAX_BATCH = 128  # larger batches are no faster on a CPU
MEMORY_DIVISOR = 4  # a batch may take 1/4 of the free memory
# The widest feature maps of our backbones take about 30 times an image in float32, and two or three exist at once.
ACTIVATION_FACTOR = 64
_CGROUP, _MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/meminfo")


CARD = "model.json"  # of a model folder


def model_of(folder: Path) -> Path:
    """Return the model folder inside a run folder, or `folder` itself."""
    return folder / "model" if (folder / "model").is_dir() else folder


def no_model(folder: Path) -> UserError:
    """Return the error for a folder without a trained model."""
    return UserError(f"'{folder}' contains no trained model (no {CARD}); give the folder of a finished run")


def check_model_folder(folder: Path) -> None:
    """Raise an error if a model folder has no card."""
    if not (folder / CARD).exists():
        raise no_model(folder)


@dataclass(frozen=True, eq=False)
class Answer:
    """The output of a classifier for n images."""

    probs: NDArray[np.floating[Any]]  # (n, K)
    scores: Scores | None = None  # (n,): how known each image looks, if the classifier has scores
    votes: NDArray[np.int64] | None = None  # (networks, n): the class of each network, if there are several


class OutOfMemory(Exception):
    """The batch does not fit into the memory of the device."""


class Classifier(Protocol):
    """Anything that classifies images of one size."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, in the order of the probabilities."""

    @property
    def size(self) -> int:
        """Height and width of the images."""

    @property
    def resize(self) -> ResizeMode:
        """How images that are not square are brought to this size."""

    @property
    def rejection(self) -> Rejection | None:
        """Thresholds for rejecting images as unknown, if there are any."""

    def free_bytes(self) -> int:
        """Return the memory that is free on the device now."""

    def answer(self, images: Images) -> Answer:
        """Return probabilities and scores; the only method that defines what a confidence is."""


def require_rejection(classifier: Classifier) -> Rejection:
    """Return the rejection thresholds of a classifier; raise `UserError` if it has none."""
    if classifier.rejection is None:
        raise UserError(
            "this model has no thresholds for --reject: its run held out no labeled images, it was trained with an "
            "earlier version of ssdg, or it was exported without scores; leave out --reject, or train again with at "
            "least five labeled images of a class"
        )
    return classifier.rejection


def parse_batch(batch: int | str) -> int | None:
    """Return the requested batch size; None for `auto`."""
    if isinstance(batch, str):
        return None
    if not 1 <= batch <= MAX_IMAGES:
        raise UserError(
            f"--batch {brief(batch)} is not a batch size; give auto, or an integer from 1 to {MAX_IMAGES:,}"
        )
    return batch


def auto_batch(free: int, size: int) -> int:
    """Return the largest power of two that fits a quarter of `free`, at 64 times an image's size in float32 each."""
    num_fitting = free // MEMORY_DIVISOR // (ACTIVATION_FACTOR * size * size * 3 * 4)
    return min(MAX_BATCH, 1 << max(num_fitting, 1).bit_length() - 1)


def free_memory(cgroup: Path = _CGROUP, meminfo: Path = _MEMINFO) -> int:
    """Return the bytes that this machine, or the container around it, can still allocate; 1 GB if unknown."""
    limits = [*_available_memory(meminfo), *_cgroup_memory(cgroup)]
    return max(min(limits), 0) if limits else 1 << 30


def _available_memory(meminfo: Path) -> list[int]:
    try:
        lines = meminfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]


def _cgroup_memory(cgroup: Path) -> list[int]:
    try:
        limit, used = (
            (cgroup / name).read_text(encoding="utf-8").strip() for name in ("memory.max", "memory.current")
        )
    except OSError:
        return []
    return [int(limit) - int(used)] if limit.isdigit() and used.isdigit() else []
