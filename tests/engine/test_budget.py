"""Runs of a given number of minutes: what is measured, what is chosen, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ssdg.config import DataKind, RunConfig, resolve
from ssdg.data.hidden import Problem
from ssdg.data.streams import BatchStream
from ssdg.engine.budget import Speed, Work, choose_settings, measure_speed, work_of
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


# What is counted and chosen. Every test makes up its own work and speed.


def photos(**values: Any) -> RunConfig:
    """Preset `best` for photographs."""
    return resolve({"labeled": "photo", "preset": "best", **values}, kind="photo", size=224)


def characters(**values: Any) -> RunConfig:
    """Preset `best` for small images."""
    return resolve({"labeled": "syn", "preset": "best", **values}, kind="none", size=32)


PHOTOS = Work(trained=7000, scored=3000, unlabeled=5000, num_trunks=2)
CHARACTERS = Work(trained=7000, scored=3000, unlabeled=5000, num_trunks=0)
WITH_MAPS = Speed(step=0.2, image=0.001, map=0.004)
WITHOUT_MAPS = Speed(step=0.1, image=0.001)
CASES = [(photos, PHOTOS, WITH_MAPS), (characters, CHARACTERS, WITHOUT_MAPS)]
SLOW_LABELING = [(make, work, replace(speed, image=0.004)) for make, work, speed in CASES]


def chosen(config: RunConfig, work: Work, speed: Speed, minutes: float) -> RunConfig:
    """The configuration that `ssdg train` would run."""
    values = choose_settings(config, work, speed, minutes).settings
    base = {"labeled": config.labeled, "preset": "best", "web": config.web, "web_label": config.web_label}
    return resolve({**base, "method": config.method, **values}, kind=kind_of(config), size=config.size)


def kind_of(config: RunConfig) -> DataKind:
    return "none" if config.backbone == "digits-cnn" else "photo"


def seconds_needed(config: RunConfig, work: Work, speed: Speed) -> float:
    """Maps, steps, and a forward pass of every scored image per cycle and of every unlabeled one per labeling."""
    flat = config.flat()
    epochs = flat["start_epochs"] + flat["cycles"] * flat["epochs"]
    forwards = flat["cycles"] * (work.scored + work.unlabeled * (1 + flat["label_views"]))
    maps = work.num_trunks * (work.trained * (1 + config.views) + work.scored)
    return float(maps * speed.map + epochs * flat["iterations"] * speed.step + forwards * speed.image)


@pytest.mark.parametrize(("make", "work", "speed"), CASES + SLOW_LABELING)
@pytest.mark.parametrize("minutes", [15, 27.5, 60, 600])
def test_a_run_takes_most_of_its_minutes_and_no_more(make: Any, work: Work, speed: Speed, minutes: float) -> None:
    seconds = seconds_needed(chosen(make(), work, speed, minutes), work, speed)
    assert 0.75 * 60 * minutes < seconds < 0.9 * 60 * minutes  # a tenth is left, as speeds vary


@pytest.mark.parametrize(("make", "work", "speed"), CASES)
def test_more_minutes_are_more_steps(make: Any, work: Work, speed: Speed) -> None:
    runs = [chosen(make(), work, speed, minutes).flat() for minutes in (10, 20, 40, 80)]
    steps = [(run["start_epochs"] + run["cycles"]) * run["iterations"] for run in runs]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(("make", "work", "speed"), CASES)
def test_a_faster_machine_takes_more_steps(make: Any, work: Work, speed: Speed) -> None:
    slow, fast = (chosen(make(), work, replace(speed, step=step), 20).flat() for step in (0.4, 0.1))
    assert fast["iterations"] > slow["iterations"]


@pytest.mark.parametrize(("map_seconds", "expected"), [(0.001, 5), (0.004, 3), (0.008, 1)])
def test_views_are_stored_as_long_as_maps_take_half_of_the_minutes(map_seconds: float, expected: int) -> None:
    """300 of 600 seconds for 2 · (7,000 · (1 + views) + 3,000) maps: 89, 161, 268 s for 5, 3 and 1 views.

    Of 4 ms each, 4 views would take 304 s; of 8 ms, 2 would take 384 s.
    """
    config = chosen(photos(), PHOTOS, replace(WITH_MAPS, map=map_seconds), 10)
    assert (config.method, config.views) == ("eid", expected)


def test_views_of_a_given_number_do_not_increase() -> None:
    values = choose_settings(photos(views=2), PHOTOS, WITH_MAPS, 600).settings
    assert "views" not in values


def test_views_that_the_user_chose_do_not_change() -> None:
    slow = replace(WITH_MAPS, map=0.008)
    assert "views" in choose_settings(photos(), PHOTOS, slow, 10).settings
    assert "views" not in choose_settings(photos(views=5), PHOTOS, slow, 15, keep_views=True).settings


@pytest.mark.parametrize("method", ["fixmatch", "mean-teacher"])
def test_a_method_that_compares_views_keeps_one(method: str) -> None:
    config = chosen(photos(method=method), replace(PHOTOS, num_trunks=1), replace(WITH_MAPS, map=0.03), 20)
    assert (config.method, config.views) == (method, 1)


@pytest.mark.parametrize("values", [{}, {"freeze": "stage3"}, {"method": "source-only"}])
def test_pretrained_networks_without_time_become_a_probe(values: dict[str, Any]) -> None:
    budget = choose_settings(photos(**values), PHOTOS, WITH_MAPS, 1)
    assert "too few" in budget.note
    assert "probe" in budget.note
    config = photos(**{**values, **budget.settings})
    assert (config.method, config.freeze, config.views) == ("probe", "all", 0)


@pytest.mark.parametrize("minutes", [1e-6, 0.1, 0.3])
def test_random_networks_without_time_learn_the_labeled_domain_only(minutes: float) -> None:
    budget = choose_settings(characters(), CHARACTERS, WITHOUT_MAPS, minutes)
    config = characters(**budget.settings)
    assert (config.method, config.settings.epochs) == ("source-only", 1)
    assert config.settings.iterations is not None
    assert config.settings.iterations >= 1
    assert (config.settings.iterations - 1) * WITHOUT_MAPS.step < 60 * minutes
    assert f"source-only for {config.settings.iterations} steps" in budget.note


@pytest.mark.parametrize("web_label", ["ignored", "retained", "refined"])
@pytest.mark.parametrize(("make", "work", "speed"), CASES)
def test_a_replacement_gets_only_web_labels_that_it_supports(
    web_label: str, make: Any, work: Work, speed: Speed
) -> None:
    config = chosen(make(web=["crawl"], web_label=web_label), work, speed, 0.1)
    assert config.method in ("probe", "source-only")
    assert config.web_label in METHODS[config.method].web_labels
    assert config.web_label == web_label or web_label not in METHODS[config.method].web_labels


def test_images_of_a_run_are_counted(world: Path, cache: Path) -> None:
    """Of 24 images per domain, 3 labeled ones and 2 of each unlabeled domain are held out; the target has all."""
    config, problem = tiny_run(world, cache, "eid")
    assert (len(problem.task.labeled), len(problem.task.pool)) == (21, 44)
    assert work_of(config, problem) == Work(trained=21 + 44, scored=24 + 3 + 44, unlabeled=44, num_trunks=0)


def test_unlabeled_images_that_a_method_does_not_use_are_not_counted(world: Path, cache: Path) -> None:
    config, problem = tiny_run(world, cache, "source-only", freeze="stage2", warm_epochs=1)
    work = work_of(config, problem)
    assert work.trained == len(problem.task.labeled)
    assert work.trained + work.scored == 48  # the labeled domain and the target
    assert work.num_trunks == 1


def test_a_labeler_that_freezes_more_has_its_own_trunk(world: Path, cache: Path) -> None:
    _, problem = tiny_run(world, cache, "eid")
    for config, expected in ((photos(), 2), (photos(freeze="all"), 1), (photos(first_labels="self"), 1)):
        assert work_of(config, problem).num_trunks == expected


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
    """A closed solution has no steps, and a labeler has its own stages, as in the paper's `eid`."""
    assert METHODS[method].settings().with_steps(1000) is None
