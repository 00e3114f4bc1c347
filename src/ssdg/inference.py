"""A trained model in use: load it, classify images, measure accuracy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from torch import Tensor

from .data.augment import to_float
from .data.sources import Item
from .engine.evaluate import mean_probs
from .engine.machine import start_machine
from .engine.predictions import Prediction
from .engine.rejection import Rejection
from .engine.state import fill, load_tensors
from .engine.unknown import known_scores
from .errors import UserError
from .methods import METHODS, find_method
from .methods.api import Learner, Sizes
from .models.backbones import build_backbone
from .plugins import load_plugin
from .serving.classifier import Answer, OutOfMemory, require_rejection
from .serving.memory import free_memory
from .serving.stream import predictions

BATCH = 128


class ModelCard(BaseModel):
    """`model.json`: what is needed to use the networks."""

    model_config = ConfigDict(extra="ignore")

    format: int = Field(ge=1, le=1)
    learner: str
    backbone: str
    num_domains: int = Field(1, ge=1, le=10_000)
    size: int = Field(ge=8, le=1024)
    classes: list[str] = Field(min_length=2, max_length=100_000)
    settings: Any
    reject: Rejection | None = None  # models of earlier versions have none

    @field_validator("settings")
    @classmethod
    def _fit_method(cls, given: Any, info: ValidationInfo) -> Any:
        return find_method(info.data["learner"]).settings.model_validate(given) if "learner" in info.data else given


@dataclass(frozen=True, eq=False)
class Model:
    """Trained networks and their classes. Their probabilities are averaged."""

    classes: tuple[str, ...]
    size: int
    learner: Learner
    device: torch.device
    rejection: Rejection | None = None

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
        return Answer(mean_probs(logits).numpy(), known_scores(logits), logits.argmax(-1).numpy())

    def free_bytes(self) -> int:
        """The memory that is free on its device now."""
        return torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else free_memory()

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
    folder = folder / "model" if (folder / "model").is_dir() else folder
    card = read_card(folder / "model.json")
    sizes = Sizes(len(card.classes), card.num_domains)
    learner = find_method(card.learner).learner(lambda: build_backbone(card.backbone, "none"), sizes, card.settings)
    path = folder / "model.safetensors"
    fill(dict(learner.nets.state_dict()), load_tensors(path)[0], path)
    machine.prepare(learner)
    return Model(tuple(card.classes), card.size, learner, machine.device, card.reject)


def read_card(path: Path) -> ModelCard:
    """`model.json`, every field checked."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        check_learner(told, path)
        return ModelCard.model_validate(told)
    except FileNotFoundError:
        raise UserError(
            f"'{path.parent}' holds no trained model (no model.json); give the folder of a run that has ended"
        ) from None
    except UserError:
        raise
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except ValueError as error:
        reason = str(error)
    raise UserError(f"'{path}' is damaged ({reason}); copy the model folder anew")


def check_learner(told: Any, path: Path) -> None:
    """A model of a method that is not the package's needs the file that has it."""
    name = told.get("learner") if isinstance(told, dict) else None
    if isinstance(name, str) and name not in METHODS:
        raise UserError(
            f"the model in '{path.parent}' is of the method '{name}', which ssdg does not have; "
            "give the file that registers it with --plugin"
        )
