"""Load a model folder from anywhere and classify images with it.

Fields and shapes are checked before memory is spent, and nothing in the folder is executed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..data.augment import to_float
from ..data.sources.tree import Item
from ..errors import UserError
from ..inference.classifier import Answer, OutOfMemory, free_memory, require_rejection
from ..inference.predictions import Prediction
from ..inference.rejection import Rejection
from ..inference.stream import predictions
from ..machine import start_machine
from ..methods import METHODS, find_method
from ..methods.api import Learner, Sizes
from ..methods.plugins import load_plugin
from ..models.backbones import build_backbone
from .calibration import calibrated_probs, known_scores
from .card import ModelCard
from .tensors import fill

CARD, WEIGHTS = "model.json", "model.safetensors"
MOST_JSON = 64_000_000  # bytes; a hundred thousand classes take a few
SLACK = 2**24  # numbers that building may take beside those in the file: a probe image, what is not kept
LEAST = 2**10  # that a tensor counts for at least: a million of tiny ones take memory too
MAKERS = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)
Shapes = Mapping[str, tuple[int, ...]]


def model_of(folder: Path) -> Path:
    """The model's folder in a run's folder, or the folder itself."""
    return folder / "model" if (folder / "model").is_dir() else folder


def read_json(path: Path) -> Any:
    """A JSON file of a model's folder; `FileNotFoundError` where there is none."""
    path = own_file(path)
    if path.stat().st_size > MOST_JSON:
        raise damaged(path, f"it is larger than {MOST_JSON:,} bytes")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from None


def own_file(path: Path) -> Path:
    """The path, if it is a plain file of its folder; a link may not lead out of it."""
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise UserError(f"'{path}' is a link out of its folder and is not followed; copy the file itself there")
    if not path.exists():
        raise FileNotFoundError(path)
    if not path.is_file():
        raise damaged(path, "it is no plain file")
    return path


def read_card(folder: Path) -> ModelCard:
    """`model.json` of a model's folder, every field checked."""
    path = folder / CARD
    try:
        told = read_json(path)
        check_learner(told, path)
        return ModelCard.model_validate(told)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"'{folder}' holds no trained model (no {CARD}); give the folder of a run that has ended"
        ) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise damaged(path, reason)


def check_learner(told: Any, path: Path) -> None:
    """A model of a method that is not the package's needs the file that has it."""
    name = told.get("learner") if isinstance(told, dict) else None
    if isinstance(name, str) and name not in METHODS:
        raise UserError(
            f"the model in '{path.parent}' is of the method '{one_line(name)}', which ssdg does not have; "
            "give the file that registers it with --plugin"
        )


def load_learner(folder: Path, card: ModelCard) -> Learner:
    """The networks of a model's folder, on the CPU."""
    path = folder / WEIGHTS
    try:
        opened: Any = safe_open(own_file(path), framework="pt")
    except FileNotFoundError:
        raise UserError(f"'{folder}' holds no {WEIGHTS}; copy the model folder anew") from None
    except (SafetensorError, OSError) as error:
        raise unreadable(path, error) from None
    with opened as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        learner = build(card, shapes, path)
        into = dict(learner.nets.state_dict())
        check_shapes(into, shapes, path)
        fill(into, {name: file.get_tensor(name) for name in shapes}, path)
    if broken := sorted(name for name, tensor in into.items() if not tensor.isfinite().all()):
        raise damaged(path, f"{broken[0]} is not finite")
    return learner


def build(card: ModelCard, shapes: Shapes, path: Path) -> Learner:
    """Networks as the card tells, unless they would take much more memory than the file has numbers."""
    sizes = Sizes(len(card.classes), card.num_domains)
    with Budget(2 * sum(map(math.prod, shapes.values())) + SLACK, path):
        return find_method(card.learner).learner(lambda: build_backbone(card.backbone, "none"), sizes, card.settings)


class Budget(TorchFunctionMode):
    """Inside, so many numbers may be put into new tensors; one that would be more is refused before it is made."""

    def __init__(self, left: int, path: Path) -> None:
        super().__init__()
        self.left, self.path = left, path

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Count, then call."""
        kwargs = kwargs or {}
        if func in MAKERS:
            self.left -= max(LEAST, math.prod(asked_shape(args, kwargs)))
            if self.left < 0:
                raise misfit(self.path, f"{CARD} tells of larger networks")
        return func(*args, **kwargs)


def asked_shape(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[int]:
    """The shape in a call of one of MAKERS: `empty(2, 3)`, `empty((2, 3))` or `empty(size=(2, 3))`."""
    given: Any = args[0] if args and not isinstance(args[0], int) else kwargs.get("size", args)
    return [int(side) for side in given]


def check_shapes(into: Mapping[str, Tensor], shapes: Shapes, path: Path) -> None:
    """Names and shapes must be those of the networks, before any of them is read."""
    wanted: Shapes = {name: tuple(tensor.shape) for name, tensor in into.items()}
    if wrong := sorted(name for name in {*wanted, *shapes} if wanted.get(name) != shapes.get(name)):
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise misfit(path, f"{one_line(wrong[0])}{more}")


def misfit(path: Path, reason: str) -> UserError:
    """The error for weights of other networks than the card tells of."""
    return UserError(f"'{path}' does not fit the {CARD} beside it ({reason}); copy the model folder anew")


def unreadable(path: Path, error: Exception) -> UserError:
    """The error for a file that is cut off or of another kind."""
    return UserError(f"'{path}' cannot be read ({one_line(str(error))}); copy the model folder anew")


def damaged(path: Path, reason: str) -> UserError:
    """The error for a file of the right kind that says what cannot be."""
    return UserError(f"'{path}' is damaged ({one_line(reason)}); copy the model folder anew")


def one_line(text: str, most: int = 200) -> str:
    """A text from a stranger's file as part of a sentence: on one line, without control characters, not long."""
    plain = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(plain.split())[:most]


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
