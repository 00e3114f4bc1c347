"""The product of every method as an ONNX file: the same probabilities and scores, for any number of images."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from ssdg.artifact.load import Model
from ssdg.export.graph import GraphOptions, trace
from ssdg.export.onnx_files import METADATA_KEY, onnx_bytes, onnx_runner, onnx_session
from ssdg.export.parity import compare, file_outputs, torch_outputs
from ssdg.inference.rejection import choose_thresholds
from ssdg.methods import METHODS, find_method
from ssdg.methods.api import Sizes
from ssdg.models.backbones import build_backbone

# One method for each class of learner: others ship the same networks. MixStyle and EID have layers that must be off.
LEARNERS = {method.learner: name for name, method in METHODS.items()}


def built(method: str, backbone: str = "digits-cnn", temperature: float | None = 1.7) -> Model:
    torch.manual_seed(0)
    registered = find_method(method)
    learner = registered.learner(lambda: build_backbone(backbone), Sizes(3, 2), registered.settings())
    for name, buffer in learner.nets.named_buffers():  # as after training: different statistics
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    rejection = choose_thresholds(np.linspace(0, 1, 50))
    return Model(("a", "b", "c"), 32, learner, torch.device("cpu"), rejection, temperature)


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (count, 32, 32, 3), np.uint8)


@pytest.mark.parametrize("method", sorted(LEARNERS.values()))
def test_the_product_of_a_method(method: str) -> None:
    model, options = built(method), GraphOptions(has_score=True)
    model.learner.nets.train()  # as training leaves it; the graph is that of evaluation
    content = onnx_bytes(trace(model, options), options, "{}")
    parity = compare(
        torch_outputs(model, pixels(13), options), file_outputs(onnx_runner(content), pixels(13), options)
    )
    assert parity.probs < 1e-5
    assert parity.score is not None
    assert parity.score < 1e-4
    assert parity.same == parity.images == 13


def test_a_backbone_with_batch_norm() -> None:
    model, options = built("source-only", "resnet18"), GraphOptions(has_preprocessing=False)
    content = onnx_bytes(trace(model, options), options, json.dumps({"a": 1}))
    parity = compare(torch_outputs(model, pixels(9), options), file_outputs(onnx_runner(content), pixels(9), options))
    assert parity.probs < 1e-5
    assert onnx_session(content, 1).get_modelmeta().custom_metadata_map == {METADATA_KEY: '{"a": 1}'}
