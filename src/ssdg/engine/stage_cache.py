"""Finished stages that runs share: a stage that has been computed is not computed again."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..artifact.tensors import Meta
from ..data.hidden import Problem
from ..data.sets import ImageTable, Inputs, digest_of
from ..data.streams import Pipeline
from ..files import atomic_path, locked
from ..machine import Machine
from ..methods.api import Learner, Settings
from .checkpoint import state_tensors
from .loop import Stage


def identity(
    stage: Stage,
    learner: Learner,
    inputs: Inputs,
    settings: Settings,
    pipeline: Pipeline,
    machine: Machine,
    scored: str = "",
) -> str:
    """A hash of all that decides a stage's final bits: equal identities, equal checkpoints.

    The learner counts with its class and every tensor it starts from, so what came before need not be named.
    Where the run lies, its target and its method do not count. `scored` tells what a product is scored on.
    """
    facts: dict[str, Any] = {
        "stage": [stage.key, stage.round, stage.epochs, stage.steps_per_epoch, stage.seed],
        "learner": [type(learner).__module__, type(learner).__qualname__],
        "settings": settings.model_dump(mode="json"),
        "rate": stage.rate.scale,
        "images": [pipeline.kind, pipeline.num_classes, pipeline.world],
        "machine": [machine.device.type, machine.precision, torch.get_num_threads(), torch.__version__],
    }
    return digest_of(json.dumps(facts, sort_keys=True), inputs.fingerprint, start_digest(learner), scored)


def start_digest(learner: Learner) -> str:
    """A hash of the names and values of all tensors of networks and optimizers."""
    sha = hashlib.sha256()
    for name, tensor in sorted(state_tensors(learner).items()):
        sha.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        sha.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:32]


def scored_data(problem: Problem, watched: ImageTable | None = None) -> str:
    """A hash of the held-out images, all targets and the unlabeled images that a product is scored on."""
    held = problem.validation.fingerprint if problem.validation is not None else ""
    targets = [problem.target, *problem.others] if problem.target is not None else []
    unlabeled = [watched.fingerprint] if watched is not None else []
    return digest_of(held, *sorted(target.fingerprint for target in targets), *unlabeled)


def aim(meta: Meta, target: str) -> None:
    """Let the epochs of a shared stage tell the scores on this run's own target."""
    for row in meta["history"]:
        if target in row.get("others", {}):
            row["target"] = row["others"][target]


@dataclass(frozen=True)
class Shelf:
    """A folder of finished stages by their identity."""

    folder: Path

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Hold the stage of this identity: another process that wants it waits, and then finds it."""
        with locked(self.folder / f"{name}.lock"):
            yield

    def fetch(self, name: str, path: Path) -> bool:
        """Put the stage into a run's own folder, if it is here."""
        return put_file(self.folder / f"{name}.safetensors", path)

    def keep(self, name: str, path: Path) -> None:
        """Put a finished stage here."""
        put_file(path, self.folder / f"{name}.safetensors")


def put_file(source: Path, path: Path) -> bool:
    """Let `path` be the file too, whole or not there; says whether there was one.

    A second name where the file system allows it, else a copy: checkpoints are replaced and never changed in place.
    """
    if not source.exists():
        return False
    with atomic_path(path) as temporary:
        temporary.unlink()
        try:
            temporary.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, temporary)
    return True
