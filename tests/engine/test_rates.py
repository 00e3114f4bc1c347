"""The learning rate of every step."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ssdg.engine.loop import LearningRate, hump
from ssdg.methods.api import Settings, sgd, with_head
from ssdg.models.backbones import build_backbone


def test_a_hump_rises_over_a_tenth_and_falls_by_a_cosine() -> None:
    shares = [hump(step, 100) for step in range(100)]
    assert shares[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert shares[10:] == pytest.approx([0.5 * (1 + math.cos(math.pi * step / 90)) for step in range(90)])
    assert shares[9] == shares[10] == 1
    assert 0 < shares[-1] < 0.001


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_a_short_hump_has_its_top_and_no_step_without_a_rate(steps: int) -> None:
    shares = [hump(step, steps) for step in range(steps)]
    assert max(shares) == 1
    assert min(shares) > 0


def rates(rate: LearningRate, steps: int) -> list[list[float]]:
    """Of two optimizers, one of them with two groups, at every step."""
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(3)]
    slow = torch.optim.SGD([{"params": weights[:1], "lr": 0.1}, {"params": weights[1:2], "lr": 0.02}])
    learner: Any = SimpleNamespace(opts={"slow": slow, "fast": torch.optim.SGD(weights[2:], lr=0.5)})
    seen = []
    for step in range(steps):
        rate.set(learner, step, steps)
        seen.append([group["lr"] for optimizer in learner.opts.values() for group in optimizer.param_groups])
    return seen


def test_every_group_keeps_its_share_of_the_rate() -> None:
    assert rates(LearningRate(), 3) == [[0.1, 0.02, 0.5]] * 3
    assert rates(LearningRate(1 / 4), 2) == [[0.025, 0.005, 0.125]] * 2
    for step, seen in enumerate(rates(LearningRate(1 / 9, "hump"), 30)):
        assert seen == pytest.approx([lr / 9 * hump(step, 30) for lr in (0.1, 0.02, 0.5)])


def test_the_inverse_shape_is_cdans() -> None:
    factors = [rates(LearningRate(shape="inverse"), 1001)[step][0] / 0.1 for step in (0, 1000)]
    assert factors == pytest.approx([1.0, 2**-0.75])  # (1 + 0.001 · 1000)^-0.75


def test_a_trunk_has_its_own_rate() -> None:
    """Heads learn at lr, backbones at lr · trunk_rate, and both follow the shape."""
    settings = Settings(lr=0.01, trunk_rate=0.1, nesterov=True)  # type: ignore[call-arg]
    network = with_head(build_backbone("digits-cnn"), 3)
    optimizer = sgd([network], settings)
    new, trunk = optimizer.param_groups
    assert [group["lr"] for group in (new, trunk)] == pytest.approx([0.01, 0.001])
    assert all(group["nesterov"] for group in (new, trunk))
    assert {id(p) for p in new["params"]} == {id(p) for p in network[-1].parameters()}
    assert {id(p) for p in trunk["params"]} == {id(p) for p in network[0].parameters()}
    assert len(sgd([network], Settings(lr=0.01)).param_groups) == 1  # type: ignore[call-arg]
    assert len(sgd([network[-1]], settings).param_groups) == 1  # no trunk in it
