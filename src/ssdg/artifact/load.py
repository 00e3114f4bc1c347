"""Load a model folder from any source and classify images with it.

Fields and shapes are checked before memory is allocated, and nothing in the folder is executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from ..data.sources.decode import ResizeMode
from ..data.sources.tree import Item
from ..devices import evaluation_batch
from ..errors import UserError, one_line
from ..files import MAX_JSON_BYTES, parse_json, read_bytes, real_path
from ..inference.agreement import check_precision
from ..inference.classifier import CARD as CARD
from ..inference.classifier import Answer, OutOfMemory, free_memory, no_model, require_rejection
from ..inference.classifier import model_of as model_of
from ..inference.predictions import Prediction
from ..inference.rejection import Rejection
from ..inference.stream import predict_batches
from ..machine import bf16_copy, copy_modules, is_fast_at_bf16, start_machine
from ..methods import METHODS, find_method
from ..methods.api import Learner, Sizes
from ..methods.plugins import load_plugin
from ..models.backbones import build_backbone
from ..models.folding import fold_batch_norms
from .calibration import calibrated_probs, known_scores
from .card import ModelCard
from .tensors import changed_tensor, copy_tensors, split_meta

WEIGHTS = "model.safetensors"
BATCH = 128
FOLDING_TOLERANCE = 1e-4  # of logits, relative to the largest if that is above 1
SLACK = 2**24  # values that building may allocate beyond those in the file: a probe image, temporary tensors
MIN_TENSOR_COST = 2**10  # values that every tensor counts for at least: a million tiny ones take memory too
FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn)
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Model:
    """Trained networks and their classes; predictions average the networks' probabilities.

    Create it with `load_model`.

    Parameters
    ----------
    classes : tuple of str
        Class names, in the order of the probabilities.
    size : int
        Height and width of the input images in pixels.
    learner : Learner
        The networks.
    device : torch.device
        The device of the networks.
    rejection : Rejection or None
        Thresholds for rejecting images as unknown. None if the run held out no labeled images.
    temperature : float or None
        Calibration temperature. None leaves the probabilities uncalibrated.
    networks : Learner or None
        The networks that compute: a copy of `learner` whose batch norms are folded into convolutions. None if
        `learner` itself computes.
    faster : Model or None
        The same model in bfloat16, which `predict` uses where it preserves the answers. None if it may not.
    resize : {"squash", "crop", "pad"}
        How images that are not square are brought to `size`.

    Examples
    --------
    >>> from pathlib import Path
    >>> import ssdg
    >>> from ssdg.data.sources.tree import read_tree
    >>> model = ssdg.load_model(Path("runs/first"), device="cpu")  # doctest: +SKIP
    >>> model.classes  # doctest: +SKIP
    ('cat', 'dog')
    >>> for row in model.predict(read_tree(Path("photos")).images, reject=0.05):  # doctest: +SKIP
    ...     print(row.path, "unknown" if row.is_unknown else row.label, row.confidence)
    """

    classes: tuple[str, ...]
    size: int
    learner: Learner
    device: torch.device
    rejection: Rejection | None = None
    temperature: float | None = None
    networks: Learner | None = None
    faster: Model | None = None
    resize: ResizeMode = "squash"

    @property
    def batch(self) -> int:
        """Images per forward pass."""
        return evaluation_batch(self.device, self.size)

    def logits(self, images: NDArray[np.uint8]) -> Tensor:
        """Return logits (networks, n, K) of uint8 images (n, size, size, 3), in float32 on the CPU."""
        networks = self.networks or self.learner
        networks.nets.eval()
        parts = [torch.from_numpy(images[start : start + self.batch]) for start in range(0, len(images), self.batch)]
        with torch.inference_mode():
            return torch.cat([networks.logits(to_float(x.to(self.device))).float() for x in parts], 1).cpu()

    def probs(self, logits: Tensor) -> Tensor:
        """Return calibrated probabilities (n, K) from logits (networks, n, K), averaged over the networks."""
        return calibrated_probs(logits, self.temperature)

    def answer(self, images: NDArray[np.uint8]) -> Answer:
        """Return averaged probabilities, scores of how known each image looks, and each network's class."""
        try:
            logits = self.logits(images)
        except torch.OutOfMemoryError:
            raise OutOfMemory from None
        return Answer(self.probs(logits).numpy(), known_scores(logits), logits.argmax(-1).numpy())

    def predict(self, items: Iterable[Item], reject: float | None = None) -> Iterator[Prediction]:
        """Yield one prediction per image, in order, in constant memory.

        With `reject`, the fraction of known images that may be rejected, mark images that look less known as unknown.
        A model loaded with `precision="auto"` classifies the first 256 images in float32 and the next 256 in both
        precisions; if at least 99.9 % of these get the same answer, it classifies the rest in bfloat16.
        """
        for rows in predict_batches(self, items, batch=BATCH, reject=reject):
            yield from rows

    def require_rejection(self) -> Rejection:
        """Return the rejection thresholds; raise `UserError` if the model has none."""
        return require_rejection(self)

    def free_bytes(self) -> int:
        """Return the memory that is free on the device now."""
        return free_bytes(self.device)


def free_bytes(device: torch.device) -> int:
    """Return the memory that is free on a device now."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()


def load_model(folder: Path, device: str = "auto", plugin: Path | None = None, precision: str = "auto") -> Model:
    """Load the model of a finished run. Nothing in the folder is executed.

    Batch norms are folded into convolutions in a copy of the networks, which changes logits by rounding only. A run
    in bf16 measured its own accuracy in bf16, so images with two almost equally likely classes may get another
    class here.

    Parameters
    ----------
    folder : Path
        A run folder or a model folder.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        The device of the networks. "auto" is CUDA if available, else the CPU.
    plugin : Path, optional
        The Python file that registers the model's method, if it is a custom one. This file is executed; it is never
        taken from the folder.
    precision : {"auto", "fp32", "bf16"}, default="auto"
        The precision of the networks. "auto" is float32; where the hardware is fast at bfloat16, `predict` changes
        to it once a sample has shown that it preserves the answers.

    Returns
    -------
    Model
        The trained networks with their classes, rejection thresholds and calibration temperature.

    Raises
    ------
    UserError
        If the folder contains no model, a file is damaged, the weights do not match `model.json`, the method is not
        registered, the device is not available, or the precision is unknown.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import ssdg
    >>> model = ssdg.load_model(Path("runs/first"), device="cpu")  # doctest: +SKIP
    >>> images = np.zeros((2, model.size, model.size, 3), np.uint8)  # doctest: +SKIP
    >>> model.answer(images).probs.shape == (2, len(model.classes))  # doctest: +SKIP
    True
    """
    check_precision(precision)
    machine = start_machine(device)
    if plugin is not None:
        load_plugin(plugin)
    folder = model_of(folder)
    card = read_card(folder)
    learner = load_learner(folder, card)
    machine.prepare(learner)
    networks = fold(learner, card.size, machine.device)
    model = Model(
        card.classes,
        card.size,
        learner,
        machine.device,
        card.reject,
        card.temperature,
        networks,
        resize=card.resize,
    )
    if precision == "fp32" or (precision == "auto" and not is_fast_at_bf16(device)):
        return model
    faster = replace(model, networks=bf16_copy(networks, machine.device.type))
    return faster if precision == "bf16" else replace(model, faster=faster)


def fold(learner: Learner, size: int, device: torch.device) -> Learner:
    """Return a copy of the networks with folded batch norms; the learner itself if its logits would change."""
    learner.nets.eval()
    twin = copy_modules(learner)
    if not fold_batch_norms(twin.nets):
        return learner
    image = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.inference_mode():
        exact, folded = learner.logits(image), twin.logits(image)
    tolerance = FOLDING_TOLERANCE * max(1.0, float(exact.abs().max()))
    return twin if torch.allclose(folded, exact, rtol=0, atol=tolerance) else learner


def read_card(folder: Path) -> ModelCard:
    """Read and validate `model.json` of a model folder."""
    path = folder / CARD
    try:
        fields = read_json(path)
        check_learner(fields, path)
        return ModelCard.model_validate(fields)
    except (FileNotFoundError, NotADirectoryError):
        raise no_model(folder) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise damaged(path, reason)


def check_learner(fields: Any, path: Path) -> None:
    """Reject a model of an unregistered method, which needs its plugin."""
    name = fields.get("learner") if isinstance(fields, dict) else None
    if isinstance(name, str) and name not in METHODS:
        raise UserError(
            f"the model in '{path.parent}' uses the method '{one_line(name)}', which is not registered; "
            "give the file that registers it with --plugin"
        )


def read_json(path: Path) -> Any:
    """Read a JSON file of a model folder; raise `FileNotFoundError` if it does not exist."""
    path = regular_file(path)
    if path.stat().st_size > MAX_JSON_BYTES:
        raise damaged(path, f"it is larger than {MAX_JSON_BYTES:,} bytes")
    try:
        return parse_json(read_bytes(path))
    except ValueError as error:
        raise damaged(path, str(error)) from None


def regular_file(path: Path) -> Path:
    """Return the path if it is a regular file; reject a symbolic link that leaves its folder."""
    if path.is_symlink() and not real_path(path).is_relative_to(path.parent.resolve()):
        raise UserError(
            f"'{path}' is a symbolic link that leaves its folder and is not followed; copy the file into the folder"
        )
    if not path.exists():
        raise FileNotFoundError(path)
    if not path.is_file():
        raise damaged(path, "it is not a regular file")
    return path


def load_learner(folder: Path, card: ModelCard) -> Learner:
    """Load the networks of a model folder, on the CPU."""
    path = folder / WEIGHTS
    try:
        opened: Any = safe_open(regular_file(path), framework="pt")
    except FileNotFoundError:
        raise UserError(f"'{folder}' contains no {WEIGHTS}; copy the model folder again") from None
    except (SafetensorError, OSError) as error:
        raise unreadable(path, error) from None
    with opened as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        learner = build_learner(card, shapes, path)
        state = dict(learner.nets.state_dict())
        check_shapes(state, shapes, path)
        tensors = {name: file.get_tensor(name) for name in shapes}
        if name := changed_tensor(tensors, stored_checksums(file.metadata(), path)):
            raise damaged(path, f"the checksum of {name} does not match")
        copy_tensors(tensors, state, path)
    if not_finite := sorted(name for name, tensor in state.items() if not tensor.isfinite().all()):
        raise damaged(path, f"{not_finite[0]} is not finite")
    return learner


def stored_checksums(metadata: dict[str, str] | None, path: Path) -> dict[str, int]:
    """Return the checksums in the metadata of a weights file; none in a file of an earlier version."""
    if not metadata or "meta" not in metadata:
        return {}
    try:
        return split_meta(metadata["meta"])[1]
    except (ValueError, TypeError) as error:
        raise damaged(path, str(error)) from None


def build_learner(card: ModelCard, shapes: Shapes, path: Path) -> Learner:
    """Build the networks of the card, unless they need far more memory than the values in the file."""
    sizes = Sizes(len(card.classes), card.num_domains)
    with AllocationBudget(2 * sum(map(math.prod, shapes.values())) + SLACK, path):
        extend = card.settings.extend_backbone
        learner = find_method(card.learner).learner
        return learner(lambda: extend(build_backbone(card.backbone, "none")), sizes, card.settings)


class AllocationBudget(TorchFunctionMode):
    """Context that limits the number of values in new tensors, checked before each allocation."""

    def __init__(self, remaining: int, path: Path) -> None:
        super().__init__()
        self.remaining, self.path = remaining, path

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Charge the budget, then call `func`."""
        kwargs = kwargs or {}
        if func in FACTORIES:
            self.remaining -= max(MIN_TENSOR_COST, math.prod(requested_shape(args, kwargs)))
            if self.remaining < 0:
                raise mismatch(self.path, f"{CARD} describes larger networks")
        return func(*args, **kwargs)


def requested_shape(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[int]:
    """Return the shape in a call of one of FACTORIES: `empty(2, 3)`, `empty((2, 3))` or `empty(size=(2, 3))`."""
    shape: Any = args[0] if args and not isinstance(args[0], int) else kwargs.get("size", args)
    return [int(side) for side in shape]


def check_shapes(state: Mapping[str, Tensor], shapes: Shapes, path: Path) -> None:
    """Compare names and shapes in the file with those of the networks, before any tensor is read."""
    expected: Shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    if wrong := sorted(name for name in {*expected, *shapes} if expected.get(name) != shapes.get(name)):
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise mismatch(path, f"{one_line(wrong[0])}{more}")


def mismatch(path: Path, reason: str) -> UserError:
    """Return the error for weights that belong to other networks than those of the card."""
    return UserError(f"'{path}' does not match its {CARD} ({reason}); copy the model folder again")


def unreadable(path: Path, error: Exception) -> UserError:
    """Return the error for a truncated file or a file of another type."""
    return UserError(f"'{path}' cannot be read ({one_line(str(error))}); copy the model folder again")


def damaged(path: Path, reason: str) -> UserError:
    """Return the error for a file of the right type with invalid content."""
    return UserError(f"'{path}' is damaged ({one_line(reason)}); copy the model folder again")
