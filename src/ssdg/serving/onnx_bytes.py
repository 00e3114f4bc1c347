"""Looks into an .onnx file before anything else reads it: is it whole, and does it keep to itself?

Only the wire format of protocol buffers is read, and of the messages of ONNX the numbers of those fields that hold
tensors: https://onnx.ai/onnx/api/classes.html and https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator

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
