"""Quantize an ONNX file to int8: ranges from real images, the first and last layers in float32."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..files import scratch_folder
from .graph import INPUT, GraphOptions, silenced
from .onnx_files import onnx_session, serialize_onnx
from .parity import CheckImages, Pixels, spread_evenly, to_graph_input

MAX_CALIBRATION = 128  # images; more hardly change the ranges
MIN_TO_SPLIT = 64  # images; with fewer, ranges and metrics come from the same images
OPERATORS = ("Conv", "Gemm", "MatMul", "Add", "Relu", "Clip", "MaxPool")  # keep 8 bits between convolutions
HEAVY = {"Conv", "Gemm", "MatMul"}
BATCH, NUM_ROUNDS = 32, 9


def split_images(images: CheckImages) -> tuple[Pixels, CheckImages]:
    """Return images for the ranges and images for the metrics; they are disjoint if there are enough."""
    if len(images.pixels) < MIN_TO_SPLIT:
        return images.pixels, images
    rows = np.arange(0, len(images.pixels), 2)
    chosen = rows[spread_evenly(len(rows), MAX_CALIBRATION)]
    truth = None if images.truth is None else images.truth[1::2]
    return images.pixels[chosen], CheckImages(images.pixels[1::2], images.description, truth)


def int8_bytes(content: bytes, pixels: Pixels, options: GraphOptions, metadata: str) -> bytes:
    """Return a quantized copy of an ONNX file: static, QDQ, per channel, unsigned activations and signed weights.

    The first convolution and the last layer stay in float32: they are a small part of the computation, and no other
    layer averages out their errors.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with scratch_folder() as folder, silenced():
        plain, prepared, quantized = (folder / file for file in ("plain.onnx", "prepared.onnx", "quantized.onnx"))
        plain.write_bytes(content)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        quantize_static(
            prepared,
            quantized,
            calibration_reader(pixels, options),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            op_types_to_quantize=list(OPERATORS),
            nodes_to_exclude=find_end_nodes(onnx.load(prepared).graph),
        )
        return serialize_onnx(onnx.load(quantized), metadata)


def calibration_reader(pixels: Pixels, options: GraphOptions) -> Any:
    """Return a reader of batches for the calibration of onnxruntime."""
    from onnxruntime.quantization import CalibrationDataReader

    class BatchReader(CalibrationDataReader):  # type: ignore[misc]
        """One pass over the batches."""

        def __init__(self) -> None:
            self.parts: Iterator[Pixels] = iter(np.array_split(pixels, -(-len(pixels) // BATCH)))

        def get_next(self) -> dict[str, Any] | None:
            """Return the next batch, or None after the last."""
            part = next(self.parts, None)
            return None if part is None else {INPUT: to_graph_input(part, options)}

    return BatchReader()


def find_end_nodes(graph: Any) -> list[str]:
    """Return the names of heavy operators with no heavy operator before them, or none after them."""
    nodes = list(graph.node)
    producers = {output: node for node in nodes for output in node.output}
    after_heavy: dict[str, bool] = {}
    before_heavy: set[str] = set()
    for node in nodes:  # a graph lists its nodes in topological order
        sources = [producers[name] for name in node.input if name in producers]
        after_heavy[node.name] = any(s.op_type in HEAVY or after_heavy[s.name] for s in sources)
    for node in reversed(nodes):
        if node.op_type in HEAVY or node.name in before_heavy:
            before_heavy |= {producers[name].name for name in node.input if name in producers}
    heavy = [node.name for node in nodes if node.op_type in HEAVY]
    return [name for name in heavy if not after_heavy[name] or name not in before_heavy]


def speed_ratio(
    first: bytes, second: bytes, pixels: Pixels, options: GraphOptions, threads: int
) -> tuple[float, int]:
    """Return how many times as fast the second file is, and the batch size: medians of alternating forward passes."""
    images = to_graph_input(pixels[:BATCH], options)
    sessions = [onnx_session(content, threads) for content in (first, second)]
    seconds: list[list[float]] = [[], []]
    for turn in range(NUM_ROUNDS + 1):
        for session, durations in zip(sessions, seconds, strict=True):
            start = time.perf_counter()
            session.run(None, {INPUT: images})
            if turn:  # the first forward pass warms up
                durations.append(time.perf_counter() - start)
    return float(np.median(seconds[0]) / np.median(seconds[1])), len(images)
