"""Serialize a graph to the bytes of an ONNX or .pt2 file, and run such bytes on images."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram

from ..errors import UserError
from .graph import INPUT, PROBS, SCORE, GraphOptions, silenced

METADATA_KEY = "ssdg"  # of the JSON metadata in an ONNX file
METADATA_FILE = "ssdg.json"  # of the JSON metadata in a .pt2 file
MAX_BYTES = 1_900_000_000  # of weights: protobuf is limited to 2 GiB
Outputs = dict[str, NDArray[np.float32]]
Runner = Callable[[NDArray[Any]], Outputs]


def require_onnx() -> None:
    """Raise `UserError` if the packages of the extra `export` are missing."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError:
        raise UserError("the packages for export are not installed; run pip install 'ssdg[export]'") from None
    assert onnx
    assert onnxruntime


def onnx_bytes(program: ExportedProgram, options: GraphOptions, metadata: str) -> bytes:
    """Return an ONNX file with the JSON metadata as a property."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in program.state_dict.values())
    if size > MAX_BYTES:
        raise UserError(f"the networks take {size:,} bytes, too many for one ONNX file; use --format torch-export")
    with silenced():
        onnx_program = torch.onnx.export(
            program,
            dynamo=True,
            input_names=[INPUT],
            output_names=list(options.outputs),
            dynamic_shapes={INPUT: {0: "batch"}},
            verbose=False,
        )
    if onnx_program is None:
        raise UserError("torch.onnx returned no graph for this model; use --format torch-export")
    return serialize_onnx(onnx_program.model_proto, metadata)


def serialize_onnx(proto: Any, metadata: str) -> bytes:
    """Return the bytes of an ONNX model with its JSON metadata, without paths of this machine."""
    import onnx

    for node in [*proto.graph.node, *(node for function in proto.functions for node in function.node)]:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*proto.graph.value_info, *proto.graph.input, *proto.graph.output, *proto.graph.initializer]:
        del value.metadata_props[:]
    del proto.graph.metadata_props[:]
    onnx.helper.set_model_props(proto, {METADATA_KEY: metadata})
    onnx.checker.check_model(proto)
    return bytes(proto.SerializeToString())


def onnx_session(content: bytes, threads: int) -> Any:
    """Return a session of onnxruntime on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def onnx_runner(content: bytes, threads: int | None = None) -> Runner:
    """Return a function that runs an ONNX file in onnxruntime."""
    session = onnx_session(content, threads or torch.get_num_threads())
    names = [output.name for output in session.get_outputs()]
    return lambda images: dict(zip(names, session.run(None, {INPUT: images}), strict=True))


def torch_bytes(program: ExportedProgram, metadata: str) -> bytes:
    """Return a .pt2 file with the JSON metadata as an extra file."""
    out = BytesIO()
    with silenced():
        torch.export.save(program, out, extra_files={METADATA_FILE: metadata})
    return out.getvalue()


def torch_runner(content: bytes) -> Runner:
    """Return a function that runs a .pt2 file in torch."""
    with silenced():
        module = torch.export.load(BytesIO(content)).module()

    def run(images: NDArray[Any]) -> Outputs:
        with torch.inference_mode():
            outputs = module(torch.from_numpy(images))
        return {name: value.numpy() for name, value in zip((PROBS, SCORE), outputs, strict=False)}

    return run
