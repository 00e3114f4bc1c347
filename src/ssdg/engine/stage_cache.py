"""Finished stages shared between runs: a stage that one run has computed is not computed again."""

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

from ..artifact.tensors import is_intact
from ..data.hidden import Problem
from ..data.sets import ImageTable, digest_of
from ..data.streams import Pipeline
from ..files import atomic_path, locked, remove_free_lock, remove_leftovers
from ..machine import Machine
from ..methods.api import WHOLE, Learner, StageRequest
from ..models.frozen import HeldMode
from ..schema import StageMeta
from .checkpoint import state_tensors
from .loop import Stage


def stage_identity(
    stage: Stage, request: StageRequest, pipeline: Pipeline, machine: Machine, scored: str = ""
) -> str:
    """Return a hash of everything that decides a stage's final bits: equal identities, equal checkpoints.

    The learner counts with its class and every tensor it starts from, so earlier stages need not be named. The run's
    folder, target and method do not count. `scored` identifies the images that a product is scored on.
    """
    learner = request.learner
    stored = [] if pipeline.stored is None else [pipeline.stored.trunk, pipeline.stored.num_views]
    held = [net.train.batch_norm for net in learner.nets.modules() if isinstance(net.train, HeldMode)]
    facts: dict[str, Any] = {
        "stage": [stage.key, stage.round, stage.epochs, stage.steps_per_epoch, stage.seed],
        "learner": [type(learner).__module__, type(learner).__qualname__],
        "settings": request.settings.model_dump(mode="json"),
        "revision": request.settings.revision,
        "rate": stage.rate.scale,
        "images": [pipeline.kind, pipeline.num_classes, pipeline.world, *stored, *held],
        "machine": [machine.device.type, machine.precision, torch.get_num_threads(), torch.__version__],
    }
    facts["size"] = request.inputs.size
    if stage.rate.span != WHOLE:
        facts["span"] = stage.rate.span
    if scored and pipeline.inference != "fp32":
        facts["inference"] = pipeline.inference
    return digest_of(json.dumps(facts, sort_keys=True), request.inputs.fingerprint, start_digest(learner), scored)


def start_digest(learner: Learner) -> str:
    """Return a hash of the names and values of all tensors of networks and optimizers."""
    sha = hashlib.sha256()
    for name, tensor in sorted(state_tensors(learner).items()):
        sha.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        sha.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:32]


def scored_data(problem: Problem, watched: ImageTable | None = None) -> str:
    """Return a hash of the held-out images, all targets and the unlabeled images that a product is scored on."""
    held_out = problem.validation.fingerprint if problem.validation is not None else ""
    targets = [problem.target, *problem.others] if problem.target is not None else []
    unlabeled = [watched.fingerprint] if watched is not None else []
    return digest_of(held_out, *sorted(target.fingerprint for target in targets), *unlabeled)


def use_target_scores(meta: StageMeta, target: str) -> None:
    """Let the epochs of a shared stage report the scores on this run's target."""
    for row in meta.history:
        if target in row.others:
            row.target = row.others[target]


@dataclass(frozen=True)
class StageCache:
    """A folder of finished stages by their identity."""

    folder: Path

    def __post_init__(self) -> None:
        """Remove what killed processes left, whose stages continue without the shelf."""
        remove_leftovers(self.folder / "*")
        for lock in self.folder.glob("*.lock"):
            remove_free_lock(lock)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Lock a stage: another process that needs it waits, and then finds it."""
        with locked(self.folder / f"{name}.lock"):
            yield

    def fetch(self, name: str, path: Path) -> bool:
        """Put the stage into a run's folder, if it is cached; return whether it was. A damaged one is removed."""
        cached = self.folder / f"{name}.safetensors"
        if cached.exists() and not is_intact(cached):
            cached.unlink()
        return link_or_copy(cached, path)

    def store(self, name: str, path: Path) -> None:
        """Add a finished stage."""
        link_or_copy(path, self.folder / f"{name}.safetensors")


def link_or_copy(source: Path, path: Path) -> bool:
    """Make `path` a copy of `source`, atomically; return whether `source` exists.

    A hard link where the file system allows it: checkpoints are replaced and never changed in place.
    """
    if not source.exists():
        return False
    with atomic_path(path) as temporary:
        try:
            temporary.hardlink_to(source)
        except OSError:
            shutil.copyfile(source, temporary)
    return True
