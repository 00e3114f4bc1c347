"""The Trainer that methods get: stages with keys, each of which can be killed and continued."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from ..artifact.tensors import Meta, read_meta
from ..data.hidden import Problem
from ..data.sets import ImageTable, Inputs, PseudoLabels, UnlabeledSet, digest_of
from ..data.streams import Pipeline
from ..errors import UserError
from ..files import atomic_path
from ..machine import Machine, return_freed_memory
from ..methods.api import Learner, Rule, Settings
from ..profiling import timed
from ..seeds import derive_seed
from .audit import audit_labels
from .batches import images_per_step, make_stream, steps_per_epoch
from .checkpoint import load_optimizers, load_state
from .events import Events
from .features import Passed
from .loop import Clock, Rate, Stage, run_steps, tell_epoch
from .scores import accuracies, all_logits, mean_probs, unsupervised_scores
from .stage_cache import Shelf, aim, identity, scored_data

LONGEST_NAME = 100  # characters; file systems allow 255, of which a temporary file's ending takes some


@dataclass(eq=False)
class StageTrainer:
    """Trains and labels, and finds what an earlier process of the same run has done already."""

    folder: Path
    seed: int
    problem: Problem
    pipeline: Pipeline
    machine: Machine
    events: Events
    clock: Clock
    shelf: Shelf | None = None
    watched: ImageTable | None = None  # unlabeled images that the product is scored on after each epoch
    look: Callable[[Passed], None] = lambda stage: None  # shown every stage that is over, in the main process
    resting: WeakKeyDictionary[nn.Module, Path] = field(default_factory=WeakKeyDictionary)  # networks and momentum
    metas: dict[str, Meta] = field(default_factory=dict)  # by stage file name, in order
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
        """See `ssdg.methods.api.Trainer`."""
        stage = self._stage(key, round, inputs, settings, lr_scale)
        self._wake(learner)
        with self._from_shelf(stage, learner, inputs, settings, product) as is_shared:
            meta = self._start(stage, learner, inputs.fingerprint, product)
            for row in meta["history"] if is_shared else ():
                tell_epoch(stage, row, self.events)
            self.metas[stage.path.stem] = meta
            was_finished = bool(meta["finished"])
            if not was_finished:
                stream = make_stream(inputs, settings.batch, stage.seed, self.pipeline)
                after: Callable[[], dict[str, Any]] = (lambda: self._scores(learner)) if product else dict
                run_steps(stage, learner, stream, meta, after, self.clock, self.events)
        if self.machine.is_main:
            with timed("samples"):
                self.look(Passed(key, round, learner, inputs, settings, stage.seed, product, meta))
        self.machine.wait()
        self._rest(learner, stage.path)
        done = {"seconds": meta["seconds"], "steps": stage.steps, "found": was_finished}
        self.events.emit("trained", key=key, round=round, **done)

    def label(self, key: str, learner: Learner, pool: UnlabeledSet, rule: Rule, *, round: int) -> PseudoLabels:
        """See `ssdg.methods.api.Trainer`."""
        path = self.folder / "labels" / f"{stage_name(key, round)}.npz"
        was_labeled = path.exists()
        if not was_labeled and self.machine.is_main:
            with timed("labeling"):
                save_labels(path, apply_rule(all_logits(learner, pool.images, self.pipeline), rule))
            return_freed_memory()
        self.machine.wait()
        labels = load_labels(path, len(pool))
        report = {"key": key, "round": round, "domains": audit_labels(labels, pool, self.problem)}
        self.audits.append(report)
        self.events.emit("labeled", **report, found=was_labeled)
        return labels

    def _rest(self, learner: Learner, path: Path) -> None:
        """While others train, a learner keeps its networks alone: no gradients, and its momentum lies in the file."""
        learner.nets.zero_grad()
        for optimizer in learner.opts.values():
            optimizer.state.clear()
        self.resting[learner.nets] = path
        return_freed_memory()

    def _wake(self, learner: Learner) -> None:
        if path := self.resting.pop(learner.nets, None):
            load_optimizers(path, learner)

    @contextmanager
    def _from_shelf(
        self,
        stage: Stage,
        learner: Learner,
        inputs: Inputs,
        settings: Settings,
        product: bool,
    ) -> Iterator[bool]:
        """Fetch the stage if another run has left it on the shelf, else leave it there once it is done.

        The product's stage holds scores: it is shared by runs that are scored on the same images. One that was begun
        is not shared. Yields whether it was fetched.
        """
        scored = scored_data(self.problem, self.watched) if product else ""
        is_alone = self.machine.world > 1 or stage.path.exists()
        if self.shelf is None or is_alone:
            yield False
            return
        name = identity(stage, learner, inputs, settings, self.pipeline, self.machine, scored)
        with self.shelf.turn(name):
            found = self.shelf.fetch(name, stage.path)
            yield found
            if not found:
                self.shelf.keep(name, stage.path)

    def _stage(self, key: str, round: int, inputs: Inputs, settings: Settings, lr_scale: float) -> Stage:
        return Stage(
            key=key,
            round=round,
            epochs=settings.epochs,
            steps_per_epoch=steps_per_epoch(inputs, settings),
            seed=derive_seed(self.seed, round, key),
            images_per_step=images_per_step(inputs, settings.batch),
            path=self.folder / "stages" / f"{stage_name(key, round)}.safetensors",
            rate=Rate(lr_scale, settings.lr_shape),
        )

    def _start(self, stage: Stage, learner: Learner, inputs: str, product: bool) -> Meta:
        """The state to go on from: the checkpoint's, or a new one."""
        meta = read_meta(stage.path)
        if meta is None:
            new = {"key": stage.key, "round": stage.round, "product": product, "inputs": inputs}
            count = {"step": 0, "steps": stage.steps, "images_per_step": stage.images_per_step}
            return {**new, **count, "finished": False, "seconds": 0.0, "sums": {}, "history": []}
        if meta["inputs"] != inputs or meta["steps"] != stage.steps:
            raise UserError(
                f"{stage.path} was computed from other data or settings; give another --out, or delete the run folder"
            )
        load_state(stage.path, learner)
        if self.problem.target is not None:
            aim(meta, self.problem.target.fingerprint)
        return meta

    def _scores(self, learner: Learner) -> dict[str, Any]:
        """On unlabeled images, on held-out labeled ones and on the target; nothing of it reaches the method."""
        scores: dict[str, Any] = {}
        target, validation = self.problem.target, self.problem.validation
        if not self.machine.is_main:
            return scores
        if self.watched is not None:
            scores["unsupervised"] = unsupervised_scores(learner, self.watched, self.pipeline)
        if validation is not None and len(validation):
            logits = all_logits(learner, validation.images, self.pipeline)
            scores["validation"] = accuracies(logits, validation.y)
        if target is not None and target.is_labeled:
            scores["target"] = accuracies(all_logits(learner, target.images, self.pipeline), target.y)
            scores |= self._scores_of_others(learner, {target.fingerprint: scores["target"]})
        return scores

    def _scores_of_others(self, learner: Learner, scores: dict[str, Any]) -> dict[str, Any]:
        """What runs with other targets find in a shared stage; `scores` are those of this run's own."""
        if not self.problem.others:
            return {}
        for other in self.problem.others:
            scores[other.fingerprint] = accuracies(all_logits(learner, other.images, self.pipeline), other.y)
        return {"others": scores}


def stage_name(key: str, round: int) -> str:
    """A file name for a stage; unlike keys stay unlike."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", key)[:LONGEST_NAME]
    suffix = "" if plain.replace("-", "/") == key else f"-{digest_of(key)[:8]}"
    return f"{round}-{plain}{suffix}"


def apply_rule(logits: torch.Tensor, rule: Rule) -> PseudoLabels:
    """What the rule makes of (networks, n, K) logits."""
    y, keep = rule(logits)
    confidence = mean_probs(logits).gather(1, y[:, None]).squeeze(1)
    return PseudoLabels(y.numpy(), keep.numpy(), confidence.numpy(), logits.argmax(-1).numpy())


def save_labels(path: Path, labels: PseudoLabels) -> None:
    """Write labels as a plain .npz, atomically."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, y=labels.y, keep=labels.keep, confidence=labels.confidence, votes=labels.votes)


def load_labels(path: Path, count: int) -> PseudoLabels:
    """Read what `save_labels` wrote; nothing in it is executed."""
    with np.load(path, allow_pickle=False) as file:
        labels = PseudoLabels(file["y"], file["keep"], file["confidence"], file["votes"])
    if len(labels.y) != count:
        raise UserError(f"{path} labels {len(labels.y)} images where the pool has {count}; delete the run folder")
    return labels
