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


@contextmanager
def quietly() -> Iterator[None]:
    """Without what torch and onnxruntime tell their developers; errors are raised as ever."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


FORMAT = 1
UINT8, FLOAT32 = "uint8-nhwc", "float32-nchw"
INPUT, PROBS, SCORE = "images", "probs", "score"
MEAN = "mean"


@dataclass(frozen=True)
class Form:
    """What the graph takes and gives."""

    network: str = MEAN  # or 1, 2, ...
    inside: bool = True  # whether bytes become numbers in the graph
    reject: bool = False  # whether it tells the score that thresholds are for

    @property
    def outputs(self) -> tuple[str, ...]:
        """Their names, in order."""
        return (PROBS, SCORE) if self.reject else (PROBS,)

    @property
    def row(self) -> int | None:
        """The network that is asked alone, from 0."""
        return None if self.network == MEAN else int(self.network) - 1


def describe(card: ModelCard, form: Form) -> str:
    """The JSON text that goes with the file, under the name `ssdg`."""
    told = {
        "format": FORMAT,
        "classes": list(card.classes),
        "size": card.size,
        "input": UINT8 if form.inside else FLOAT32,
        "network": form.network,
        "temperature": card.temperature,
        "reject": card.reject.model_dump(mode="json") if card.reject and form.reject else None,
        "learner": card.learner,
        "backbone": card.backbone,
    }
    return json.dumps(told, ensure_ascii=False, allow_nan=False)


class Graph(nn.Module):
    """`Model.probs` and `known_scores` as one pass in float32."""

    def __init__(self, learner: Learner, form: Form, temperature: float | None) -> None:
        super().__init__()
        self.nets, self._learner = learner.nets, learner
        self.form, self.temperature = form, temperature or 1.0

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """`probs` (n, K), and with `reject` the `score` (n,)."""
        x = images.permute(0, 3, 1, 2).float() / 255 if self.form.inside else images
        logits = self._learner.logits(x)
        if self.form.row is not None:
            logits = logits.select(0, self.form.row).unsqueeze(0)
        log_probs = logits.float().log_softmax(-1)
        mean = log_probs.logsumexp(0) - math.log(len(log_probs))
        probs = (mean / self.temperature).softmax(-1)
        if not self.form.reject:
            return (probs,)
        score = -log_probs.mean((0, 2)) - math.log(log_probs.shape[-1])
        return probs, torch.where(score.isfinite(), score, torch.zeros_like(score))


def example(model: Model, form: Form, count: int = 3) -> Tensor:
    """Images as the graph takes them, all black."""
    if form.inside:
        return torch.zeros(count, model.size, model.size, 3, dtype=torch.uint8)
    return torch.zeros(count, 3, model.size, model.size)


def trace(model: Model, form: Form) -> ExportedProgram:
    """The graph of a model, with a free number of images and no trace of this machine's files."""
    model.learner.nets.eval()
    images = (example(model, form),)
    graph: nn.Module = Graph(model.learner, form, model.temperature).eval()
    try:
        program = export(graph, images)
        if form.row is not None:
            program = export(one_network(program), images)
    except Exception as error:  # torch.export raises nearly anything for code that it cannot follow
        if isinstance(error, UserError):
            raise
        raise UserError(
            "torch.export cannot follow the method's logits for any number of images "
            f"({str(error).splitlines()[0] if str(error) else type(error).__name__}); in a method of your own write "
            "x.shape[0] and -1 in view instead of len(x), and no if on values of tensors"
        ) from error
    return program


def export(graph: nn.Module, images: tuple[Tensor, ...]) -> ExportedProgram:
    """`torch.export` with a free number of images."""
    with torch.no_grad(), quietly():
        program = torch.export.export(graph, images, dynamic_shapes=({0: Dim("batch", min=1)},), strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names files of this machine
    return program


def one_network(program: ExportedProgram) -> nn.Module:
    """The graph without networks whose output is thrown away: `select(stack([a, b]), 0, 1)` is b."""
    with quietly():
        module: Any = program.run_decompositions({}).module()  # without steps in place, which count as used
    for node in list(module.graph.nodes):
        if node.target != torch.ops.aten.select.int or node.args[0].target != torch.ops.aten.stack.default:
            continue
        stack, dim, row = node.args
        if dim == 0 and (len(stack.args) < 2 or stack.args[1] == 0):
            node.replace_all_uses_with(stack.args[0][row])
    module.graph.eliminate_dead_code()
    kept = {node.target for node in module.graph.nodes if node.op == "get_attr"}
    for name, _ in [*module.named_parameters(), *module.named_buffers()]:
        if name not in kept:
            owner, _, leaf = name.rpartition(".")
            delattr(module.get_submodule(owner), leaf)
    module.recompile()
    return module  # type: ignore[no-any-return]
