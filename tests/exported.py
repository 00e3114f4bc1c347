"""Small files in the format of `ssdg export`, whose outputs can be computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

CLASSES = ["red", "green", "blue"]
SIZE = 8
THRESHOLDS = [round(0.001 * n, 5) for n in range(100)]
REJECT = {"score": "kl-from-uniform", "images": 50, "thresholds": THRESHOLDS}


def card(**more: Any) -> dict[str, Any]:
    """The property `ssdg`."""
    fields = {"format": 1, "classes": CLASSES, "size": SIZE, "input": "uint8-nhwc", "network": "mean"}
    return {**fields, "temperature": None, "reject": REJECT, "learner": "eid", "backbone": "digits-cnn", **more}


def color_graph(*, kind: str = "uint8-nhwc", with_score: bool = True, classes: int = 3) -> onnx.GraphProto:
    """probs = softmax(mean color in [0, 1] · 4); score = log Σ exp z − mean z − log 3, z the logits."""
    is_bytes = kind == "uint8-nhwc"
    shape = ["N", SIZE, SIZE, 3] if is_bytes else ["N", 3, SIZE, SIZE]
    images = helper.make_tensor_value_info("images", TensorProto.UINT8 if is_bytes else TensorProto.FLOAT, shape)
    numbers = {
        "scale": np.float32(4 / 255 if is_bytes else 4),
        "axes": np.array([1, 2] if is_bytes else [2, 3]),
        "last": np.array([1]),
        "log_k": np.float32(np.log(3)),
    }
    nodes = [
        helper.make_node("Cast", ["images"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["x", "axes"], ["color"], keepdims=0),
        helper.make_node("Mul", ["color", "scale"], ["z"]),
        helper.make_node("Softmax", ["z"], ["probs"], axis=1),
        helper.make_node("ReduceLogSumExp", ["z", "last"], ["energy"], keepdims=0),
        helper.make_node("ReduceMean", ["z", "last"], ["centre"], keepdims=0),
        helper.make_node("Sub", ["energy", "centre"], ["free"]),
        helper.make_node("Sub", ["free", "log_k"], ["score"]),
    ]
    outputs = [helper.make_tensor_value_info("probs", TensorProto.FLOAT, ["N", classes])]
    if with_score:
        outputs.append(helper.make_tensor_value_info("score", TensorProto.FLOAT, ["N"]))
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()]
    return helper.make_graph(nodes, "colors", [images], outputs, constants)


def model_of(graph: onnx.GraphProto, metadata: dict[str, Any] | str | None) -> onnx.ModelProto:
    """Return the graph as a model, with the metadata unless it is None."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    if metadata is not None:
        helper.set_model_props(model, {"ssdg": metadata if isinstance(metadata, str) else json.dumps(metadata)})
    return model


def write_colors(path: Path, *, kind: str = "uint8-nhwc", with_score: bool = True, **more: Any) -> Path:
    """Write a file that classifies red, green and blue images."""
    graph = color_graph(kind=kind, with_score=with_score)
    onnx.save(model_of(graph, card(input=kind, **more)), path)
    return path


def write_photos(folder: Path) -> Path:
    """Write a red, a green, a blue and a gray image, larger than the network's input."""
    folder.mkdir()
    colors = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "grey": (120, 120, 120)}
    for name, color in colors.items():
        Image.new("RGB", (20, 16), color).save(folder / f"{name}.png")
    return folder
