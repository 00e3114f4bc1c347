"""An exported model run by ONNX Runtime, inspected before anything else reads it.

The inspection checks that the file is whole and refers to no other file. It reads only the wire format of protocol
buffers and the field numbers of ONNX messages that hold tensors: https://onnx.ai/onnx/api/classes.html and
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from ..data.parallel import num_cores
from ..errors import UserError, unknown
from .classifier import Answer, Images, OutOfMemory, free_memory
from .rejection import Rejection

# message: its fields that lead to tensors, and what they hold
FIELDS = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "training": {1: "graph", 2: "graph"},
}
EXTERNAL_DATA, DATA_LOCATION = 13, 14  # of a tensor
DEEPEST = 100  # messages inside each other, as protocol buffers allow
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class DamagedError(ValueError):
    """The bytes are no message; the message says why."""


def has_external_data(content: memoryview) -> bool:
    """Whether any tensor of a model says that its values lie in another file; `DamagedError` if it is no model."""
    return _any_external("model", content, 0)


def _any_external(kind: str, content: memoryview, depth: int) -> bool:
    if depth > DEEPEST:
        raise DamagedError("messages lie too deep inside each other")
    if kind == "tensor":
        return any(
            number == EXTERNAL_DATA or (number == DATA_LOCATION and value != 0) for number, value in _fields(content)
        )
    inner = FIELDS[kind]
    return any(
        _any_external(inner[number], value, depth + 1)
        for number, value in _fields(content)
        if number in inner and isinstance(value, memoryview)
    )


def _fields(content: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """The fields of a message: their numbers, and their bytes or whole numbers."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(content, at)
            yield key >> 3, value
            continue
        length = {FIXED64: 8, FIXED32: 4}.get(kind)
        if kind == BYTES:
            length, at = _varint(content, at)
        if length is None:
            raise DamagedError("it has a field of no known kind")
        if at + length > len(content):
            raise DamagedError("it is cut off")
        yield key >> 3, content[at : at + length]
        at += length


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    """A whole number of up to ten bytes of seven bits each, and where the next field begins."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            raise DamagedError("it is cut off")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise DamagedError("it has a number that is too long")


SUFFIX = ".onnx"
DEVICES = ("auto", "cpu", "cuda")
CUDA = "CUDAExecutionProvider"
TYPES = {"uint8-nhwc": "tensor(uint8)", "float32-nchw": "tensor(float)"}


class OnnxCard(BaseModel):
    """The property `ssdg` of an .onnx file: what is needed to use it."""

    model_config = ConfigDict(extra="ignore")

    format: int = Field(ge=1, le=1)
    classes: list[str] = Field(min_length=2, max_length=100_000)
    size: int = Field(ge=8, le=1024)
    input: Literal["uint8-nhwc", "float32-nchw"]
    network: str = Field("mean", pattern="^(mean|[1-9][0-9]{0,3})$")  # which of the run's networks answers
    temperature: float | None = None  # is in the graph already
    reject: Rejection | None = None
    learner: str = ""
    backbone: str = ""

    @field_validator("classes")
    @classmethod
    def _differ(cls, given: list[str]) -> list[str]:
        if len({*given}) < len(given):
            raise ValueError("a name stands there twice")
        return given

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image as the graph takes it."""
        return (self.size, self.size, 3) if self.input == "uint8-nhwc" else (3, self.size, self.size)


@dataclass(frozen=True, eq=False)
class OnnxClassifier:
    """A session of onnxruntime behind the interface of a classifier."""

    card: OnnxCard
    session: Any
    has_scores: bool

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the columns of an answer's probabilities."""
        return tuple(self.card.classes)

    @property
    def size(self) -> int:
        """Height and width of the images."""
        return self.card.size

    @property
    def rejection(self) -> Rejection | None:
        """Thresholds, where the file has them and tells scores."""
        return self.card.reject if self.has_scores else None

    def free_bytes(self) -> int:
        """Of the machine; onnxruntime does not tell of a device."""
        return free_memory()

    def answer(self, images: Images) -> Answer:
        """What the graph computes, checked."""
        from onnxruntime.capi import onnxruntime_pybind11_state as errors

        given: Any = images
        if self.card.input == "float32-nchw":
            given = np.ascontiguousarray(images.transpose(0, 3, 1, 2), np.float32) / np.float32(255)
        names = ["probs", "score"] if self.has_scores else ["probs"]
        try:
            told = self.session.run(names, {"images": given})
        except (errors.RuntimeException, errors.Fail) as error:
            if "allocat" in str(error).lower():
                raise OutOfMemory from None
            raise
        self._check(told, len(images))
        scores = np.nan_to_num(told[1].astype(np.float64), nan=0.0, posinf=0.0) if self.has_scores else None
        return Answer(told[0], scores)

    def _check(self, told: list[Any], count: int) -> None:
        wanted = {"probs": (count, len(self.classes)), "score": (count,)}
        for (name, shape), values in zip(wanted.items(), told, strict=False):
            if values.dtype != np.float32 or values.shape != shape:
                raise ValueError(f"its '{name}' is {values.dtype} {values.shape}, not float32 {shape}")


def load_onnx(path: Path | str, device: str = "auto", threads: int | None = None) -> OnnxClassifier:
    """A file of `ssdg export`, checked before use. It is data: no code in it is run, no other file is read."""
    path = Path(path)
    try:
        import onnxruntime as ort
    except ImportError:
        raise UserError(f"'{path}' needs onnxruntime, which is not installed; run pip install 'ssdg[onnx]'") from None
    content = read_alone(path)
    providers = find_providers(device, ort.get_available_providers())
    options = ort.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is told in our own sentence
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
    except Exception as error:  # onnxruntime raises many kinds
        raise refused(path, " ".join(str(error).split())[:300]) from None
    return classifier


def refused(path: Path, reason: str) -> UserError:
    """The error for a file that is no exported model."""
    return UserError(f"'{path}' cannot be used as an exported model ({reason}); make it anew with ssdg export")


def read_alone(path: Path) -> bytes:
    """The content of the file; one that points at other files is refused before onnxruntime sees it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"'{path}' does not exist; give the folder of a run or a model, or an .onnx file") from None
    try:
        is_alone = not has_external_data(memoryview(content))
    except DamagedError as error:
        raise refused(path, str(error)) from None
    if not content or not is_alone:
        raise refused(path, "its weights lie in another file, which is not read" if content else "it is empty")
    return content


def find_providers(device: str, available: list[str]) -> list[str]:
    """What computes: CUDA where it is there and not unwanted, else the CPU."""
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if device == "cuda" and CUDA not in available:
        raise UserError(
            "no CUDA device is found by onnxruntime; give --device cpu, or pip install onnxruntime-gpu in its place"
        )
    return [*([CUDA] if device != "cpu" and CUDA in available else []), "CPUExecutionProvider"]


def read_card(properties: dict[str, str]) -> OnnxCard:
    """What the file says of itself, every field checked."""
    if "ssdg" not in properties:
        raise ValueError("it has no property 'ssdg'")
    try:
        return OnnxCard.model_validate(json.loads(properties["ssdg"]))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def check_graph(classifier: OnnxClassifier) -> None:
    """Inputs and outputs must be what the file says of itself; names of dimensions stand for any number."""
    card, session = classifier.card, classifier.session
    inputs, outputs = (
        {value.name: value for value in found} for found in (session.get_inputs(), session.get_outputs())
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
    told = tuple(value.shape)
    fits = len(told) == 1 + len(shape) and all(
        not isinstance(a, int) or a == b for a, b in zip(told[1:], shape, strict=True)
    )
    if value.type != kind or not fits:
        raise ValueError(f"its '{value.name}' is {value.type} {list(told)}, not {kind} {['images', *shape]}")
    if isinstance(told[0], int):
        raise ValueError(f"it takes {told[0]} images at a time, not any number")
