"""A trained model in use: load it, classify images, measure accuracy."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .data.augment import to_float
from .data.decode import UnreadableError, decode, resize
from .data.reader import Reader
from .data.sources import Item
from .engine.calibration import calibrated_probs
from .engine.machine import start_machine
from .engine.predictions import Prediction, best_two
from .engine.reading import load_learner, model_of, read_card
from .engine.unknown import Rejection, known_scores
from .errors import UserError
from .methods.api import Learner
from .plugins import load_plugin

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

    def probs(self, logits: Tensor) -> Tensor:
        """Calibrated probabilities (n, K) of logits (networks, n, K), averaged over the networks."""
        return calibrated_probs(logits, self.temperature)

    def require_rejection(self) -> Rejection:
        """What is known of when to answer 'unknown'."""
        if self.rejection is None:
            raise UserError(
                "this model has no thresholds for --reject: its run held out no labeled images, or is of an earlier "
                "version of ssdg; leave --reject out, or train anew with five or more labeled images of a class"
            )
        return self.rejection

    def predict(self, items: Iterable[Item], reject: float | None = None) -> Iterator[Prediction]:
        """One prediction per image, in order, in constant memory.

        With `reject`, the share of known images that may be lost, what looks less known is marked as unknown.
        """
        threshold = None if reject is None else self.require_rejection().threshold(reject)
        with Reader() as reader, ThreadPoolExecutor(os.cpu_count()) as pool:
            stream = iter(items)
            while part := list(islice(stream, BATCH)):
                decoded = list(pool.map(lambda i: self._decode(reader, i), part))
                yield from self._predict_part(part, decoded, threshold)

    def _decode(self, reader: Reader, item: Item) -> NDArray[np.uint8] | str:
        try:
            content = reader.read(item)
            return decode(content, self.size) if isinstance(content, bytes) else resize(content, self.size)
        except (UnreadableError, OSError) as error:
            return str(error)

    def _predict_part(
        self, items: Sequence[Item], decoded: Sequence[NDArray[np.uint8] | str], threshold: float | None
    ) -> Iterator[Prediction]:
        images = [d for d in decoded if not isinstance(d, str)]
        paths = [i.path for i, d in zip(items, decoded, strict=True) if not isinstance(d, str)]
        told = self._told(paths, self.logits(np.stack(images)), threshold) if images else iter(())
        for item, image in zip(items, decoded, strict=True):
            yield Prediction(item.path, error=image) if isinstance(image, str) else next(told)

    def _told(self, paths: Sequence[str], logits: Tensor, threshold: float | None) -> Iterator[Prediction]:
        rows = best_two(paths, self.probs(logits), self.classes)
        if threshold is None:
            return rows
        scores = known_scores(logits).tolist()
        return (replace(r, score=s, is_unknown=s < threshold) for r, s in zip(rows, scores, strict=True))


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
