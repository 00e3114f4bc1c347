"""Curves of a run for TensorBoard and Weights & Biases, made from its events.

A sink shows what `events.jsonl` contains, every epoch once: a process that resumes a run replays the file first.
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
from .events import Event, Listener, read_event_dicts
from .result import by_network


@dataclass(frozen=True)
class Point:
    """One point on several curves: `step` is the epoch over all cycles, or the cycle; values by curve name."""

    series: str
    round: int
    step: int
    time: float  # seconds since 1970
    values: dict[str, float]


class Log(Protocol):
    """A service that draws curves."""

    def add(self, number: int, point: Point) -> None:
        """Add a point; `number` is its index in the run, from 0."""
        ...

    def close(self) -> None:
        """Release its resources."""
        ...


@dataclass
class Sink:
    """Passes the curves of a run to a service. If that fails, warns once and the run continues without it."""

    name: str
    events: Path
    make: Callable[[Event], Log]  # from the first event of the run
    warn: Callable[[str], None]
    log: Log | None = None
    sent: set[tuple[str, int]] = field(default_factory=set)

    def hear(self, event: Event) -> None:
        """Pass an event on; a run starts or resumes with `start`."""
        if event["event"] == "start":
            self._guarded(self._open)
        elif self.log is not None:
            self._guarded(lambda: self._add(event))

    def close(self) -> None:
        """Close the service when the run ends or stops."""
        if self.log is not None:
            self._guarded(self.log.close)
        self.log = None

    def _open(self) -> None:
        """Replay everything so far: nobody knows which points of a killed process arrived."""
        past = list(read_event_dicts(self.events))
        self.log = self.make(past[0])
        for event in past:
            self._add(event)

    def _add(self, event: Event) -> None:
        point = point_of(event)
        # Epochs that a kill undid are emitted twice, and labels again by every process that reads them.
        if self.log is not None and point is not None and (point.series, point.step) not in self.sent:
            self.log.add(len(self.sent), point)
            self.sent.add((point.series, point.step))

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self.log = None
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            self.warn(f"{self.name} failed ({reason}); the run continues without it")


def point_of(event: Event) -> Point | None:
    """Return what an event adds to curves, or None."""
    if event["event"] == "epoch":
        key, step = event["key"], (event["round"] - 1) * event["epochs"] + event["epoch"]
        return Point(key, event["round"], step, event["time"], epoch_values(event))
    if event["event"] == "labeled":
        return Point(f"labels/{event['key']}", event["round"], event["round"], event["time"], label_values(event))
    return None


def epoch_values(event: Event) -> dict[str, float]:
    """Return losses under the stage's key, and scores under `target`, `validation`, `unsupervised`."""
    losses = {k: v for k, v in event.items() if isinstance(v, float) and k != "time"}
    values = {f"{event['key']}/{name}": value for name, value in losses.items()}
    for name in ("target", "validation"):
        scores = by_network(event[name]) if name in event else {}
        values |= {f"{name}/{network}": value for network, value in scores.items()}
    unsupervised = event.get("unsupervised", {})
    return values | {f"unsupervised/{name}": value for name, value in unsupervised.items() if value is not None}


def label_values(event: Event) -> dict[str, float]:
    """Return everything that the auditor knows about each domain."""
    values: dict[str, float] = {}
    for domain, row in event["domains"].items():
        prefix = event["key"] if event["key"].endswith(f"/{domain}") else f"{event['key']}/{domain}"
        values |= {f"labels/{prefix}/{name}": float(value) for name, value in row.items() if value is not None}
    return values


class TensorBoardLog:
    """Event files in a separate folder, rewritten by every process: readers expect no others."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        # An open TensorBoard that has read the old files discards its data from this step on.
        self.writer: Any = SummaryWriter(str(folder), purge_step=0)

    def add(self, number: int, point: Point) -> None:
        """See `Log`; flushed at once, because a run may be killed."""
        for name, value in point.values.items():
            self.writer.add_scalar(name, value, point.step, walltime=point.time)
        self.writer.flush()

    def close(self) -> None:
        """See `Log`."""
        self.writer.close()


class WandbLog:
    """A run of Weights & Biases. Its id follows from the run's start, so a process that resumes it finds it."""

    def __init__(self, project: str, folder: Path, start: Event) -> None:
        wandb: Any = import_module("wandb")
        number = digest_of(start["time"], start["config"])
        options = {"name": folder.name, "dir": str(folder), "config": start["config"]}
        self.run: Any = wandb.init(project=project, id=number, resume="allow", **options)
        self.known = int(self.run.step)  # points from an earlier process; 0 when offline

    def add(self, number: int, point: Point) -> None:
        """See `Log`; steps are points, because all curves share one axis there."""
        if number >= self.known:
            self.run.log({**point.values, "cycle": point.round, f"{point.series}/step": point.step}, step=number)

    def close(self) -> None:
        """See `Log`."""
        self.run.finish()


def check_sinks(tensorboard: bool, wandb: str | None) -> None:
    """Reject a sink whose package is not installed; `wandb` is a project."""
    for package, is_used in (("tensorboard", tensorboard), ("wandb", wandb is not None)):
        try:
            if is_used:
                import_module(package)
        except ImportError:
            raise UserError(
                f"--{package} needs the package {package}, which is not installed; run pip install 'ssdg[{package}]'"
            ) from None


@contextmanager
def open_sinks(
    folder: Path, tensorboard: bool, wandb: str | None, warn: Callable[[str], None]
) -> Iterator[tuple[Listener, ...]]:
    """Yield listeners for the run in `folder`; `warn` receives the message of one that fails."""
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
