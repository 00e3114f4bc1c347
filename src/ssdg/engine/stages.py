"""The runner that trains and labels: stages with keys, each of which can be killed and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from pydantic import ValidationError
from torch import nn

from ..artifact.tensors import read_meta
from ..data.hidden import Problem
from ..data.sets import ImageTable, PseudoLabels
from ..data.sources.npz import open_arrays
from ..errors import ZIP_ERRORS, UserError, one_line
from ..files import atomic_path, open_file
from ..machine import Machine, return_freed_memory
from ..methods.api import LabelRequest, Learner, Rule, StageRequest
from ..profiling import timed
from ..schema import Audit, StageMeta, damaged, first_problem, stage_name, to_json
from ..seeds import derive_seed
from .audit import audit_labels
from .batches import images_per_step, make_stream, steps_per_epoch
from .checkpoint import load_optimizers, load_state
from .events import Events
from .loop import Clock, LearningRate, Stage, emit_epoch, run_steps
from .pipelines import Pipelines
from .samples import FinishedStage
from .scores import accuracies, all_logits, mean_probs, unsupervised_scores
from .stage_cache import StageCache, scored_data, stage_identity, use_target_scores

RECOMPUTE = "delete it and run the same command again"


@dataclass(eq=False)
class StageTrainer:
    """Trains stages and labels pools, or reads what an earlier process of the same run has finished."""

    folder: Path
    seed: int
    problem: Problem
    pipelines: Pipelines
    machine: Machine
    events: Events
    clock: Clock
    cache: StageCache | None = None
    watched: ImageTable | None = None  # unlabeled images on which the product is scored after each epoch
    on_stage: Callable[[FinishedStage], None] = lambda stage: None  # called in the main process after every stage
    resting: WeakKeyDictionary[nn.Module, Path] = field(default_factory=WeakKeyDictionary)  # file with the momentum
    stage_keys: WeakKeyDictionary[nn.Module, str] = field(default_factory=WeakKeyDictionary)  # last stage by networks
    metas: dict[str, StageMeta] = field(default_factory=dict)  # by stage file name, in order
    requests: dict[str, StageRequest] = field(default_factory=dict)  # by stage file name, in order
    audits: list[Audit] = field(default_factory=list)

    def run_stage(self, request: StageRequest) -> None:
        """Train, or continue to train, the learner of a stage."""
        stage, learner, inputs = self._stage(request), request.learner, request.inputs
        self._wake(learner)
        with self._from_cache(stage, request) as is_cached:
            meta = self._start(stage, request)
            for row in meta.history if is_cached else ():
                emit_epoch(stage, row, self.events)
            self.metas[stage.path.stem], self.requests[stage.path.stem] = meta, request
            was_finished = meta.finished
            if not was_finished:
                stream = make_stream(inputs, request.settings.batch, stage.seed, self.pipelines.of(learner))
                after: Callable[[], dict[str, Any]] = (lambda: self._scores(learner)) if request.product else dict
                run_steps(stage, learner, stream, meta, after, self.clock, self.events)
        if self.machine.is_main:
            with timed("samples"):
                self.on_stage(FinishedStage(request, stage.seed, meta))
        self.machine.wait()
        self.stage_keys[learner.nets] = request.key
        self._rest(learner, stage.path)
        counts = {"seconds": meta.seconds, "steps": stage.steps, "found": was_finished}
        self.events.emit("trained", key=request.key, round=request.round, **counts)

    def run_labeling(self, request: LabelRequest) -> PseudoLabels:
        """Label the pool, or read the labels that exist, and audit them."""
        path = labels_path(self.folder, request)
        was_labeled = path.exists()
        if not was_labeled and self.machine.is_main:
            with timed("labeling"):
                save_labels(path, apply_rule(self._label_logits(request), request.rule))
            return_freed_memory()
        self.machine.wait()
        labels = load_labels(path, len(request.pool))
        audit = make_audit(request, labels, self.problem, self.stage_keys.get(request.learner.nets, ""))
        self.audits.append(audit)
        self.events.emit("labeled", **to_json(audit), **{"found": was_labeled})
        return labels

    def _label_logits(self, request: LabelRequest) -> torch.Tensor:
        """Return the logits that a rule decides on; randomized views count as further networks."""
        pipeline = self.pipelines.of(request.learner)
        num_views = min(request.views, pipeline.num_views)
        images = request.pool.images
        return torch.cat([all_logits(request.learner, images, pipeline, view) for view in range(num_views + 1)])

    def _rest(self, learner: Learner, path: Path) -> None:
        """Free the gradients and the momentum of a learner while others train; the momentum is in its checkpoint."""
        learner.nets.zero_grad()
        for optimizer in learner.opts.values():
            optimizer.state.clear()
        self.resting[learner.nets] = path
        return_freed_memory()

    def _wake(self, learner: Learner) -> None:
        if path := self.resting.pop(learner.nets, None):
            load_optimizers(path, learner)

    @contextmanager
    def _from_cache(self, stage: Stage, request: StageRequest) -> Iterator[bool]:
        """Fetch the stage if another run has cached it, otherwise cache it once it is finished.

        The product's stage holds scores, so only runs scored on the same images share it. A stage that has started
        is not shared. Yields whether the stage was fetched.
        """
        is_local = self.machine.world > 1 or stage.path.exists()
        if self.cache is None or is_local:
            yield False
            return
        scored = scored_data(self.problem, self.watched) if request.product else ""
        name = stage_identity(stage, request, self.pipelines.of(request.learner), self.machine, scored)
        with self.cache.lock(name):
            is_cached = self.cache.fetch(name, stage.path)
            yield is_cached
            if not is_cached:
                self.cache.store(name, stage.path)

    def _stage(self, request: StageRequest) -> Stage:
        settings = request.settings
        return Stage(
            key=request.key,
            round=request.round,
            epochs=settings.epochs,
            steps_per_epoch=steps_per_epoch(request.inputs, settings),
            seed=derive_seed(self.seed, request.round, request.key),
            images_per_step=images_per_step(request.inputs, settings.batch),
            path=stage_path(self.folder, request),
            rate=LearningRate(request.lr_scale, settings.lr_shape, request.span),
        )

    def _start(self, stage: Stage, request: StageRequest) -> StageMeta:
        """Return the state to continue from: the checkpoint's, or a new one."""
        meta, fingerprint = read_stage_meta(stage.path), request.inputs.fingerprint
        if meta is None:
            return StageMeta(
                key=stage.key,
                round=stage.round,
                product=request.product,
                inputs=fingerprint,
                step=0,
                steps=stage.steps,
                images_per_step=stage.images_per_step,
                finished=False,
                seconds=0.0,
                sums={},
                history=[],
            )
        if meta.inputs != fingerprint or meta.steps != stage.steps:
            raise UserError(
                f"{stage.path} was computed from other data or settings; give another --out, or delete the run folder"
            )
        load_state(stage.path, request.learner)
        if self.problem.target is not None:
            use_target_scores(meta, self.problem.target.fingerprint)
        return meta

    def _scores(self, learner: Learner) -> dict[str, Any]:
        """Score on unlabeled images, held-out labeled images and the target; no score reaches the method."""
        scores: dict[str, Any] = {}
        target, validation = self.problem.target, self.problem.validation
        if not self.machine.is_main:
            return scores
        pipeline = self.pipelines.of(learner)
        if self.watched is not None:
            scores["unsupervised"] = unsupervised_scores(learner, self.watched, pipeline)
        if validation is not None and len(validation):
            logits = all_logits(learner, validation.images, pipeline)
            scores["validation"] = accuracies(logits, validation.y)
        if target is not None and target.is_labeled:
            scores["target"] = accuracies(all_logits(learner, target.images, pipeline), target.y)
            scores |= self._other_scores(learner, {target.fingerprint: scores["target"]})
        return scores

    def _other_scores(self, learner: Learner, scores: dict[str, Any]) -> dict[str, Any]:
        """Add the scores that runs with other targets read from a shared stage; `scores` are this run's."""
        if not self.problem.others:
            return {}
        pipeline = self.pipelines.of(learner)
        for other in self.problem.others:
            scores[other.fingerprint] = accuracies(all_logits(learner, other.images, pipeline), other.y)
        return {"others": scores}


def read_stage_meta(path: Path) -> StageMeta | None:
    """Return the metadata of a checkpoint, or None if there is none."""
    meta = read_meta(path)
    try:
        return None if meta is None else StageMeta.model_validate(meta)
    except ValidationError as error:
        raise damaged(path, first_problem(error), RECOMPUTE) from None


def stage_path(folder: Path, request: StageRequest) -> Path:
    """Return the checkpoint of a stage."""
    return folder / "stages" / f"{stage_name(request.key, request.round)}.safetensors"


def labels_path(folder: Path, request: LabelRequest) -> Path:
    """Return the file of a labeling."""
    return folder / "labels" / f"{stage_name(request.key, request.round)}.npz"


def make_audit(request: LabelRequest, labels: PseudoLabels, problem: Problem, stage: str) -> Audit:
    """Compare labels with the hidden truth; `stage` is the key of the stage whose learner assigned them."""
    return Audit(
        key=request.key,
        round=request.round,
        kind=request.kind,
        title=request.title,
        stage=stage,
        domains=audit_labels(labels, request.pool, problem),
    )


def apply_rule(logits: torch.Tensor, rule: Rule) -> PseudoLabels:
    """Turn (networks, n, K) logits into labels."""
    y, keep = rule(logits)
    probs = mean_probs(logits)
    confidence = probs.gather(1, y[:, None]).squeeze(1)
    votes = logits.argmax(-1)
    return PseudoLabels(y.numpy(), keep.numpy(), confidence.numpy(), votes.numpy(), probs.half().numpy())


def save_labels(path: Path, labels: PseudoLabels) -> None:
    """Write labels as a plain .npz, atomically."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        arrays = {name: value for name, value in vars(labels).items() if value is not None}
        np.savez(file, **arrays)


def load_labels(path: Path, count: int) -> PseudoLabels:
    """Read what `save_labels` wrote; nothing in it is executed."""
    try:
        with open_file(path) as opened, open_arrays(opened) as arrays:  # a zip, which has checksums
            y, keep, confidence, votes = map(arrays.read, ("y", "keep", "confidence", "votes"))
            labels = PseudoLabels(y, keep, confidence, votes, arrays.read("probs") if "probs" in arrays else None)
    except (OSError, KeyError, TypeError, AttributeError, *ZIP_ERRORS) as error:
        raise damaged(path, one_line(str(error)), RECOMPUTE) from None
    if len(labels.y) != count:
        raise UserError(f"{path} labels {len(labels.y)} images where the pool has {count}; delete the run folder")
    return labels
