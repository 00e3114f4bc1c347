"""An ONNX file with weights and activations of 8 bits: ranges by real images, the two ends in float32."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from .graph import INPUT, Form, quietly
from .onnx_files import onnx_session, with_about
from .parity import Pictures, Pixels, as_taken, spread

MOST_CALIBRATION = 128  # images; more hardly move the ranges
ENOUGH = 64  # images; from here on ranges and figures are of different ones
OPERATORS = ("Conv", "Gemm", "MatMul", "Add", "Relu", "Clip", "MaxPool")  # what stays in 8 bits between convolutions
HEAVY = {"Conv", "Gemm", "MatMul"}
BATCH, ROUNDS = 32, 9


def halves(pictures: Pictures) -> tuple[Pixels, Pictures]:
    """Images for the ranges and images for the figures: different ones where there are enough."""
    if len(pictures.pixels) < ENOUGH:
        return pictures.pixels, pictures
    rows = np.arange(0, len(pictures.pixels), 2)
    chosen = rows[spread(len(rows), MOST_CALIBRATION)]
    truth = None if pictures.truth is None else pictures.truth[1::2]
    return pictures.pixels[chosen], Pictures(pictures.pixels[1::2], pictures.told, truth)


def int8_bytes(content: bytes, pixels: Pixels, form: Form, about: str) -> bytes:
    """A quantized copy of an ONNX file: static, QDQ, per channel, unsigned activations and signed weights.

    The first convolution and the last layer stay in float32: they are a small part of the work, and errors there
    are not averaged out by what follows or came before.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with TemporaryDirectory(prefix="ssdg-") as name, quietly():
        plain, ready, made = (Path(name) / file for file in ("plain.onnx", "ready.onnx", "made.onnx"))
        plain.write_bytes(content)
        quant_pre_process(plain, ready, skip_symbolic_shape=True)
        quantize_static(
            ready,
            made,
            reader(pixels, form),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=list(OPERATORS),
            nodes_to_exclude=ends(onnx.load(ready).graph),
        )
        return with_about(onnx.load(made), about)


def reader(pixels: Pixels, form: Form) -> Any:
    """Batches as onnxruntime asks for them."""
    from onnxruntime.quantization import CalibrationDataReader

    class Batches(CalibrationDataReader):  # type: ignore[misc]
        """Each once."""

        def __init__(self) -> None:
            self.parts: Iterator[Pixels] = iter(np.array_split(pixels, -(-len(pixels) // BATCH)))

        def get_next(self) -> dict[str, Any] | None:
            """The next batch, or None after the last."""
            part = next(self.parts, None)
            return None if part is None else {INPUT: as_taken(part, form)}

    return Batches()


def ends(graph: Any) -> list[str]:
    """Names of the heavy operators with no heavy one before them, or none after."""
    nodes = list(graph.node)
    made_by = {output: node for node in nodes for output in node.output}
    after_heavy: dict[str, bool] = {}
    before_heavy: set[str] = set()
    for node in nodes:  # a graph lists its nodes in the order in which they can be computed
        sources = [made_by[name] for name in node.input if name in made_by]
        after_heavy[node.name] = any(s.op_type in HEAVY or after_heavy[s.name] for s in sources)
    for node in reversed(nodes):
        if node.op_type in HEAVY or node.name in before_heavy:
            before_heavy |= {made_by[name].name for name in node.input if name in made_by}
    heavy = [node.name for node in nodes if node.op_type in HEAVY]
    return [name for name in heavy if not after_heavy[name] or name not in before_heavy]


def speed_ratio(first: bytes, second: bytes, pixels: Pixels, form: Form, threads: int) -> tuple[float, int]:
    """How many times as fast the second file is, and on how many images at once: medians of alternating passes."""
    images = as_taken(pixels[:BATCH], form)
    sessions = [onnx_session(content, threads) for content in (first, second)]
    seconds: list[list[float]] = [[], []]
    for turn in range(ROUNDS + 1):
        for session, taken in zip(sessions, seconds, strict=True):
            start = time.perf_counter()
            session.run(None, {INPUT: images})
            if turn:  # the first pass warms up
                taken.append(time.perf_counter() - start)
    return float(np.median(seconds[0]) / np.median(seconds[1])), len(images)
