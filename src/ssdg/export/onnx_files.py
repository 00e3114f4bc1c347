"""A graph as the bytes of a file, and such bytes as a function of images."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from ..errors import UserError
from .graph import INPUT, PROBS, SCORE, Form, quietly

KEY = "ssdg"  # of the JSON text in an ONNX file
EXTRA = "ssdg.json"  # of the JSON text in a .pt2 file
MOST_BYTES = 1_900_000_000  # of weights: protobuf ends at 2 GiB
Outputs = dict[str, NDArray[np.float32]]
Run = Callable[[NDArray[Any]], Outputs]


def require_onnx() -> None:
    """Refuse where the extra is missing."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise UserError("the packages for export are not installed; run pip install 'ssdg[export]'") from None
    assert onnx
    assert onnxruntime


def onnx_bytes(program: ExportedProgram, form: Form, about: str) -> bytes:
    """An ONNX file with the JSON text `about` among its properties."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in program.state_dict.values())
    if size > MOST_BYTES:
        raise UserError(f"the networks take {size:,} bytes, too many for one ONNX file; give --format torch-export")
    with quietly():
        made = torch.onnx.export(
            program,
            dynamo=True,
            input_names=[INPUT],
            output_names=list(form.outputs),
            dynamic_shapes={INPUT: {0: "batch"}},
            verbose=False,
        )
    if made is None:
        raise UserError("torch.onnx made no graph of this model; give --format torch-export")
    return with_about(made.model_proto, about)


def with_about(proto: Any, about: str) -> bytes:
    """The bytes of an ONNX model with its JSON text, without names of this machine's files."""
    import onnx

    for node in [*proto.graph.node, *(node for function in proto.functions for node in function.node)]:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*proto.graph.value_info, *proto.graph.input, *proto.graph.output, *proto.graph.initializer]:
        del value.metadata_props[:]
    del proto.graph.metadata_props[:]
    onnx.helper.set_model_props(proto, {KEY: about})
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString())


def onnx_session(content: bytes, threads: int) -> Any:
    """onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def onnx_run(content: bytes, threads: int | None = None) -> Run:
    """What onnxruntime makes of the file."""
    session = onnx_session(content, threads or torch.get_num_threads())
    names = [output.name for output in session.get_outputs()]
    return lambda images: dict(zip(names, session.run(None, {INPUT: images}), strict=True))


def torch_bytes(program: ExportedProgram, about: str) -> bytes:
    """A .pt2 file with the JSON text `about` as an extra file."""
    out = BytesIO()
    with quietly():
        torch.export.save(program, out, extra_files={EXTRA: about})
    return out.getvalue()


def torch_run(content: bytes) -> Run:
    """What torch makes of the .pt2 file when it is read again."""
    with quietly():
        module = torch.export.load(BytesIO(content)).module()

    def run(images: NDArray[Any]) -> Outputs:
        with torch.inference_mode():
            outputs = module(torch.from_numpy(images))
        return {name: value.numpy() for name, value in zip((PROBS, SCORE), outputs, strict=False)}

    return run
