"""No step waits for the device: nothing that it computes is read back, all that goes there is pinned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest
import torch
from torch import Tensor

from accelerator import DEVICE, Accelerator, Stream, move
from ssdg import devices
from ssdg.data.sets import Inputs, MixedSet
from ssdg.data.streams import BatchStream, Pipeline
from ssdg.engine.batches import make_stream
from ssdg.engine.events import Events
from ssdg.engine.loop import AGREE_STEPS, Clock, Stage, add, run_steps
from ssdg.engine.scores import all_logits
from ssdg.machine import start_machine
from ssdg.methods import METHODS
from ssdg.methods.api import Learner, Progress
from ssdg.schema import StageMeta
from test_contract import ALL, requests_of

OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("dann+dgvgs", {}),  # whose groups are domains, in a labeled set that has several
    ("dgvgs", {"conflict": "random"}),
    ("eid", {"union": True}),
]
SIX = 6  # images of a batch: two of each domain
# One step of a frozen method solves the whole problem, and its line search decides on the host.
STEPPING = [name for name in ALL if METHODS[name].family != "frozen"]


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Accelerator:
    return Accelerator(monkeypatch)


def moved(method: str, world: Path, cache: Path, **more: Any) -> tuple[Learner, BatchStream, Pipeline]:
    """The product of a method and its batches, both on the device."""
    learner, recorder, pipeline = requests_of(method, world, cache, **more)
    return there(learner, recorder.inputs[0], pipeline)


def there(learner: Learner, inputs: Inputs, pipeline: Pipeline) -> tuple[Learner, BatchStream, Pipeline]:
    move(learner)
    learner.nets.train()
    pipeline = replace(pipeline, device=DEVICE)
    return learner, make_stream(inputs, SIX, 7, pipeline), pipeline


def two_steps(learner: Learner, stream: BatchStream, accelerator: Accelerator) -> None:
    sums: dict[str, Tensor] = {}
    with accelerator:
        for step in range(2):
            add(sums, learner.step(stream.draw(step), Progress(1, 0, 2, step, 20)))


@pytest.mark.parametrize(("method", "more"), [*((name, {}) for name in STEPPING), *OTHERS])
def test_steps_wait_for_nothing(
    method: str, more: dict[str, Any], world: Path, cache: Path, accelerator: Accelerator
) -> None:
    learner, stream, _ = moved(method, world, cache, **more)
    two_steps(learner, stream, accelerator)
    assert accelerator.moves >= 2 * 4  # images, labels, domains and trust
    assert accelerator.waits == []
    assert accelerator.races == []


@pytest.mark.parametrize("more", [{"mix": "mixup"}, {"mix": "cutmix"}, {"mix": "x+u"}, {"any_pair": True}])
def test_mixing_waits_for_nothing(more: dict[str, Any], world: Path, cache: Path, accelerator: Accelerator) -> None:
    """In the second cycle of `eid`, whose labelers are trained on the intermediate domain."""
    _, recorder, pipeline = requests_of("eid", world, cache, **more)
    learner, inputs = next(stage for stage in recorder.stages if isinstance(stage[1].labeled, MixedSet))
    learner, stream, _ = there(learner, inputs, pipeline)
    two_steps(learner, stream, accelerator)
    assert accelerator.moves >= 2 * 4
    assert accelerator.waits == []


def pageable(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    return tensor.to(device, dtype, non_blocking=True)


@pytest.mark.parametrize("method", ["eid", "fixmatch", "l2d", "mixmatch"])
def test_pageable_memory_would_be_noticed(
    method: str, world: Path, cache: Path, accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws of the methods' own, and not the batches alone, go by the one way there is."""
    learner, stream, _ = moved(method, world, cache)
    for module in ("data.streams", "data.augment", "models.layers"):
        monkeypatch.setattr(f"ssdg.{module}.onto", pageable)
    monkeypatch.setattr("ssdg.models.styles.onto", pageable)
    monkeypatch.setattr("ssdg.methods.semi.mixmatch.onto", pageable)
    two_steps(learner, stream, accelerator)
    assert len(accelerator.waits) == accelerator.moves


def an_epoch(num: int, learner: Learner, stream: BatchStream, pipeline: Pipeline, folder: Path) -> StageMeta:
    stage = Stage("main", 1, 1, num, 0, 4, folder / f"{num}.safetensors")
    meta = StageMeta(
        key="main",
        round=1,
        product=True,
        inputs="",
        step=0,
        steps=num,
        images_per_step=8,
        finished=False,
        seconds=0.0,
        sums={},
        history=[],
    )
    table = stream.labeled.data.images  # type: ignore[union-attr]
    clock = Clock(1e9, Flag(), start_machine("cpu"))
    events = Events(folder / "events.jsonl")
    run_steps(
        stage, learner, stream, meta, lambda: {"images": all_logits(learner, table, pipeline).shape[1]}, clock, events
    )
    return meta


def test_an_epoch_waits_no_more_often_however_many_steps_it_has(
    world: Path, cache: Path, accelerator: Accelerator, tmp_path: Path
) -> None:
    """At its end it reads the mean losses, evaluates and saves."""
    learner, stream, pipeline = moved("mean-teacher", world, cache)
    counts = []
    for num in (1, 2, 7):
        accelerator.waits.clear()
        with accelerator:
            meta = an_epoch(num, learner, stream, pipeline, tmp_path)
        assert meta.step == num
        assert len(meta.history) == 1
        counts.append(len(accelerator.waits))
    assert counts[0] == counts[1] == counts[2] > 0


def test_an_evaluation_waits_once(world: Path, cache: Path, accelerator: Accelerator) -> None:
    learner, stream, pipeline = moved("source-only", world, cache)
    with accelerator:
        table = stream.labeled.data.images  # type: ignore[union-attr]
        logits = all_logits(learner, table, pipeline, batch=2)
    assert len(table) > 4
    assert logits.device.type == "cpu"
    assert accelerator.waits == ["_to_copy"]


def test_several_processes_agree_on_a_stop_every_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """They must read the answer back."""
    machine, asked = start_machine("cpu"), []
    monkeypatch.setattr(type(machine), "world", 2)
    monkeypatch.setattr(type(machine), "any", lambda self, flag: asked.append(flag))
    clock = Clock(1e9, Flag(), machine)
    for step in range(1, 4 * AGREE_STEPS + 1):
        clock.is_time_to_stop(step)
    assert len(asked) == 4


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.sum().item(),
        lambda x: x[x > 0],
        lambda x: (x > 0).nonzero(),
        lambda x: float(x.max()),
        lambda x: bool((x > 0).all()),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: torch.empty(4).copy_(x),
        lambda x: torch.tensor([1.0, 2.0], device=x.device),
        lambda x: x[torch.tensor([1, 2])],
        lambda x: torch.rand(4).to(x.device, non_blocking=True),
        lambda x: torch.rand(4).pin_memory().to(x.device),
        lambda x: torch.rand(4).pin_memory().to(x.device, torch.float64, non_blocking=True),
        lambda x: torch.rand(4, 2).pin_memory()[:, 0].to(x.device, non_blocking=True),
        lambda x: x.copy_(torch.rand(4)),
    ],
)
def test_what_waits_is_seen(read: Any, accelerator: Accelerator) -> None:
    x = torch.empty(4, device=DEVICE)
    with accelerator:
        try:
            read(2 * x)
        except NotImplementedError:  # by a device without values
            assert accelerator.waits
    assert len(accelerator.waits) == 1


def test_what_is_drawn_on_the_cpu_may_be_read(accelerator: Accelerator) -> None:
    x = torch.empty(4, device=DEVICE)
    with accelerator:
        x * torch.rand(()).item() + torch.rand(4)[torch.tensor([True, False, True, True])].sum()
        x + devices.onto(torch.rand(4, 2)[:, 0], DEVICE, torch.float64)
    assert not accelerator.waits
    assert accelerator.moves == 1


def test_the_networks_of_dcg_have_a_stream_each(world: Path, cache: Path, accelerator: Accelerator) -> None:
    learner, stream, _ = moved("eid", world, cache)
    two_steps(learner, stream, accelerator)
    first, second = accelerator.streams[:2]
    assert len({first, second, accelerator.main}) == 3
    assert accelerator.streams == [first, second] * 2  # the same ones in every step: each keeps memory of its own


@pytest.mark.parametrize("forgets", ["caller", "network"])
def test_a_stream_that_does_not_wait_is_noticed(
    forgets: str, world: Path, cache: Path, accelerator: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, stream, _ = moved("eid", world, cache)
    wait = Stream.wait_stream

    def lazy(self: Stream, other: Stream) -> None:
        if (self is accelerator.main) != (forgets == "caller"):
            wait(self, other)

    monkeypatch.setattr(Stream, "wait_stream", lazy)
    two_steps(learner, stream, accelerator)
    assert accelerator.races
