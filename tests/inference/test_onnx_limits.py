"""Hostile graphs: a loop that never ends and tensors that do not fit into memory are refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from exported import card, color_graph, model_of
from ssdg.errors import UserError
from ssdg.inference import onnx_model
from ssdg.inference.onnx_model import load_onnx


def save(graph: onnx.GraphProto, path: Path) -> Path:
    path.write_bytes(model_of(graph, card()).SerializeToString())
    return path


def endless_graph() -> onnx.GraphProto:
    """The color graph, with a `Loop` of 2^62 rounds that adds 0 to the logits."""
    graph = color_graph()
    condition = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in ("before", "after")]
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["before", "zero"], ["after"]),
        ],
        "body",
        [helper.make_tensor_value_info("round", TensorProto.INT64, []), condition, rows[0]],
        [helper.make_tensor_value_info("go_on", TensorProto.BOOL, []), rows[1]],
    )
    loop = helper.make_node("Loop", ["rounds", "start", "z0"], ["z"], body=body)
    (multiply,) = [node for node in graph.node if node.op_type == "Mul"]
    multiply.output[0] = "z0"
    nodes = list(graph.node)
    nodes.insert(nodes.index(multiply) + 1, loop)
    constants = {"rounds": np.array(2**62), "start": np.array(True), "zero": np.zeros(1, np.float32)}
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    del graph.node[:]
    graph.node.extend(nodes)
    return graph


def giant_graph() -> onnx.GraphProto:
    """The color graph, with the first number of a tensor of 2^46 bytes added to the logits."""
    graph = color_graph()
    (multiply,) = [node for node in graph.node if node.op_type == "Mul"]
    multiply.output[0] = "z0"
    sides = helper.make_node("Mul", ["sides_half", "two"], ["sides"])  # not a constant that loading folds
    count = helper.make_node("Shape", ["images"], ["two"], start=0, end=1)
    giant = helper.make_node("ConstantOfShape", ["sides"], ["giant"])
    least = helper.make_node("ReduceMin", ["giant"], ["least"], keepdims=0)
    add = helper.make_node("Add", ["z0", "least"], ["z"])
    nodes = list(graph.node)
    position = nodes.index(multiply) + 1
    nodes[position:position] = [count, sides, giant, least, add]
    graph.initializer.append(numpy_helper.from_array(np.array([2**43]), "sides_half"))
    del graph.node[:]
    graph.node.extend(nodes)
    return graph


def test_a_loop_that_never_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(onnx_model, "BASE_SECONDS", 0.5)
    monkeypatch.setattr(onnx_model, "IMAGE_SECONDS", 0.0)
    start = monotonic()
    with pytest.raises(UserError, match="did not classify 2 images in"):
        load_onnx(save(endless_graph(), tmp_path / "x.onnx"), "cpu")
    assert monotonic() - start < 30


def test_tensors_that_do_not_fit_into_memory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="more memory than is free"):
        load_onnx(save(giant_graph(), tmp_path / "x.onnx"), "cpu")
