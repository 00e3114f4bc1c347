"""Trained networks as one graph: images in, calibrated probabilities out, any batch size."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from ..artifact.card import ModelCard
from ..artifact.load import Model
from ..errors import UserError
from ..methods.api import Learner

FORMAT = 1
UINT8, FLOAT32 = "uint8-nhwc", "float32-nchw"
INPUT, PROBS, SCORE = "images", "probs", "score"
MEAN = "mean"


@dataclass(frozen=True)
class GraphOptions:
    """Input and outputs of the graph."""

    network: str = MEAN  # or 1, 2, ...
    has_preprocessing: bool = True  # True: the input is uint8 NHWC; False: float32 NCHW in [0, 1]
    has_score: bool = False  # whether the graph outputs the score of the rejection thresholds

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return (PROBS, SCORE) if self.has_score else (PROBS,)

    @property
    def network_index(self) -> int | None:
        """Index of the single network, from 0; None for the mean."""
        return None if self.network == MEAN else int(self.network) - 1


def describe(card: ModelCard, options: GraphOptions) -> str:
    """Return the JSON metadata that the file stores under the name `ssdg`."""
    metadata = {
        "format": FORMAT,
        "classes": list(card.classes),
        "size": card.size,
        "resize": card.resize,
        "input": UINT8 if options.has_preprocessing else FLOAT32,
        "network": options.network,
        "temperature": card.temperature,
        "reject": card.reject.model_dump(mode="json") if card.reject and options.has_score else None,
        "learner": card.learner,
        "backbone": card.backbone,
    }
    return json.dumps(metadata, ensure_ascii=False, allow_nan=False)


class Graph(nn.Module):
    """`Model.probs` and `known_scores` as one forward pass in float32."""

    def __init__(self, learner: Learner, options: GraphOptions, temperature: float | None) -> None:
        super().__init__()
        self.nets, self._learner = learner.nets, learner
        self.options, self.temperature = options, temperature or 1.0

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return `probs` (n, K) and, with `has_score`, `score` (n,)."""
        x = images.permute(0, 3, 1, 2).float() / 255 if self.options.has_preprocessing else images
        logits = self._learner.logits(x)
        if self.options.network_index is not None:
            logits = logits.select(0, self.options.network_index).unsqueeze(0)
        log_probs = logits.float().log_softmax(-1)
        mean = log_probs.logsumexp(0) - math.log(len(log_probs))
        probs = (mean / self.temperature).softmax(-1)
        if not self.options.has_score:
            return (probs,)
        score = -log_probs.mean((0, 2)) - math.log(log_probs.shape[-1])
        return probs, torch.where(score.isfinite(), score, torch.zeros_like(score))


def example_images(model: Model, options: GraphOptions, count: int = 3) -> Tensor:
    """Return black images in the format of the graph's input."""
    if options.has_preprocessing:
        return torch.zeros(count, model.size, model.size, 3, dtype=torch.uint8)
    return torch.zeros(count, 3, model.size, model.size)


def trace(model: Model, options: GraphOptions) -> ExportedProgram:
    """Trace a model with a dynamic batch size, without paths of this machine."""
    model.learner.nets.eval()
    images = (example_images(model, options),)
    graph: nn.Module = Graph(model.learner, options, model.temperature).eval()
    try:
        program = export_program(graph, images)
        if options.network_index is not None:
            program = export_program(prune_networks(program), images)
    except Exception as error:  # torch.export raises exceptions of many types for code that it cannot trace
        if isinstance(error, UserError):
            raise
        raise UserError(
            "torch.export cannot trace the method's logits with a dynamic batch size "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__}); in a custom method, write "
            "x.shape[0] and -1 in view instead of len(x), and no if on values of tensors"
        ) from error
    return program


def export_program(graph: nn.Module, images: tuple[Tensor, ...]) -> ExportedProgram:
    """Call `torch.export` with a dynamic batch size."""
    with torch.no_grad(), silenced():
        program = torch.export.export(graph, images, dynamic_shapes=({0: Dim("batch", min=1)},), strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names files of this machine
    return program


def prune_networks(program: ExportedProgram) -> nn.Module:
    """Remove networks whose output is discarded: `select(stack([a, b]), 0, 1)` is b."""
    with silenced():
        module: Any = program.run_decompositions({}).module()  # without in-place operations, which count as used
    for node in list(module.graph.nodes):
        if node.target != torch.ops.aten.select.int or node.args[0].target != torch.ops.aten.stack.default:
            continue
        stack, dim, index = node.args
        if dim == 0 and (len(stack.args) < 2 or stack.args[1] == 0):
            node.replace_all_uses_with(stack.args[0][index])
    module.graph.eliminate_dead_code()
    used = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for name, _ in [*module.named_parameters(), *module.named_buffers()]:
        if name not in used:
            owner, _, leaf = name.rpartition(".")
            delattr(module.get_submodule(owner), leaf)
    module.recompile()
    return module  # type: ignore[no-any-return]


@contextmanager
def silenced() -> Iterator[None]:
    """Suppress warnings and log messages that torch and onnxruntime address to developers; errors are raised."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
