"""A run gone through again from its files: networks and data of every stage, nothing trained, nothing written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..artifact.tensors import read_meta
from ..config import RunConfig
from ..data.hidden import Problem
from ..data.sets import Inputs, PseudoLabels, UnlabeledSet
from ..discovery.discover import known_domains
from ..errors import UserError
from ..machine import Machine, start_machine
from ..methods.api import Learner, Rule, Settings
from ..seeds import derive_seed
from .audit import audit_labels
from .checkpoint import load_state
from .features import Passed
from .plan import fit
from .run import Builder, read_claim
from .setup import default_cache, open_run
from .stages import load_labels, stage_name


@dataclass(frozen=True, eq=False)
class Past:
    """A run folder opened for looking: its settings, its images, where to compute."""

    folder: Path
    config: RunConfig
    problem: Problem
    machine: Machine

    def replay(self, look: Callable[[Passed], None]) -> list[dict[str, Any]]:
        """Show every stage in the order of training; returns the audits of all pseudo-labels."""
        trainer = Replayer(self.folder, self.config.seed, self.problem, look)
        build = Builder(self.config, len(self.problem.task.classes), self.machine)
        fit(self.config, self.problem.task, trainer, build)
        return trainer.audits


@dataclass(frozen=True, eq=False)
class Replayer:
    """A Trainer that takes from the run folder what the run has computed."""

    folder: Path
    seed: int
    problem: Problem
    look: Callable[[Passed], None]
    audits: list[dict[str, Any]] = field(default_factory=list)

    def train(
        self,
        key: str,
        learner: Learner,
        inputs: Inputs,
        settings: Settings,
        *,
        round: int = 1,
        lr_scale: float = 1.0,
        product: bool = False,
    ) -> None:
        """Load the stage's final state, which must have been computed from these inputs."""
        path = self.folder / "stages" / f"{stage_name(key, round)}.safetensors"
        meta = read_meta(path)
        if meta is None or not meta["finished"]:
            raise self._missing(path)
        if meta["inputs"] != inputs.fingerprint:
            raise UserError(f"{path} was computed from other data or settings than {self.folder} now has")
        load_state(path, learner)
        seed = derive_seed(self.seed, round, key)
        self.look(Passed(key, round, learner, inputs, settings, seed, product, meta))

    def label(self, key: str, learner: Learner, pool: UnlabeledSet, rule: Rule, *, round: int) -> PseudoLabels:
        """The labels of that time."""
        path = self.folder / "labels" / f"{stage_name(key, round)}.npz"
        if not path.exists():
            raise self._missing(path)
        labels = load_labels(path, len(pool))
        self.audits.append({"key": key, "round": round, "domains": audit_labels(labels, pool, self.problem)})
        return labels

    def _missing(self, path: Path) -> UserError:
        return UserError(
            f"the run in '{self.folder}' has not finished {path.parent.name}/{path.name}; "
            f"let it end: ssdg resume {self.folder}"
        )


def open_past(folder: Path, *, cache: Path | None = None, device: str = "auto") -> Past:
    """Open a run folder with the settings it was started with; its images must be those it was trained on."""
    told = read_claim(folder)
    place = cache or told.get("options", {}).get("cache") or default_cache()
    config, problem = open_run(told["config"], Path(place), device=device)
    if problem.fingerprint != told["fingerprint"]:
        raise UserError(f"the images have changed since the run in {folder}; restore them, or train anew")
    if config.discover_domains is not None:
        problem = known_domains(config, problem, folder).problem
    return Past(folder, config, problem, start_machine(device, config.precision))
