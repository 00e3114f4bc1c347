"""Exported models in ONNX Runtime, inspected before ONNX Runtime reads them.

The inspection checks that the file is complete and refers to no other file. It reads only the wire format of protocol
buffers and the field numbers of ONNX messages that hold tensors: https://onnx.ai/onnx/api/classes.html and
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..data.parallel import num_cores
from ..data.sources.decode import ResizeMode
from ..errors import UserError, one_line, unknown
from ..files import parse_json, read_bytes
from .classifier import Answer, Images, OutOfMemory, free_memory
from .rejection import Rejection

SUFFIX = ".onnx"
DEVICES = ("auto", "cpu", "cuda")
CUDA = "CUDAExecutionProvider"
TYPES = {"uint8-nhwc": "tensor(uint8)", "float32-nchw": "tensor(float)"}

# message: its fields that lead to tensors, and the messages they hold
FIELDS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
}
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # fields of a tensor
BASE_SECONDS, IMAGE_SECONDS = 8.0, 5.0  # time limit of a batch, far above what a backbone needs
MAX_BYTES = 2**31 - 1  # of a file, the limit of protocol buffers
MAX_DEPTH = 100  # of nested messages, the limit of protocol buffers
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


class OnnxCard(BaseModel):
    """The property `ssdg` of an .onnx file: what is needed to use the model."""

    model_config = ConfigDict(extra="ignore")

    format: int = Field(ge=1, le=1)
    classes: list[str] = Field(min_length=2, max_length=100_000)
    size: int = Field(ge=8, le=1024)
    resize: ResizeMode = "squash"  # of images that are not square, before the graph; files of earlier versions squash
    input: Literal["uint8-nhwc", "float32-nchw"]
    network: str = Field("mean", pattern="^(mean|[1-9][0-9]{0,3})$")  # the exported network of the run
    temperature: float | None = None  # already applied in the graph
    reject: Rejection | None = None
    learner: str = ""
    backbone: str = ""

    @field_validator("classes")
    @classmethod
    def _check_unique(cls, classes: list[str]) -> list[str]:
        if len({*classes}) < len(classes):
            raise ValueError("class names must be unique")
        return classes

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one image in the input of the graph."""
        return (self.size, self.size, 3) if self.input == "uint8-nhwc" else (3, self.size, self.size)


@dataclass(frozen=True, eq=False)
class OnnxClassifier:
    """A `Classifier` that runs a session of ONNX Runtime. Create it with `load_onnx`."""

    card: OnnxCard
    session: Any
    has_scores: bool

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names, in the order of the probabilities."""
        return tuple(self.card.classes)

    @property
    def size(self) -> int:
        """Height and width of the images."""
        return self.card.size

    @property
    def resize(self) -> ResizeMode:
        """How images that are not square are brought to this size."""
        return self.card.resize

    @property
    def rejection(self) -> Rejection | None:
        """Thresholds for rejecting images as unknown, if the file has them and outputs scores."""
        return self.card.reject if self.has_scores else None

    def free_bytes(self) -> int:
        """Return the free memory of the machine; ONNX Runtime does not report that of a device."""
        return free_memory()

    def answer(self, images: Images) -> Answer:
        """Return the probabilities and scores of uint8 images (n, size, size, 3)."""
        from onnxruntime.capi import onnxruntime_pybind11_state as errors

        graph_input: Any = images
        if self.card.input == "float32-nchw":
            graph_input = np.ascontiguousarray(images.transpose(0, 3, 1, 2), np.float32) / np.float32(255)
        names = ["probs", "score"] if self.has_scores else ["probs"]
        try:
            outputs = run_in_time(self.session, names, graph_input, BASE_SECONDS + IMAGE_SECONDS * len(images))
        except (errors.RuntimeException, errors.Fail) as error:
            if "allocat" in str(error).lower():
                raise OutOfMemory from None
            raise
        self._check_outputs(outputs, len(images))
        scores = np.nan_to_num(outputs[1].astype(np.float64), nan=0.0, posinf=0.0) if self.has_scores else None
        return Answer(outputs[0], scores)

    def _check_outputs(self, outputs: list[Any], num_images: int) -> None:
        shapes = {"probs": (num_images, len(self.classes)), "score": (num_images,)}
        for (name, shape), values in zip(shapes.items(), outputs, strict=False):
            if values.dtype != np.float32 or values.shape != shape:
                raise ValueError(f"its '{name}' is {values.dtype} {values.shape}, not float32 {shape}")


def run_in_time(session: Any, names: list[str], images: Any, seconds: float) -> list[Any]:
    """Run the graph; stop it and raise `UserError` after this many seconds, as a loop in it may never end."""
    import onnxruntime as ort

    options, expired = ort.RunOptions(), threading.Event()

    def stop() -> None:
        expired.set()
        options.terminate = True

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        outputs: list[Any] = session.run(names, {"images": images}, options)
    except Exception:
        if not expired.is_set():
            raise
        raise UserError(
            f"the model was stopped, because it did not classify {len(images):,} images in {seconds:,.0f} seconds; "
            "use a model that ssdg export wrote, or a smaller --batch"
        ) from None
    finally:
        timer.cancel()
    return outputs


def load_onnx(path: Path | str, device: str = "auto", threads: int | None = None) -> OnnxClassifier:
    """Load a model that `ssdg export` wrote, and check it with a trial run. Needs no torch.

    The file is treated as data: no code in it is executed, and no other file is read.

    Parameters
    ----------
    path : Path or str
        The .onnx file.
    device : {"auto", "cpu", "cuda"}, default="auto"
        The device of the session. "auto" is CUDA if ONNX Runtime supports it, else the CPU. CUDA needs the package
        onnxruntime-gpu.
    threads : int, optional
        CPU threads of the session. By default, all cores.

    Returns
    -------
    OnnxClassifier
        The classifier, with `classes`, `size`, `rejection` and `answer(images)`.

    Raises
    ------
    UserError
        If onnxruntime is not installed, the file does not exist or was not written by `ssdg export`, its weights are
        in another file, or the device is not available.

    Examples
    --------
    >>> import numpy as np
    >>> import ssdg
    >>> model = ssdg.load_onnx("model.onnx", device="cpu")  # doctest: +SKIP
    >>> images = np.zeros((2, model.size, model.size, 3), np.uint8)  # doctest: +SKIP
    >>> answer = model.answer(images)  # doctest: +SKIP
    >>> answer.probs.shape == (2, len(model.classes))  # doctest: +SKIP
    True
    """
    path = Path(path)
    try:
        import onnxruntime as ort
    except ImportError:
        raise UserError(f"'{path}' needs onnxruntime, which is not installed; run pip install 'ssdg[onnx]'") from None
    content = read_self_contained(path)
    providers = choose_providers(device, ort.get_available_providers())
    options = ort.SessionOptions()
    options.log_severity_level = 4  # errors are reported by `invalid_file`
    options.intra_op_num_threads = threads or num_cores()
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        session = ort.InferenceSession(content, options, providers=providers)
        card = read_card(session.get_modelmeta().custom_metadata_map)
        classifier = OnnxClassifier(card, session, "score" in [o.name for o in session.get_outputs()])
        check_graph(classifier)
        classifier.answer(np.full((2, card.size, card.size, 3), 127, np.uint8))
    except UserError:
        raise
    except (OutOfMemory, MemoryError):
        raise invalid_file(path, "two images need more memory than is free") from None
    except Exception as error:  # onnxruntime raises exceptions of many types
        raise invalid_file(path, one_line(str(error)) or type(error).__name__) from None
    return classifier


def invalid_file(path: Path, reason: str) -> UserError:
    """Return the error for a file that is not an exported model."""
    return UserError(f"'{path}' cannot be used as an exported model ({reason}); write it again with ssdg export")


def read_self_contained(path: Path) -> bytes:
    """Read the file; reject one that refers to other files, before ONNX Runtime sees it."""
    try:
        content = read_bytes(path, MAX_BYTES)
    except FileNotFoundError:
        raise UserError(f"'{path}' does not exist; give a run folder, a model folder or an .onnx file") from None
    try:
        is_self_contained = not has_external_data(memoryview(content))
    except DamagedError as error:
        raise invalid_file(path, str(error)) from None
    if not content:
        raise invalid_file(path, "it is empty")
    if not is_self_contained:
        raise invalid_file(path, "its weights are in another file, which is not read")
    return content


def choose_providers(device: str, available: list[str]) -> list[str]:
    """Return the execution providers: CUDA if it is available and `device` allows it, then the CPU."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if device == "cuda" and CUDA not in available:
        raise UserError(
            "no CUDA device is found by onnxruntime; use --device cpu, or replace onnxruntime by onnxruntime-gpu"
        )
    return [*([CUDA] if device != "cpu" and CUDA in available else []), "CPUExecutionProvider"]


def read_card(properties: dict[str, str]) -> OnnxCard:
    """Read and validate the property `ssdg` of the file."""
    if "ssdg" not in properties:
        raise ValueError("it has no property 'ssdg'")
    try:
        return OnnxCard.model_validate(parse_json(properties["ssdg"]))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def check_graph(classifier: OnnxClassifier) -> None:
    """Compare inputs and outputs of the graph with the card; a named dimension accepts any size."""
    card, session = classifier.card, classifier.session
    inputs, outputs = (
        {value.name: value for value in values} for values in (session.get_inputs(), session.get_outputs())
    )
    if [*inputs] != ["images"]:
        raise ValueError(f"its inputs are {', '.join(inputs) or 'none'}, not images")
    if "probs" not in outputs:
        raise ValueError(f"its outputs are {', '.join(outputs)}, without probs")
    _check_value(inputs["images"], TYPES[card.input], card.shape)
    _check_value(outputs["probs"], "tensor(float)", (len(card.classes),))
    if classifier.has_scores:
        _check_value(outputs["score"], "tensor(float)", ())


def _check_value(value: Any, kind: str, shape: tuple[int, ...]) -> None:
    batch, *sides = value.shape or [None]
    is_match = len(value.shape) == 1 + len(shape) and all(
        not isinstance(side, int) or side == expected for side, expected in zip(sides, shape, strict=True)
    )
    if value.type != kind or not is_match:
        raise ValueError(f"its '{value.name}' is {value.type} {list(value.shape)}, not {kind} {['images', *shape]}")
    if isinstance(batch, int):
        raise ValueError(f"it accepts only batches of {batch} images, not of any size")


class DamagedError(ValueError):
    """The content is not a valid message; the text says why."""


def has_external_data(content: memoryview) -> bool:
    """Return whether any tensor of a model stores its values in another file; `DamagedError` if it is no model."""
    return _has_external_data("model", content, 0)


def _has_external_data(kind: str, content: memoryview, depth: int) -> bool:
    if depth > MAX_DEPTH:
        raise DamagedError("its messages are nested too deep")
    if kind == "tensor":
        return any(
            number == EXTERNAL_DATA or (number == DATA_LOCATION and value != 0) for number, value in _fields(content)
        )
    inner = FIELDS[kind]
    return any(
        _has_external_data(inner[number], value, depth + 1)
        for number, value in _fields(content)
        if number in inner and isinstance(value, memoryview)
    )


def _fields(content: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yield the fields of a message: their numbers, and their bytes or integers."""
    offset = 0
    while offset < len(content):
        key, offset = _varint(content, offset)
        wire_type = key & 7
        if wire_type == VARINT:
            value, offset = _varint(content, offset)
            yield key >> 3, value
            continue
        length = {FIXED64: 8, FIXED32: 4}.get(wire_type)
        if wire_type == BYTES:
            length, offset = _varint(content, offset)
        if length is None:
            raise DamagedError("it has a field of an unknown type")
        if offset + length > len(content):
            raise DamagedError("it is truncated")
        yield key >> 3, content[offset : offset + length]
        offset += length


def _varint(content: memoryview, offset: int) -> tuple[int, int]:
    """Return an integer of up to ten bytes with seven bits each, and the offset of the next field."""
    value = 0
    for shift in range(0, 70, 7):
        if offset >= len(content):
            raise DamagedError("it is truncated")
        byte = content[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise DamagedError("it has an integer that is too long")
