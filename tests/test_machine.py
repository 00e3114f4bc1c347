"""Device and precision."""

from __future__ import annotations

import copy
import resource
from pathlib import Path

import pytest
import torch

from ssdg.data.sets import Batch, LabeledBatch
from ssdg.machine import keep_freed_memory, return_freed_memory, start_machine
from ssdg.methods.api import Progress, Settings, Sizes
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


def test_no_gradient_outlives_the_step_that_used_it() -> None:
    learner, x = prepared("fp32"), torch.rand(4, 3, 32, 32)
    labels = LabeledBatch(x, torch.tensor([0, 1, 2, 0]), torch.zeros(4).long(), torch.ones(4).bool())
    before = [p.detach().clone() for p in learner.nets.parameters()]
    learner.step(Batch(labels), Progress(1, 0, 1, 0, 1))
    assert all(not torch.equal(old, p) for old, p in zip(before, learner.nets.parameters(), strict=True))
    assert all(p.grad is None for p in learner.nets.parameters())


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells here what is resident")
def test_freed_memory_goes_back_to_the_system() -> None:
    keep_freed_memory()
    block, small = torch.ones(2**24), torch.ones(2**12)  # 64 MB below what stays
    held = resident()
    del block
    return_freed_memory()
    assert resident() < held - 2**25
    assert small.sum() == 2**12


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()
