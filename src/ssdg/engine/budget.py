"""A run of a given number of minutes: measure the speed of this machine, then choose views and steps."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config import RUN_KEYS, Flat, RunConfig
from ..data.hidden import Problem
from ..errors import UserError
from ..machine import Machine
from ..methods import find_method
from ..methods.api import VIEWS
from ..schema import read_run_file
from .run import check_needs
from .setup import open_settings, with_full_paths
from .timing.speed import FIXED_SECONDS, Speed, Work, map_seconds, measure_speed, work_of

MAX_MINUTES = 60 * 24 * 365
RESERVE = 0.1  # of the minutes: speeds vary
MAP_SHARE = 0.5  # of the minutes that frozen layers may take at most


@dataclass(frozen=True)
class Budget:
    """Settings that fit the minutes, and the message to the user."""

    settings: Flat
    note: str
    speed: Speed | None = None  # measured
    end: str = ""  # when the run is expected to end, such as 17:05


def fit_minutes(
    config: RunConfig, problem: Problem, machine: Machine, cache: Path, minutes: float, *, keep_views: bool = False
) -> Budget:
    """Return the settings with which the run takes about `minutes`, most of it training."""
    check_minutes(config, minutes)
    check_needs(find_method(config.method), problem, config, machine.world)
    speed = measure_speed(config, problem, machine, cache)
    budget = choose_settings(config, work_of(config, problem), speed, minutes, keep_views=keep_views)
    return replace(budget, speed=None if "method" in budget.settings else speed)


@dataclass(frozen=True)
class TimedRun:
    """A run whose settings fit a number of minutes; `note` is empty if they were chosen when it was started."""

    config: RunConfig
    problem: Problem
    chosen: Flat
    note: str
    speed: Speed | None = None  # if it was measured now
    end: str = ""


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
    note, speed, end = "", None, ""
    if (folder / "run.json").exists():
        started = read_run_file(folder).options
        check_same_minutes(folder, started.minutes, minutes)
        chosen = started.chosen
    else:
        check_free(settings, config)
        budget = fit_minutes(config, problem, machine, cache, minutes, keep_views="views" in settings)
        chosen = json.loads(machine.same(json.dumps(budget.settings)))  # every process has its own speed
        note, speed, end = budget.note, budget.speed, budget.end
    if "method" in chosen:  # too little time for the method: its settings have no meaning
        settings = {key: value for key, value in settings.items() if key in RUN_KEYS}
    opened = open_settings({**with_full_paths(settings), **chosen}, cache, device=device)
    return TimedRun(*opened, chosen, note, speed, end)


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
            + (f" after frozen layers of {views} views" if work.num_trunks else ""),
            end=end,
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
