"""What a run will take: seconds by phase from the speed of this machine, memory, disk, and the files it writes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...config import RunConfig
from ...data.hidden import Problem
from ...machine import Machine
from ...models.backbones import build_backbone
from ...models.frozen import freeze
from ...schema import ProbeScores, stage_group
from ..pipelines import open_pipelines, tables_of
from ..plan import plan_run
from ..reference_probe import has_probe, score_probe
from ..stages import read_stage_meta
from .speed import FIXED_SECONDS, Speed, Work, measure_speed, work_of

CHEAP_SECONDS = 60.0  # that a dry run may spend on the probe
# What a run folder may hold, the most useful first.
OUTPUTS = ("model", "predictions.csv", "result.json", "probe.json", "events.jsonl", "stages", "labels", "samples")


@dataclass(frozen=True)
class Maps:
    """Maps of frozen layers that a run needs: all, and those that are not stored yet."""

    num_all: int = 0
    num_missing: int = 0
    bytes_each: int = 0


@dataclass(frozen=True)
class Forecast:
    """The speed of this machine and the work of a run: how long each part of it takes."""

    speed: Speed
    work: Work
    num_labeled: int = 0  # images that are labeled, once per labeling and view
    maps: Maps = Maps()

    def step(self, key: str) -> float:
        """Return the seconds of a step of a stage."""
        return self.speed.stages.get(stage_group(key), self.speed.step)

    def training(self, stages: Sequence[Mapping[str, Any]]) -> float:
        """Return the seconds of all steps."""
        return float(sum(stage["steps"] * self.step(stage["key"]) for stage in stages))

    @property
    def evaluation(self) -> float:
        """The seconds of an evaluation, which follows every epoch of the product."""
        return self.work.scored * self.speed.image

    @property
    def labeling(self) -> float:
        """The seconds of all labelings."""
        return self.num_labeled * self.speed.image

    @property
    def frozen(self) -> float:
        """The seconds until all maps of frozen layers are stored."""
        return self.maps.num_missing * self.speed.map

    @property
    def final(self) -> float:
        """The seconds of the final scoring, the thumbnails and the model."""
        return self.evaluation + FIXED_SECONDS

    def parts(self, stages: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return the seconds by phase."""
        evaluations = sum(stage["epochs"] for stage in stages if stage["product"])
        return {
            "frozen layers": self.frozen,
            "training": self.training(stages),
            "evaluation": evaluations * self.evaluation,
            "labeling": self.labeling,
            "final scoring": self.final,
        }

    def total(self, stages: Sequence[Mapping[str, Any]]) -> float:
        """Return the seconds of the whole run."""
        return sum(self.parts(stages).values())


def forecast_run(
    config: RunConfig, problem: Problem, machine: Machine, cache: Path, speed: Speed | None = None
) -> Forecast:
    """Measure the speed of a run, unless it was measured already, and count its work."""
    speed = speed or measure_speed(config, problem, machine, cache)
    maps = count_maps(config, problem, machine, cache)
    return Forecast(speed, work_of(config, problem), plan_run(config, problem.task).num_labeled, maps)


def count_maps(config: RunConfig, problem: Problem, machine: Machine, cache: Path) -> Maps:
    """Count the maps of the product's frozen layers; those of a warm start depend on its weights and are missing."""
    if config.freeze == "none":
        return Maps()
    pipelines = open_pipelines(config, problem, machine, cache)
    backbone: Any = build_backbone(config.backbone, config.weights)
    freeze(backbone, config.freeze, config.batch_norm)
    stored = pipelines.open_trunk(backbone.to(machine.device))
    trained, scored = tables_of(problem, config)
    files = stored.files_of(trained, config.views) + stored.files_of(scored, 0)
    num_missing = sum(len(file.missing(rows)) for file, rows in files)
    return Maps(sum(len(rows) for _, rows in files), num_missing, files[0][0].row_bytes if files else 0)


def cheap_probe(
    config: RunConfig, problem: Problem, machine: Machine, cache: Path, image_seconds: float
) -> ProbeScores | None:
    """Return the scores of the reference probe on held-out labeled images; None if they would take long.

    Its features are stored, and the run uses them again.
    """
    held_out = len(problem.validation) if problem.validation is not None else 0
    if not held_out or not has_probe(config):
        return None
    if (len(problem.task.labeled) + held_out) * image_seconds > CHEAP_SECONDS:
        return None
    labeled = replace(problem, target=None, others=())
    return score_probe(config, labeled, open_pipelines(config, labeled, machine, cache), None, None)


def peak_memory(device: torch.device) -> tuple[int, str] | None:
    """Return the bytes that this process has used at most, and of which memory; None if the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device), "on the GPU"
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit, "of main memory"


def folder_bytes(folder: Path, stages: Sequence[Mapping[str, Any]]) -> int:
    """Return the size of a run folder from that of its dry run, with a checkpoint per planned stage."""
    checkpoints: dict[str, int] = {}
    for path in (folder / "stages").glob("*.safetensors"):
        if (meta := read_stage_meta(path)) is not None:
            checkpoints[stage_group(meta.key)] = path.stat().st_size
    rest = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.parent.name != "stages")
    largest = max(checkpoints.values(), default=0)
    return rest + sum(checkpoints.get(stage_group(stage["key"]), largest) for stage in stages)


def output_names(folder: Path) -> list[str]:
    """Return the files and folders that a run writes, from those of its dry run."""
    return [f"{name}{'/' if (folder / name).is_dir() else ''}" for name in OUTPUTS if (folder / name).exists()]


def image_bytes(problem: Problem) -> int:
    """Return the size of all decoded images of a run in the cache."""
    arrays = {id(array): array for table in all_tables(problem) for array in table.arrays}
    sizes = [array.shape for array in arrays.values()]
    return sum(count * height * width * channels for count, height, width, channels in sizes)


def all_tables(problem: Problem) -> list[Any]:
    """Return the images of all domains."""
    sets = [problem.task.labeled, *problem.task.unlabeled.values(), problem.validation, problem.target]
    return [part.images for part in sets if part is not None]
