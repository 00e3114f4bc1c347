"""A run of a given number of minutes: measure the speed of this machine, then choose views and steps."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from ..config import RUN_KEYS, Flat, RunConfig
from ..data.hidden import Problem
from ..data.sets import Task
from ..data.streams import Pipeline
from ..devices import evaluation_batch
from ..errors import UserError
from ..machine import Machine
from ..methods import find_method
from ..methods.api import VIEWS, Progress, StageRequest
from ..models.backbones import backbones_of
from ..schema import read_run_file
from .batches import make_stream
from .pipelines import ENCODE_BATCH, Pipelines, open_pipelines, tables_of
from .plan import Planner, fit
from .run import Builder, NetworkSettings, check_needs
from .scores import MAX_IMAGES
from .setup import open_settings, with_full_paths

MAX_MINUTES = 60 * 24 * 365
NUM_TIMED = 5  # steps
FIXED_SECONDS = 10.0  # thumbnails, the probe, the model and its card
RESERVE = 0.1  # of the minutes: speeds vary
MAP_SHARE = 0.5  # of the minutes that frozen layers may take at most


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine."""

    step: float  # of training, with the randomized views of its batch
    image: float  # labeled or evaluated
    map: float = 0.0  # of a frozen trunk, computed and stored


@dataclass(frozen=True)
class Work:
    """What a run does besides its steps."""

    trained: int  # images that it trains on
    scored: int  # images on which it is evaluated after every epoch
    unlabeled: int
    num_trunks: int  # 0 without frozen layers; 2 if a labeler freezes another part than the product


@dataclass(frozen=True)
class Budget:
    """Settings that fit the minutes, and the message to the user."""

    settings: Flat
    note: str


def fit_minutes(
    config: RunConfig, problem: Problem, machine: Machine, cache: Path, minutes: float, *, keep_views: bool = False
) -> Budget:
    """Return the settings with which the run takes about `minutes`, most of it training."""
    check_minutes(config, minutes)
    check_needs(find_method(config.method), problem, config, machine.world)
    speed = measure_speed(config, problem, machine, cache)
    return choose_settings(config, work_of(config, problem), speed, minutes, keep_views=keep_views)


@dataclass(frozen=True)
class TimedRun:
    """A run whose settings fit a number of minutes; `note` is empty if they were chosen when it was started."""

    config: RunConfig
    problem: Problem
    chosen: Flat
    note: str


def open_timed_run(
    settings: Flat,
    config: RunConfig,
    problem: Problem,
    machine: Machine,
    folder: Path,
    cache: Path,
    minutes: float,
    device: str,
) -> TimedRun:
    """Return the run with settings that fit `minutes`; a run that was started keeps those chosen then."""
    note = ""
    if (folder / "run.json").exists():
        started = read_run_file(folder).options
        check_same_minutes(folder, started.minutes, minutes)
        chosen = started.chosen
    else:
        check_free(settings, config)
        budget = fit_minutes(config, problem, machine, cache, minutes, keep_views="views" in settings)
        chosen = json.loads(machine.same(json.dumps(budget.settings)))  # every process has its own speed
        note = budget.note
    if "method" in chosen:  # too little time for the method: its settings have no meaning
        settings = {key: value for key, value in settings.items() if key in RUN_KEYS}
    return TimedRun(*open_settings({**with_full_paths(settings), **chosen}, cache, device=device), chosen, note)


def check_free(settings: Flat, config: RunConfig) -> None:
    """Raise an error if the user chose what the minutes have to choose."""
    fixed = [name for name in config.settings.with_steps(1000) or {} if name in settings]
    if fixed:
        raise UserError(
            f"{fixed[0]}={settings[fixed[0]]} was given with --minutes, which chooses {fixed[0]} itself; "
            "leave out one of the two"
        )


def check_same_minutes(folder: Path, before: float | None, now: float) -> None:
    """Raise an error if the run in the folder was started with another number of minutes, or without."""
    if before != now:
        start = f"with --minutes {before:g}" if before is not None else "without --minutes"
        raise UserError(f"the run in {folder} was started {start}; resume it {start}, or give another --out")


def check_minutes(config: RunConfig, minutes: float) -> None:
    """Raise an error if the minutes, or the method, cannot be scaled."""
    if not 0 < minutes <= MAX_MINUTES:
        raise UserError(f"--minutes {minutes:g} is not a time to train for; give a number above 0, such as 10")
    if config.settings.with_steps(1000) is None:
        raise UserError(
            f"--minutes cannot scale the stages of method '{config.method}' with these settings; "
            "use eid with apl=self (preset best) or a method with one stage, or give epochs= yourself"
        )


def choose_settings(
    config: RunConfig, work: Work, speed: Speed, minutes: float, *, keep_views: bool = False
) -> Budget:
    """Return views and steps that fit; without time for training, the classifier that needs least."""
    seconds = 60 * minutes * (1 - RESERVE) - FIXED_SECONDS
    needs_view = config.freeze != "none" and bool({*VIEWS} & {*find_method(config.method).needs})
    fitting = config.views if keep_views else fitting_views(config.views, work, speed, MAP_SHARE * 60 * minutes)
    views = max(fitting, int(needs_view))
    changes: Flat = {"views": views} if views != config.views else {}
    seconds -= map_seconds(views, work, speed)
    # Evaluation and labeling take a share of every step: the number of steps decides how often they happen.
    num_steps = 0
    for steps in step_choices(config.settings.fewest_steps(), seconds / speed.step):
        settings = config.settings.model_copy(update=config.settings.with_steps(steps) or {})
        extra = settings.num_evaluations() * work.scored + settings.num_labelings() * work.unlabeled
        if steps * speed.step + extra * speed.image <= seconds:
            num_steps = steps
    if num_steps:
        changes |= config.settings.with_steps(num_steps) or {}
        total = 60 * minutes * (1 - RESERVE)
        end = time.strftime("%H:%M", time.localtime(time.time() + total))
        return Budget(
            changes,
            f"{minutes:g} minutes: {num_steps:,} steps of {speed.step:.2f} s"
            + (f" after frozen layers of {views} views" if work.num_trunks else "")
            + f"; expected end {end}",
        )
    if work.num_trunks:
        smallest = replacement(config, "probe", freeze="all", views=0)
        return Budget(smallest, f"{minutes:g} minutes are too few for one cycle here: training a probe instead")
    few = max(1, int(seconds / speed.step))
    plain = replacement(config, "source-only", epochs=1, iterations=few)
    return Budget(plain, f"{minutes:g} minutes are too few for one cycle here: training source-only for {few} steps")


def replacement(config: RunConfig, method: str, **settings: Any) -> Flat:
    """Return the settings of a method that replaces the configured one; it may not support its web-labels."""
    is_supported = config.web_label in find_method(method).web_labels
    return {"method": method, **settings, **({} if is_supported else {"web_label": "ignored"})}


def step_choices(fewest: float, most: float) -> list[int]:
    """Return numbers of steps to try, each a twentieth above the one before, up to `most`."""
    choices, steps = [], float(fewest)
    while steps <= most:
        choices.append(int(steps))
        steps *= 1.05
    return choices


def fitting_views(views: int, work: Work, speed: Speed, seconds: float) -> int:
    """Return the largest number of views, at most `views`, whose maps are computed within `seconds`; at least 0."""
    return max((v for v in range(views + 1) if map_seconds(v, work, speed) <= seconds), default=0)


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
    """Time a few steps, an evaluation and, with a frozen trunk, a few maps."""
    task = problem.task
    pipelines = open_pipelines(config, problem, machine, cache)
    request = product_stage(config, task, Builder(NetworkSettings.of(config), len(task.classes), machine))
    learner: Any = request.learner
    pipeline, map_time = open_maps(learner, problem, pipelines)
    stream = make_stream(request.inputs, request.settings.batch, 0, pipeline)
    stream.draw(0)  # computes the maps that it reads
    learner.nets.train()
    at = Progress(round=1, epoch=0, epochs=1, step=0, steps=NUM_TIMED)
    step = median(seconds_of(lambda: learner.step(stream.draw(0), at)) for _ in range(NUM_TIMED))
    rows = np.arange(min(evaluation_batch(pipeline.device, config.size), len(task.labeled)))
    learner.nets.eval()
    with torch.inference_mode():
        images = task.labeled.images
        image = min(seconds_of(lambda: learner.logits(pipeline.plain(images, rows))) for _ in range(2)) / len(rows)
    return Speed(step, image, map_time)


@dataclass
class ProductRecorder(Planner):
    """A runner that trains nothing and keeps the first stage of the product."""

    request: StageRequest | None = None

    def run_stage(self, request: StageRequest) -> None:
        """Keep the request if it is the first for the product."""
        if request.product and self.request is None:
            self.request = request


def product_stage(config: RunConfig, task: Task, builder: Builder) -> StageRequest:
    """Return the first request to train the product, with the networks and images that the method asks for."""
    recorder = ProductRecorder()
    fit(config, task, recorder, builder.build)
    assert recorder.request is not None
    return recorder.request


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
