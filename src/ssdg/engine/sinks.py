"""Curves of a run for TensorBoard and Weights & Biases, made from its events.

What a sink shows is what `events.jsonl` tells, every epoch once: a process that goes on with a run gives its sinks
the whole file first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ..data.sets import digest_of
from ..errors import UserError
from .events import Event, Listener, read_events
from .result import named


@dataclass(frozen=True)
class Point:
    """One place on some curves: `step` is the epoch over all cycles, or the cycle; figures have the curves' names."""

    series: str
    round: int
    step: int
    time: float  # seconds since 1970
    figures: dict[str, float]


class Log(Protocol):
    """A service that draws curves."""

    def add(self, number: int, point: Point) -> None:
        """Show a point, which is the `number`-th of the run, from 0."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


@dataclass
class Sink:
    """Passes the figures of a run to a service. If that fails, it is told once and the run goes on without."""

    name: str
    events: Path
    make: Callable[[Event], Log]  # from the first event of the run
    warn: Callable[[str], None]
    log: Log | None = None
    told: set[tuple[str, int]] = field(default_factory=set)

    def hear(self, event: Event) -> None:
        """Pass an event on; a run starts, or starts again, with `start`."""
        if event["event"] == "start":
            self._guarded(self._open)
        elif self.log is not None:
            self._guarded(lambda: self._add(event))

    def close(self) -> None:
        """The run is over, or stops."""
        if self.log is not None:
            self._guarded(self.log.close)
        self.log = None

    def _open(self) -> None:
        """Show all that has happened so far: of what a killed process told, nobody knows what arrived."""
        past = list(read_events(self.events))
        self.log = self.make(past[0])
        for event in past:
            self._add(event)

    def _add(self, event: Event) -> None:
        point = point_of(event)
        # Epochs that a kill undid are told twice, and labels again by every process that finds them.
        if self.log is not None and point is not None and (point.series, point.step) not in self.told:
            self.log.add(len(self.told), point)
            self.told.add((point.series, point.step))

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self.log = None
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            self.warn(f"{self.name} failed ({reason}); the run goes on without it")


def point_of(event: Event) -> Point | None:
    """What an event adds to curves, or None."""
    if event["event"] == "epoch":
        key, step = event["key"], (event["round"] - 1) * event["epochs"] + event["epoch"]
        return Point(key, event["round"], step, event["time"], epoch_figures(event))
    if event["event"] == "labeled":
        return Point(f"labels/{event['key']}", event["round"], event["round"], event["time"], label_figures(event))
    return None


def epoch_figures(event: Event) -> dict[str, float]:
    """Losses under the stage's key; scores under `target`, `validation`, `unsupervised`, alike for every method."""
    losses = {k: v for k, v in event.items() if isinstance(v, float) and k != "time"}
    figures = {f"{event['key']}/{name}": value for name, value in losses.items()}
    for name in ("target", "validation"):
        scores = named(event[name]) if name in event else {}
        figures |= {f"{name}/{network}": value for network, value in scores.items()}
    unsupervised = event.get("unsupervised", {})
    return figures | {f"unsupervised/{name}": value for name, value in unsupervised.items() if value is not None}


def label_figures(event: Event) -> dict[str, float]:
    """All that the auditor tells of each domain; what it does not know is left out."""
    figures: dict[str, float] = {}
    for domain, row in event["domains"].items():
        place = event["key"] if event["key"].endswith(f"/{domain}") else f"{event['key']}/{domain}"
        figures |= {f"labels/{place}/{name}": float(value) for name, value in row.items() if value is not None}
    return figures


class TensorBoardLog:
    """Event files in a folder of their own, written anew by every process: readers take them for the only ones."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        # A TensorBoard that is open and has read the old files drops what it knows from this step on.
        self.writer: Any = SummaryWriter(str(folder), purge_step=0)

    def add(self, number: int, point: Point) -> None:
        """See `Log`; on disk at once, for a run may be killed."""
        for name, value in point.figures.items():
            self.writer.add_scalar(name, value, point.step, walltime=point.time)
        self.writer.flush()

    def close(self) -> None:
        """See `Log`."""
        self.writer.close()


class WandbLog:
    """A run of Weights & Biases. Its id follows from the run's start, so that a process that goes on finds it."""

    def __init__(self, project: str, folder: Path, start: Event) -> None:
        wandb: Any = import_module("wandb")
        number = digest_of(start["time"], start["config"])
        place = {"name": folder.name, "dir": str(folder), "config": start["config"]}
        self.run: Any = wandb.init(project=project, id=number, resume="allow", **place)
        self.known = int(self.run.step)  # points that it has from an earlier process; offline it says 0

    def add(self, number: int, point: Point) -> None:
        """See `Log`; steps are points, for curves of all kinds share one axis there."""
        if number >= self.known:
            self.run.log({**point.figures, "cycle": point.round, f"{point.series}/step": point.step}, step=number)

    def close(self) -> None:
        """See `Log`."""
        self.run.finish()


def check_sinks(tensorboard: bool, wandb: str | None) -> None:
    """Refuse a sink whose package is not installed; `wandb` is a project."""
    for package, is_wanted in (("tensorboard", tensorboard), ("wandb", wandb is not None)):
        try:
            if is_wanted:
                import_module(package)
        except ImportError:
            raise UserError(
                f"--{package} needs the package {package}, which is not installed; run pip install 'ssdg[{package}]'"
            ) from None


@contextmanager
def open_sinks(
    folder: Path, tensorboard: bool, wandb: str | None, warn: Callable[[str], None]
) -> Iterator[tuple[Listener, ...]]:
    """Listeners for the run in `folder`; `warn` is told of one that fails."""
    events, sinks = folder / "events.jsonl", []
    if tensorboard:
        sinks.append(Sink("TensorBoard", events, lambda start: TensorBoardLog(folder / "tensorboard"), warn))
    if wandb is not None:
        project = wandb
        sinks.append(Sink("Weights & Biases", events, lambda start: WandbLog(project, folder, start), warn))
    try:
        yield tuple(sink.hear for sink in sinks)
    finally:
        for sink in sinks:
            sink.close()
