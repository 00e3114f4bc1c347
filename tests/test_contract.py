"""The contract of all methods: these tests run on every registered method."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from runs import same_weights, short_settings, train_here, weights_of
from ssdg.data.sets import Inputs, LabeledSet, PseudoLabels
from ssdg.data.streams import Pipeline
from ssdg.engine.batches import make_stream
from ssdg.engine.checkpoint import load_state, save_state
from ssdg.engine.loop import Clock
from ssdg.engine.pipelines import open_pipelines
from ssdg.engine.plan import fit
from ssdg.engine.run import Builder, NetworkSettings, run
from ssdg.engine.setup import open_run
from ssdg.errors import Stopped, UserError
from ssdg.machine import start_machine
from ssdg.methods import METHODS
from ssdg.methods.api import LabelRequest, Learner, Progress, StageRequest
from ssdg.models.backbones import backbones_of
from ssdg.models.frozen import trunk_modules
from worlds import write_world

ALL = sorted(METHODS)
ON_PIXELS = [name for name in ALL if "pixels" in METHODS[name].needs]
FROZEN: dict[str, Any] = {"warm_epochs": 1, "views": 2}  # with `freeze`
# `probe` and `self-training` are frozen as a whole in every test.
FREEZABLE = [name for name in ALL if name not in ON_PIXELS and METHODS[name].freeze is None]


def product_of(method: str, world: Path, cache: Path, **more: Any) -> tuple[Learner, Inputs, Pipeline]:
    """Return a new learner of the method's product and the data that the method requests to train it on."""
    learner, recorder, pipeline = requests_of(method, world, cache, **more)
    return learner, recorder.inputs[0], pipeline


def requests_of(method: str, world: Path, cache: Path, **more: Any) -> tuple[Learner, RequestRecorder, Pipeline]:
    """Return the same with all requests of the method, under further settings."""
    config, problem = open_run(short_settings(method, data=str(world), **more), cache, device="cpu")
    machine, recorder = start_machine("cpu"), RequestRecorder()
    builder = Builder(NetworkSettings.of(config), len(problem.task.classes), machine)
    learner = fit(config, problem.task, recorder, builder.build)
    return learner, recorder, open_pipelines(config, problem, machine, cache).of(learner)


class RequestRecorder:
    """Runner that trains nothing and records the inputs of the product and of every stage."""

    def __init__(self) -> None:
        self.inputs: list[Inputs] = []
        self.stages: list[tuple[Learner, Inputs]] = []

    def run_stage(self, request: StageRequest) -> None:
        self.stages.append((request.learner, request.inputs))
        if request.product:
            self.inputs.append(request.inputs)

    def run_labeling(self, request: LabelRequest) -> PseudoLabels:
        return some_labels(len(request.pool))


def some_labels(count: int) -> PseudoLabels:
    y = np.arange(count) % 3
    return PseudoLabels(y, np.ones(count, bool), np.ones(count, np.float32), y[None])


def three_steps(learner: Learner, inputs: Inputs, pipeline: Pipeline, first: int = 0) -> dict[str, float]:
    stream = make_stream(inputs, 4, 7, pipeline)
    learner.nets.train()
    for step in range(first, first + 3):
        torch.manual_seed(step)
        scalars = learner.step(stream.draw(step), Progress(1, 0, 2, step, 20))
    return {name: float(value) for name, value in scalars.items()}


@pytest.mark.parametrize("method", ALL)
def test_three_steps_change_every_network_and_give_finite_scalars(method: str, world: Path, cache: Path) -> None:
    learner, inputs, pipeline = product_of(method, world, cache)
    check_three_steps(learner, inputs, pipeline)


def check_three_steps(learner: Learner, inputs: Inputs, pipeline: Pipeline) -> None:
    """Check that three steps change every parameter but the frozen ones, and give finite scalars."""
    before = {name: value.clone() for name, value in learner.nets.state_dict().items()}
    scalars = three_steps(learner, inputs, pipeline)
    assert scalars
    assert all(math.isfinite(value) for value in scalars.values())
    after, frozen = learner.nets.state_dict(), frozen_names(learner)
    still = {name for name, _ in learner.nets.named_parameters() if torch.equal(after[name], before[name])}
    assert still == {name for name, _ in learner.nets.named_parameters() if name in frozen}
    assert all(torch.equal(after[name], before[name]) for name in frozen)  # running statistics, too


def frozen_names(learner: Learner) -> set[str]:
    """Return the names of the tensors in all frozen trunks."""
    trunks = [net for net in backbones_of(learner.nets) if getattr(net, "boundary", None) is not None]
    parts = [part for net in trunks for part in trunk_modules(net)]
    frozen = {value.data_ptr() for part in parts for value in part.state_dict().values()}
    return {name for name, value in learner.nets.state_dict().items() if value.data_ptr() in frozen}


@pytest.mark.parametrize(
    ("method", "strategy"), [(name, strategy) for name in ALL for strategy in METHODS[name].web_labels]
)
def test_a_plain_domain_next_to_a_crawl(method: str, strategy: str, world: Path, cache: Path) -> None:
    """Domains are numbered without gaps where sets are joined, whatever becomes of the web-labels."""
    given = {"unlabeled": ["sketch"], "web": ["neon"], "web_label": strategy}
    learner, recorder, pipeline = requests_of(method, world, cache, **given)
    labeled = recorder.inputs[0].labeled
    if isinstance(labeled, LabeledSet) and "unlabeled" not in METHODS[method].needs:
        assert set(labeled.domain) == set(range(labeled.num_domains))
    scalars = three_steps(learner, recorder.inputs[0], pipeline)
    assert all(math.isfinite(value) for value in scalars.values())


@pytest.mark.parametrize("method", ALL)
def test_logits_have_their_shape(method: str, world: Path, cache: Path) -> None:
    learner, _, _ = product_of(method, world, cache)
    logits = learner.logits(torch.rand(5, 3, 32, 32))
    assert logits.ndim == 3
    assert logits.shape[1:] == (5, 3)
    assert logits.dtype == torch.float32


@pytest.mark.parametrize("method", ALL)
def test_save_load_gives_the_same_next_step(method: str, world: Path, cache: Path, tmp_path: Path) -> None:
    learner, inputs, pipeline = product_of(method, world, cache)
    three_steps(learner, inputs, pipeline)
    other, _, _ = product_of(method, world, cache)
    check_save_and_load(learner, other, inputs, pipeline, tmp_path / "state.safetensors")


def check_save_and_load(learner: Learner, other: Learner, inputs: Inputs, pipeline: Pipeline, path: Path) -> None:
    """Check that another learner continues from the saved state of `learner` like `learner` itself."""
    save_state(path, learner, {"step": 3})
    three_steps(learner, inputs, pipeline, first=3)
    three_steps(other, inputs, pipeline, first=11)  # a state to overwrite
    assert load_state(path, other) == {"step": 3}
    three_steps(other, inputs, pipeline, first=3)
    expected = learner.nets.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in other.nets.state_dict().items())


@pytest.mark.parametrize("boundary", ["stage2", "all"])
@pytest.mark.parametrize("method", FREEZABLE)
def test_a_frozen_trunk_stays_while_the_rest_is_trained_saved_and_loaded(
    method: str, boundary: str, world: Path, cache: Path, tmp_path: Path
) -> None:
    """Maps of the frozen layers replace images in training; the product takes images."""
    learner, inputs, pipeline = product_of(method, world, cache, freeze=boundary, **FROZEN)
    assert pipeline.stored is not None
    assert frozen_names(learner)
    assert learner.logits(torch.rand(5, 3, 32, 32)).shape[1:] == (5, 3)
    check_three_steps(learner, inputs, pipeline)
    other, _, _ = product_of(method, world, cache, freeze=boundary, **FROZEN)
    check_save_and_load(learner, other, inputs, pipeline, tmp_path / "state.safetensors")


@pytest.mark.parametrize("method", ON_PIXELS)
def test_a_method_that_changes_pixels_cannot_be_frozen(method: str, world: Path, cache: Path) -> None:
    with pytest.raises(UserError, match=r"changes the pixels of every batch.*give freeze=none") as refusal:
        product_of(method, world, cache, freeze="stage2", **FROZEN)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("method", ALL)
def test_same_seed_same_weights_other_seed_other_weights(
    method: str, world: Path, cache: Path, tmp_path: Path
) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train_here(world, cache, tmp_path / name, method, seed=seed)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


@pytest.mark.parametrize("method", ALL)
def test_a_stopped_run_goes_on_to_the_same_bits(
    method: str, world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_stopped_run(method, world, cache, tmp_path, monkeypatch)


@pytest.mark.parametrize("method", FREEZABLE)
def test_a_stopped_run_with_a_frozen_trunk_resumes_to_the_same_bits(
    method: str, world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boundary = "stage2" if METHODS[method].family in ("source", "DG", "ours") else "all"
    check_stopped_run(method, world, cache, tmp_path, monkeypatch, freeze=boundary, epochs=1, **FROZEN)


def check_stopped_run(
    method: str, world: Path, cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> None:
    train_here(world, cache, folder / "whole", method, **more)
    calls = iter(range(1000))
    with monkeypatch.context() as patch:  # stop after the eighth step, whatever stage it falls into
        patch.setattr(Clock, "is_time_to_stop", lambda self, step: next(calls) == 7)
        with pytest.raises(Stopped):
            train_here(world, cache, folder / "parts", method, **more)
    train_here(world, cache, folder / "parts", method, **more)
    assert same_weights(folder / "whole", folder / "parts")


@pytest.mark.parametrize("method", ALL)
def test_hidden_labels_cannot_reach_the_weights(method: str, world: Path, cache: Path, tmp_path: Path) -> None:
    """Move the files of unlabeled and target domains to other class folders: the weights stay bit-identical."""
    other = shutil.copytree(world, tmp_path / "other")
    rng = np.random.default_rng(0)
    for domain in ("sketch", "neon", "night"):
        files = sorted((other / domain).rglob("*.png"))
        targets = [files[i].with_stem(f"moved{n}") for n, i in enumerate(rng.permutation(len(files)))]
        for file, target in zip(files, targets, strict=True):
            file.rename(target)
    train_here(world, cache, tmp_path / "true", method)
    train_here(other, cache, tmp_path / "permuted", method)
    assert same_weights(tmp_path / "true", tmp_path / "permuted")
    truths = [open_run(short_settings(method, data=str(d)), cache)[1].truth["sketch"] for d in (world, other)]
    assert not np.array_equal(*truths)  # the hidden labels did change


@pytest.mark.parametrize("method", ALL)
def test_one_image_per_class_works_or_is_refused_in_a_sentence(method: str, cache: Path, tmp_path: Path) -> None:
    tiny = write_world(tmp_path / "tiny", per_class=1, classes=("bar", "disc"))
    message = ""
    try:
        train_here(tiny, cache, tmp_path / "run", method)
    except UserError as error:
        message = str(error)
    assert "\n" not in message
    if not message:
        assert all(torch.isfinite(value).all() for value in weights_of(tmp_path / "run").values())


@pytest.mark.parametrize("method", [name for name in ALL if "unlabeled" in METHODS[name].needs])
def test_a_method_that_needs_unlabeled_data_says_so(method: str, world: Path, cache: Path, tmp_path: Path) -> None:
    settings = short_settings(method, labeled=str(world / "photo"), target=None)
    config, problem = open_run(settings, cache, device="cpu")
    with pytest.raises(UserError, match="needs unlabeled images"):
        run(config, problem, tmp_path / "run", start_machine("cpu"))
