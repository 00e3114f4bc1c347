"""Device and precision."""

from __future__ import annotations

import copy

import pytest
import torch

from ssdg.engine.machine import start_machine
from ssdg.methods.api import Settings, Sizes
from ssdg.methods.source_only import SourceOnly
from ssdg.models.backbones import build_backbone


def prepared(precision: str) -> SourceOnly:
    torch.manual_seed(0)
    learner = SourceOnly(lambda: build_backbone("digits-cnn"), Sizes(3), Settings())
    start_machine("cpu", precision).prepare(learner)
    return learner


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_deep_copy_computes_with_weights_of_its_own(precision: str) -> None:
    learner, x = prepared(precision), torch.rand(2, 3, 32, 32)
    twin = copy.deepcopy(learner.network)
    before = twin(x)
    torch.nn.init.zeros_(learner.network[1].weight)
    torch.nn.init.zeros_(learner.network[0].stage1[0].weight)
    assert torch.equal(twin(x), before)
    assert not torch.equal(learner.network(x), before)


def test_bf16_rounds_the_passes_and_keeps_weights_and_logits_in_float32() -> None:
    x = torch.rand(4, 3, 32, 32)
    full, half = prepared("fp32").logits(x), prepared("bf16").logits(x)
    assert half.dtype == torch.float32
    assert not torch.equal(full, half)
    torch.testing.assert_close(half, full, rtol=0.05, atol=0.05)
    assert {p.dtype for p in prepared("bf16").nets.parameters()} == {torch.float32}
