"""A trained model in use: load it, classify images, measure accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .data.augment import to_float
from .data.sources import Item
from .engine.calibration import calibrated_probs
from .engine.machine import start_machine
from .engine.predictions import Prediction
from .engine.reading import load_learner, model_of, read_card
from .engine.rejection import Rejection
from .engine.unknown import known_scores
from .methods.api import Learner
from .plugins import load_plugin
from .serving.classifier import Answer, OutOfMemory, require_rejection
from .serving.memory import free_memory
from .serving.stream import predictions

BATCH = 128


@dataclass(frozen=True, eq=False)
class Model:
    """Trained networks and their classes. Their probabilities are averaged."""

    classes: tuple[str, ...]
    size: int
    learner: Learner
    device: torch.device
    rejection: Rejection | None = None
    temperature: float | None = None  # None: not known, probabilities are as the networks say

    def logits(self, images: NDArray[np.uint8]) -> Tensor:
        """(networks, n, K) for uint8 images (n, size, size, 3)."""
        self.learner.nets.eval()
        with torch.inference_mode():
            return self.learner.logits(to_float(torch.from_numpy(images).to(self.device))).float().cpu()

    def answer(self, images: NDArray[np.uint8]) -> Answer:
        """Probabilities averaged over the networks, how known each image looks, and the class each network takes."""
        try:
            logits = self.logits(images)
        except torch.OutOfMemoryError:
            raise OutOfMemory from None
        return Answer(self.probs(logits).numpy(), known_scores(logits), logits.argmax(-1).numpy())

    def free_bytes(self) -> int:
        """The memory that is free on its device now."""
        return torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else free_memory()

    def probs(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities (n, K) of logits (networks, n, K), averaged over the networks."""
        return calibrated_probs(logits, self.temperature)

    def require_rejection(self) -> Rejection:
        """What is known of when to answer 'unknown'."""
        return require_rejection(self)

    def predict(self, items: Iterable[Item], reject: float | None = None) -> Iterator[Prediction]:
        """One prediction per image, in order, in constant memory.

        With `reject`, the share of known images that may be lost, what looks less known is marked as unknown.
        """
        for rows in predictions(self, items, batch=BATCH, reject=reject):
            yield from rows


def load_model(folder: Path, device: str = "auto", plugin: Path | None = None) -> Model:
    """The model of a run folder or of a model folder. Nothing in the files is executed.

    Only a `plugin`, the Python file with a method of one's own, is code; it is never taken from the folder.

    It computes in float32: a run in bf16 scored itself in bf16, and a close call may fall the other way here.
    """
    machine = start_machine(device)
    if plugin is not None:
        load_plugin(plugin)
    folder = model_of(folder)
    card = read_card(folder)
    learner = load_learner(folder, card)
    machine.prepare(learner)
    return Model(card.classes, card.size, learner, machine.device, card.reject, card.temperature)
