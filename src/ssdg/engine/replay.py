"""Replay a run from its files: the networks and data of every stage, with nothing trained and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

from torch import nn

from ..config import RunConfig
from ..data.hidden import Problem
from ..data.sets import PseudoLabels
from ..discovery.discover import known_domains
from ..errors import UserError
from ..machine import Machine, start_machine
from ..methods.api import LabelRequest, StageRequest
from ..schema import Audit, read_run_file
from ..seeds import derive_seed
from .checkpoint import load_state
from .pipelines import Pipelines, open_pipelines
from .plan import fit
from .run import Builder, NetworkSettings
from .samples import FinishedStage
from .setup import default_cache, name_plugin, open_settings
from .stages import labels_path, load_labels, make_audit, read_stage_meta, stage_path


@dataclass(frozen=True, eq=False)
class PastRun:
    """A run folder opened for reading: its settings, its images, and where and from what to compute."""

    folder: Path
    config: RunConfig
    problem: Problem
    machine: Machine
    pipelines: Pipelines

    def replay(self, on_stage: Callable[[FinishedStage], None]) -> list[Audit]:
        """Pass every stage to `on_stage` in training order; return the audits of all pseudo-labels."""
        runner = ReplayRunner(self.folder, self.config.seed, self.problem, on_stage)
        builder = Builder(NetworkSettings.of(self.config), len(self.problem.task.classes), self.machine)
        fit(self.config, self.problem.task, runner, builder.build)
        return runner.audits


@dataclass(frozen=True, eq=False)
class ReplayRunner:
    """A runner that reads from the run folder what the run has computed."""

    folder: Path
    seed: int
    problem: Problem
    on_stage: Callable[[FinishedStage], None]
    audits: list[Audit] = field(default_factory=list)
    stage_keys: WeakKeyDictionary[nn.Module, str] = field(default_factory=WeakKeyDictionary)

    def run_stage(self, request: StageRequest) -> None:
        """Load the stage's final state, which must have been computed from these inputs."""
        path = stage_path(self.folder, request)
        meta = read_stage_meta(path)
        if meta is None or not meta.finished:
            raise self._unfinished(path)
        if meta.inputs != request.inputs.fingerprint:
            raise UserError(f"{path} was computed from other data or settings than {self.folder} now has")
        load_state(path, request.learner)
        self.stage_keys[request.learner.nets] = request.key
        self.on_stage(FinishedStage(request, derive_seed(self.seed, request.round, request.key), meta))

    def run_labeling(self, request: LabelRequest) -> PseudoLabels:
        """Return the labels that the run used."""
        path = labels_path(self.folder, request)
        if not path.exists():
            raise self._unfinished(path)
        labels = load_labels(path, len(request.pool))
        self.audits.append(make_audit(request, labels, self.problem, self.stage_keys.get(request.learner.nets, "")))
        return labels

    def _unfinished(self, path: Path) -> UserError:
        return UserError(
            f"the run in '{self.folder}' has not finished {path.parent.name}/{path.name}; "
            f"let it end: ssdg resume {self.folder}"
        )


def open_past_run(
    folder: Path, *, cache: Path | None = None, device: str = "auto", plugin: Path | None = None
) -> PastRun:
    """Open a run folder with the settings it was started with; its images must be those it was trained on.

    The run's plugin is executed only if it is named here or its content was confirmed before.
    """
    run_file = read_run_file(folder)
    settings = name_plugin(run_file.config, plugin)
    cache = cache or Path(run_file.options.cache or default_cache())
    config, problem = open_settings(settings, cache, device=device)
    if problem.fingerprint != run_file.fingerprint:
        raise UserError(f"the images have changed since the run in {folder}; restore them, or train again")
    if config.discover_domains is not None:
        problem = known_domains(config, problem, folder).problem
    machine = start_machine(device, config.precision)
    return PastRun(folder, config, problem, machine, open_pipelines(config, problem, machine, cache))
