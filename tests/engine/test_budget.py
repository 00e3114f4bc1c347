"""Runs of a given number of minutes: what is measured, what is chosen, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ssdg.config import RunConfig
from ssdg.data.hidden import Problem
from ssdg.data.streams import BatchStream
from ssdg.engine.budget import measure_speed
from ssdg.engine.setup import open_run
from ssdg.machine import start_machine
from ssdg.methods import METHODS
from ssdg.methods.eid.averaged import AveragedNetworks
from ssdg.methods.eid.settings import EidSettings
from ssdg.methods.source_only import SourceOnly

TINY: dict[str, Any] = {"preset": "best", "batch": 4, "lr": 0.001, "precision": "fp32"}
SCALABLE = sorted(name for name, method in METHODS.items() if method.freeze is None and "+" not in name)


def tiny_run(world: Path, cache: Path, method: str, **more: Any) -> tuple[RunConfig, Problem]:
    settings = {"data": str(world), "labeled": "photo", "target": "night", "method": method, **TINY, **more}
    return open_run(settings, cache, device="cpu")


@pytest.mark.parametrize("method", SCALABLE)
def test_the_steps_of_every_method_can_be_timed(method: str, world: Path, cache: Path) -> None:
    config, problem = tiny_run(world, cache, method)
    speed = measure_speed(config, problem, start_machine("cpu", "fp32"), cache)
    assert 0 < speed.step < math.inf
    assert 0 < speed.image < math.inf
    assert speed.map == 0  # nothing is frozen


def test_maps_are_timed_if_layers_are_frozen(world: Path, cache: Path) -> None:
    config, problem = tiny_run(world, cache, "source-only", freeze="stage2", warm_epochs=1, views=2)
    speed = measure_speed(config, problem, start_machine("cpu", "fp32"), cache)
    assert 0 < speed.map < math.inf


@pytest.mark.parametrize(("method", "expected"), [("source-only", {0}), ("daeldg", {0, 1, 2}), ("eid", {0, 1, 2})])
def test_the_timed_batch_is_drawn_as_in_training(
    method: str, expected: set[int], world: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`daeldg` trains one expert per group of the labeled domain, `eid` on all domains."""
    domains = set()
    config, problem = tiny_run(world, cache, method, batch=12)
    learner: Any = METHODS[method].learner if method != "eid" else AveragedNetworks
    step = learner.step

    def observed(self: Any, batch: Any, at: Any) -> Any:
        domains.update(batch.labeled.domain.tolist())
        return step(self, batch, at)

    monkeypatch.setattr(learner, "step", observed)
    measure_speed(config, problem, start_machine("cpu", "fp32"), cache)
    assert domains == expected


def test_the_time_of_a_step_includes_the_views_of_its_batch(
    world: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which drawing a batch takes 3 seconds and learning it 2."""
    config, problem = tiny_run(world, cache, "source-only")
    now = [0.0]

    def takes(seconds: float, call: Any) -> Any:
        def slow(*args: Any) -> Any:
            now[0] += seconds
            return call(*args)

        return slow

    monkeypatch.setattr("ssdg.engine.budget.time.perf_counter", lambda: now[0])
    monkeypatch.setattr(BatchStream, "draw", takes(3, BatchStream.draw))
    monkeypatch.setattr(SourceOnly, "step", takes(2, SourceOnly.step))
    assert measure_speed(config, problem, start_machine("cpu", "fp32"), cache).step == 5


@pytest.mark.parametrize("method", ["eid", "fixmatch"])
def test_unlabeled_images_that_are_missing_are_reported_before_anything_is_timed(
    method: str, world: Path, cache: Path, tmp_path: Path, complaint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssdg.engine.budget.measure_speed", lambda *_: pytest.fail("measured"))
    where = ["--labeled", world / "photo", "--out", tmp_path / "run", "--cache", cache, "--device", "cpu"]
    assert "add --unlabeled" in complaint("train", *where, "--method", method, "--minutes", 1)
    assert not (tmp_path / "run").exists()


# What scales.


@pytest.mark.parametrize("first_labels", ["self", "self-training"])
@pytest.mark.parametrize("cycles", [1, 2, 3, 6])
@pytest.mark.parametrize("steps", [20, 47, 199, 200, 1000, 123_456])
def test_a_cycle_takes_the_steps_it_is_given(first_labels: str, cycles: int, steps: int) -> None:
    """No more than these, and fewer only by what does not fill an epoch."""
    settings = EidSettings(apl="self", first_labels=first_labels, cycles=cycles)
    scaled = settings.model_copy(update=settings.with_steps(steps))
    epochs = scaled.start_epochs + scaled.cycles * scaled.epochs
    assert scaled.iterations is not None
    assert steps - epochs < epochs * scaled.iterations <= steps
    assert scaled.cycles <= cycles
    assert (scaled.start_epochs > 0) == (first_labels == "self")  # others have labels to begin with


def test_most_of_the_steps_are_cycles() -> None:
    """Networks that label themselves start with 40 % of the steps, if the cycles divide so."""
    values = EidSettings(apl="self", cycles=6).with_steps(1000)
    assert values == {"cycles": 6, "epochs": 1, "iterations": 100, "start_epochs": 4}


def test_a_short_run_has_fewer_cycles_but_none_without_steps() -> None:
    settings = EidSettings(apl="self", first_labels="self-training", cycles=5)
    scaled = [settings.with_steps(steps) for steps in (20, 40, 60, 1000)]
    assert [values["cycles"] for values in scaled if values] == [1, 2, 3, 5]
    assert [values["iterations"] for values in scaled if values] == [20, 20, 20, 200]


@pytest.mark.parametrize("steps", [1, 3, 20, 28, 1000])
def test_a_method_with_one_stage_takes_the_steps_it_is_given(steps: int) -> None:
    values = METHODS["source-only"].settings().with_steps(steps)
    assert values is not None
    assert steps - 8 < values["epochs"] * values["iterations"] <= steps
    assert 1 <= values["epochs"] <= 8


@pytest.mark.parametrize("method", ["probe", "self-training", "mcd+mixstyle", "eid"])
def test_what_cannot_be_scaled_says_so(method: str) -> None:
    """A closed solution has no steps, and a labeler has stages of its own, as in the paper's `eid`."""
    assert METHODS[method].settings().with_steps(1000) is None
