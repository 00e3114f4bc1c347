"""The training loop: the learning rate of each step, the steps, and when to save, show and stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event as Flag
from typing import Any

import torch
from torch import Tensor

from ..data.streams import BatchStream
from ..errors import NotFinite, Stopped
from ..machine import Machine
from ..methods.api import WHOLE, Learner, LrShape, Progress, Span, schedule_position
from ..profiling import current_profile, timed
from ..schema import HistoryRow, StageMeta, to_json
from ..seeds import derive_seed
from .checkpoint import is_finite, save_state
from .events import Events

WARM_UP = 0.1  # of the steps


def hump(step: float, steps: float) -> float:
    """Return a factor on the learning rate: linear warm-up over a tenth of the steps, then half a cosine to zero.

    A new head on trained features sends large gradients at first, which a high rate would follow anywhere. What a
    stage leaves behind are the labels and weights of its last step, which a low rate stabilizes.
    """
    warm_up = max(1, round(WARM_UP * steps))
    if step < warm_up:
        return min(1.0, (step + 1) / warm_up)  # a stage within a schedule may begin between two whole steps
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / (steps - warm_up)))


def inverse(step: float, steps: float) -> float:
    """Return (1 + 0.001 · step)^−0.75: the decay of CDAN's release, whatever the number of steps."""
    return float((1 + 0.001 * step) ** -0.75)


SHAPES: dict[LrShape, Callable[[float, float], float]] = {
    "fixed": lambda step, steps: 1.0,
    "hump": hump,
    "inverse": inverse,
}


@dataclass(frozen=True)
class LearningRate:
    """lr = lr_initial · `scale` · the shape's factor, for every optimizer of a learner.

    The shape is that of a whole schedule, of which the stage covers `span`.
    """

    scale: float = 1.0
    shape: LrShape = "fixed"
    span: Span = WHOLE

    def set(self, learner: Learner, step: int, steps: int) -> None:
        """Set the rate of this step. It follows from the step's number alone, so none of it needs saving."""
        factor = SHAPES[self.shape](*schedule_position(step, steps, self.span))
        for optimizer in learner.opts.values():
            for group in optimizer.param_groups:
                group.setdefault("initial_lr", group["lr"])
                group["lr"] = group["initial_lr"] * self.scale * factor


SHOW_SECONDS = 0.5  # between two updates of the display
AGREE_STEPS = 8  # between two checks whether to stop, where all processes must take part


@dataclass(frozen=True)
class Stage:
    """A named part of training: its result depends on `seed`, the data and the learner alone."""

    key: str
    round: int
    epochs: int
    steps_per_epoch: int
    seed: int
    images_per_step: int
    path: Path
    rate: LearningRate = field(default_factory=LearningRate)

    @property
    def steps(self) -> int:
        """The number of steps of the whole stage."""
        return self.epochs * self.steps_per_epoch

    def at(self, step: int) -> Progress:
        """Return the position of a step."""
        epoch = step // self.steps_per_epoch
        return Progress(self.round, epoch, self.epochs, step, self.steps, self.rate.span)


class Clock:
    """Decides when to save, when to update the display and whether to stop."""

    def __init__(self, save_seconds: float, stop: Flag, machine: Machine) -> None:
        self.save_seconds, self.stop, self.machine = save_seconds, stop, machine
        self.saved = time.monotonic()
        self.shown = 0.0

    def is_time_to_stop(self, step: int) -> bool:
        """Return whether the user wants to stop; processes stop after the same step, or they would deadlock."""
        if self.machine.world > 1 and step % AGREE_STEPS:
            return False
        return self.machine.any(self.stop.is_set())

    def is_time_to_save(self) -> bool:
        """Return whether the last checkpoint is old."""
        return time.monotonic() - self.saved >= self.save_seconds

    def is_time_to_show(self) -> bool:
        """Return whether the display is old; if so, start a new wait."""
        now = time.monotonic()
        is_due = now - self.shown >= SHOW_SECONDS
        if is_due:
            self.shown = now
        return is_due


def run_steps(
    stage: Stage,
    learner: Learner,
    stream: BatchStream,
    meta: StageMeta,
    after_epoch: Callable[[], dict[str, Any]],
    clock: Clock,
    events: Events,
) -> None:
    """Train from `meta.step` to the end of the stage; `meta` is updated in place and saved in checkpoints."""
    started = time.monotonic() - meta.seconds
    sums = {name: torch.tensor(value, dtype=torch.float64) for name, value in meta.sums.items()}
    learner.nets.train()
    for step in range(meta.step, stage.steps):
        # All randomness of a step derives from its number, so none of it needs saving.
        torch.manual_seed(derive_seed(stage.seed, step))
        stage.rate.set(learner, step, stage.steps)
        with timed("augment"):
            batch = stream.draw(step)
        with timed("forward"):  # and everything else that a method computes outside `descend`
            add(sums, learner.step(batch, stage.at(step)))
        if profile := current_profile():
            profile.images += stage.images_per_step
        meta.step = step + 1
        if meta.step % stage.steps_per_epoch == 0:
            _end_epoch(stage, meta, sums, after_epoch, events)
            learner.nets.train()  # evaluation may have changed the mode
        meta.seconds = round(time.monotonic() - started, 3)
        must_stop = clock.is_time_to_stop(meta.step)
        if must_stop or meta.step == stage.steps or clock.is_time_to_save():
            _save(stage, learner, meta, sums, clock)
        if must_stop:
            raise Stopped
        if clock.is_time_to_show():
            events.emit("step", key=stage.key, round=stage.round, step=step + 1, steps=stage.steps)


def add(sums: dict[str, Tensor], scalars: dict[str, Tensor]) -> None:
    """Add scalars to running sums on their device, without waiting for it."""
    for name, value in scalars.items():
        sums[name] = sums[name].to(value.device) + value if name in sums else value.double()


def _end_epoch(
    stage: Stage,
    meta: StageMeta,
    sums: dict[str, Tensor],
    after_epoch: Callable[[], dict[str, Any]],
    events: Events,
) -> None:
    means = {name: float(value) / stage.steps_per_epoch for name, value in sums.items()}
    _require_finite(means, stage, meta)
    sums.clear()
    with timed("evaluation"):
        scores = after_epoch()
    row = HistoryRow.model_validate({"epoch": meta.step // stage.steps_per_epoch, **means, **scores})
    meta.history.append(row)
    emit_epoch(stage, row, events)


def emit_epoch(stage: Stage, row: HistoryRow, events: Events) -> None:
    """Emit an epoch with its losses and scores."""
    events.emit("epoch", key=stage.key, round=stage.round, epochs=stage.epochs, **to_json(row))


def _save(stage: Stage, learner: Learner, meta: StageMeta, sums: dict[str, Tensor], clock: Clock) -> None:
    meta.sums = {name: float(value) for name, value in sums.items()}
    _require_finite(meta.sums, stage, meta)
    if not is_finite(learner):  # a finite loss may have an infinite gradient
        raise _not_finite("a weight", stage, meta)
    meta.finished = meta.step == stage.steps
    if clock.machine.is_main:
        with timed("checkpoint"):
            save_state(stage.path, learner, to_json(meta))
    clock.saved = time.monotonic()


def _require_finite(values: dict[str, float], stage: Stage, meta: StageMeta) -> None:
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    if bad:
        raise _not_finite(bad[0], stage, meta)


def _not_finite(what: str, stage: Stage, meta: StageMeta) -> NotFinite:
    return NotFinite(
        f"{what} is not finite in {stage.key} (cycle {stage.round}) by step {meta.step} of {stage.steps}; "
        "the last good checkpoint is kept; start a new run with a smaller lr, or with precision=fp32"
    )
