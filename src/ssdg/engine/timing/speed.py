"""Measure the speed of a run on this machine: seconds per step, evaluated image, and map of frozen layers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from ...config import RunConfig
from ...data.hidden import Problem
from ...data.sets import Task
from ...data.streams import Pipeline
from ...devices import evaluation_batch
from ...machine import Machine
from ...methods import find_method
from ...methods.api import Progress, StageRequest
from ...models.backbones import backbones_of
from ...schema import stage_group
from ..batches import make_stream
from ..pipelines import ENCODE_BATCH, Pipelines, open_pipelines, tables_of
from ..plan import Planner, fit
from ..run import Builder, NetworkSettings
from ..scores import MAX_IMAGES

NUM_TIMED = 5  # steps
MAX_TIMED = 10.0  # seconds after which no further step is timed
FIXED_SECONDS = 10.0  # thumbnails, the probe, the model and its card


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine; `step` is that of the product."""

    step: float  # of training, with the randomized views of its batch
    image: float  # labeled or evaluated
    map: float = 0.0  # of a frozen trunk, computed and stored
    stages: Mapping[str, float] = field(default_factory=dict)  # of a step, by group of stages


@dataclass(frozen=True)
class Work:
    """What a run does besides its steps."""

    trained: int  # images that it trains on
    scored: int  # images on which it is evaluated after every epoch
    unlabeled: int
    num_trunks: int  # 0 without frozen layers; 2 if a labeler freezes another part than the product


def map_seconds(views: int, work: Work, speed: Speed) -> float:
    """Return the time to compute all maps of frozen trunks."""
    return work.num_trunks * speed.map * (work.trained * (1 + views) + work.scored)


def work_of(config: RunConfig, problem: Problem) -> Work:
    """Count the images of a run."""
    task = problem.task
    trained, scored = tables_of(problem, config)
    unlabeled = sum(len(pool) for pool in task.unlabeled.values())
    watched = min(MAX_IMAGES, unlabeled) if "unlabeled" in find_method(config.method).needs else 0
    nested = type(config.settings).nested_methods(dict(config.settings))
    frozen = {config.freeze, *(inner.freeze for inner in nested.values())} - {"none", None}
    return Work(sum(map(len, trained)), sum(map(len, scored)) + watched, unlabeled, len(frozen))


def measure_speed(config: RunConfig, problem: Problem, machine: Machine, cache: Path) -> Speed:
    """Time a few steps of every kind of stage, an evaluation and, with a frozen trunk, a few maps."""
    task = problem.task
    pipelines = open_pipelines(config, problem, machine, cache)
    recorder = record_stages(config, task, Builder(NetworkSettings.of(config), len(task.classes), machine))
    product = recorder.product
    pipeline, map_time = open_maps(product.learner, problem, pipelines)
    step = step_seconds(product, pipeline)
    stages = {stage_group(product.key): step}
    for group, request in recorder.requests.items():
        if group not in stages:
            stages[group] = step_seconds(request, open_maps(request.learner, problem, pipelines)[0])
    learner: Any = product.learner
    rows = np.arange(min(evaluation_batch(pipeline.device, config.size), len(task.labeled)))
    learner.nets.eval()
    with torch.inference_mode():
        images = task.labeled.images
        image = min(seconds_of(lambda: learner.logits(pipeline.plain(images, rows))) for _ in range(2)) / len(rows)
    return Speed(step, image, map_time, stages)


def step_seconds(request: StageRequest, pipeline: Pipeline) -> float:
    """Return the median time of a few steps of a stage, each with the drawing of its batch."""
    learner: Any = request.learner
    stream = make_stream(request.inputs, request.settings.batch, 0, pipeline)
    stream.draw(0)  # computes the maps that it reads
    learner.nets.train()
    at = Progress(round=1, epoch=0, epochs=1, step=0, steps=NUM_TIMED)
    times: list[float] = []
    while len(times) < NUM_TIMED and sum(times) < MAX_TIMED:
        times.append(seconds_of(lambda: learner.step(stream.draw(0), at)))
    return median(times)


@dataclass
class StageRecorder(Planner):
    """A runner that trains nothing and keeps the first stage of every kind, and the first of the product."""

    requests: dict[str, StageRequest] = field(default_factory=dict)  # by group of stages
    products: list[StageRequest] = field(default_factory=list)

    @property
    def product(self) -> StageRequest:
        """The first request to train the product."""
        return self.products[0]

    def run_stage(self, request: StageRequest) -> None:
        """Keep the request if it is the first of its kind."""
        self.requests.setdefault(stage_group(request.key), request)
        if request.product:
            self.products.append(request)


def record_stages(config: RunConfig, task: Task, builder: Builder) -> StageRecorder:
    """Return the stages of a run with the networks and images that the method asks for."""
    recorder = StageRecorder()
    fit(config, task, recorder, builder.build)
    return recorder


def open_maps(learner: Any, problem: Problem, pipelines: Pipelines) -> tuple[Pipeline, float]:
    """Return the pipeline of a learner without filling its maps, and the seconds per map that has to be computed."""
    trunks = [net for net in backbones_of(learner.nets) if getattr(net, "boundary", None) is not None]
    if not trunks:
        return pipelines.images, 0.0
    stored = pipelines.open_trunk(trunks[0])
    images = problem.task.labeled.images
    rows = images.row[images.source == 0][:ENCODE_BATCH]
    views = range(2 if stored.num_views else 1)
    files = [stored.open_file(images.arrays[0], view) for view in views]
    times = [seconds_of(partial(file.compute, rows)) / len(rows) for file in files for _ in range(2)]
    return replace(pipelines.images, stored=stored), min(times[-2:])  # of a randomized view, if there is one


def seconds_of(call: Callable[[], object]) -> float:
    """Return the time that a call takes, including what the accelerator still has to do for it."""
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start
