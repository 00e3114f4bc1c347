"""The report of a dry run: steps, time, memory, disk, outputs, and the accuracy of the reference probe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...config import RunConfig
from ...data.hidden import Problem
from ...errors import count_noun
from ...machine import Machine
from ...schema import to_json
from ..plan import plan
from .forecast import (
    Forecast,
    cheap_probe,
    folder_bytes,
    image_bytes,
    output_names,
    peak_memory,
)


def dry_run_lines(
    config: RunConfig,
    problem: Problem,
    machine: Machine,
    forecast: Forecast,
    scratch: Path,
    folder: Path,
    cache: Path,
    probe: bool,
) -> list[str]:
    """Return what the whole run takes, one line per question; `scratch` is the folder of the dry run."""
    stages = [to_json(stage) for stage in plan(config, problem.task)]
    in_folder = f"{human_bytes(folder_bytes(scratch, stages))} in {folder}"
    lines = {
        "steps": describe_steps(stages),
        "time": describe_time(forecast.parts(stages)),
        "memory": describe_memory(machine),
        "disk": f"{in_folder}, {describe_cache(problem, forecast, cache)}",
        "probe": describe_probe(config, problem, machine, cache, forecast) if probe else "",
        "outputs": f"{', '.join(output_names(scratch))} in {folder}",
    }
    return [f"  {name:<9} {text}" for name, text in lines.items() if text]


def describe_steps(stages: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of steps, in all and by kind of stage."""
    groups: dict[str, int] = {}
    for stage in stages:
        name = stage["group"] or stage["title"]
        groups[name] = groups.get(name, 0) + stage["steps"]
    total = f"{sum(groups.values()):,} in {count_noun(len(stages), 'stage')}"
    return total if len(groups) < 2 else f"{total}: {', '.join(f'{name} {n:,}' for name, n in groups.items())}"


def describe_time(parts: Mapping[str, float]) -> str:
    """Return the time of the whole run on this machine, and of its phases."""
    phases = [f"{name} {human_time(seconds)}" for name, seconds in parts.items() if seconds >= 0.5]
    return f"about {human_time(sum(parts.values()))} on this machine ({', '.join(phases)})"


def describe_memory(machine: Machine) -> str:
    """Return the peak of this process, which has trained with batches of the full size."""
    peak = peak_memory(machine.device)
    return f"{human_bytes(peak[0])} {peak[1]} at the peak" if peak else ""


def describe_cache(problem: Problem, forecast: Forecast, cache: Path) -> str:
    """Return the size of decoded images and of maps in the cache, and how much of it is not written yet."""
    maps = forecast.maps
    total = image_bytes(problem) + maps.num_all * maps.bytes_each
    missing = maps.num_missing * maps.bytes_each
    text = f"{human_bytes(total)} in the cache {cache}"
    return f"{text} ({human_bytes(missing)} still to write)" if missing else text


def describe_probe(config: RunConfig, problem: Problem, machine: Machine, cache: Path, forecast: Forecast) -> str:
    """Return the accuracy that the run should exceed; empty if there is no probe or it takes long."""
    scores = cheap_probe(config, problem, machine, cache, forecast.speed.image)
    if scores is None or scores.validation is None or problem.validation is None:
        return ""
    held_out = f"{len(problem.validation):,} held-out labeled images"
    return f"{scores.validation:.2f} % on {held_out}: a linear classifier on the pretrained features"


def human_time(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def human_bytes(count: float) -> str:
    """Return a size in the unit that suits it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"
