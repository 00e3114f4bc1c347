"""The learning rate of every step."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ssdg.engine.loop import LearningRate, Stage, hump
from ssdg.methods.api import WHOLE, LrShape, Settings, Span, schedule_position, sgd, with_head
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


def spans_of(epochs: list[int]) -> list[Span]:
    """The parts of a schedule that stages of these lengths cover."""
    ends = [sum(epochs[: index + 1]) / sum(epochs) for index in range(len(epochs))]
    return list(zip([0.0, *ends], ends, strict=False))


def test_the_position_in_a_schedule_by_hand() -> None:
    assert schedule_position(4, 10, WHOLE) == (4, 10)
    assert schedule_position(0, 10, (0.5, 1.0)) == (10, 20)  # ten more steps came before
    assert schedule_position(9, 10, (0.5, 1.0)) == (19, 20)
    assert schedule_position(3, 10, (0.25, 0.5)) == (13, 40)
    # A stage with other steps per epoch than its predecessors counts theirs as if they had been like its own.
    assert schedule_position(0, 30, (0.2, 0.8)) == (10, 50)


@pytest.mark.parametrize("shape", ["fixed", "hump", "inverse"])
@pytest.mark.parametrize("epochs", [[1, 1], [1, 2], [1, 3, 3, 3], [2, 5, 5], [3, 7], [10, 4, 4, 4], [1] * 7])
@pytest.mark.parametrize("steps_per_epoch", [1, 5, 7])
def test_stages_that_share_a_schedule_have_the_rates_of_one_long_stage(
    shape: LrShape, epochs: list[int], steps_per_epoch: int
) -> None:
    """Exactly: thirds and sevenths do not add up in floating point, and a hump turns at a whole step."""
    parts: list[list[float]] = []
    for count, span in zip(epochs, spans_of(epochs), strict=True):
        parts += rates(LearningRate(1 / 4, shape, span), count * steps_per_epoch)
    assert parts == rates(LearningRate(1 / 4, shape), sum(epochs) * steps_per_epoch)


def test_steps_of_all_stages_count_on() -> None:
    epochs, position = [1, 3, 3, 3], 0
    for count, span in zip(epochs, spans_of(epochs), strict=True):
        stage = Stage("dcg", 1, count, 5, 0, 8, Path("x"), LearningRate(span=span))
        for step in range(stage.steps):
            at = stage.at(step)
            assert at.schedule_step == position
            assert (at.step, at.epoch) == (step, step // 5)  # these are of the stage
            position += 1
    assert position == 50


def test_a_stage_that_begins_within_a_warm_up_has_no_more_than_the_full_rate() -> None:
    """It begins at step 1.42 of 28.42, of which 3 are the warm-up: the second step would have 3.42 thirds."""
    factors = [lr / 0.1 for lr, *_ in rates(LearningRate(shape="hump", span=(0.05, 1.0)), 27)]
    assert max(factors) == pytest.approx(1)
    assert factors[0] < factors[1] <= 1  # still rising


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
