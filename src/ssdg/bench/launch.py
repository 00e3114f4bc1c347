"""A launcher gives cells to workers: processes on this machine, as many as its cores and GPUs can take."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from threading import Event as Flag
from typing import Any, Literal, Protocol

from ..engine.run import stopping
from ..errors import Stopped
from ..files import locked, write_text
from .folder import Cell, Grid, cell_folder, claim, error_of, lock_of_launcher, state_of
from .worker import BUSY, DONE, Options


@dataclass(frozen=True)
class Slot:
    """A place for one worker: the cores it is bound to (empty: any) and its GPU (empty: all there are)."""

    number: int
    cores: tuple[int, ...] = ()
    gpu: str = ""


def make_slots(jobs: int, threads: int, cores: Sequence[int], gpus: Sequence[str] = ()) -> list[Slot]:
    """Cores of their own for all workers where there are enough, else none; GPUs in turn."""
    enough = jobs * threads <= len(cores)
    return [
        Slot(
            n,
            tuple(cores[n * threads : (n + 1) * threads]) if enough else (),
            gpus[n % len(gpus)] if gpus else "",
        )
        for n in range(jobs)
    ]


def find_gpus(device: str) -> list[str]:
    """The GPUs that workers may use, as CUDA names them."""
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


def find_slots(jobs: int | None, options: Options) -> list[Slot]:
    """As many workers as asked for; else one for each GPU, or as many as the cores of this process allow."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    gpus = find_gpus(options.device)
    usual = len(gpus) or max(1, (len(cores) or os.cpu_count() or 1) // options.threads)
    return make_slots(jobs or usual, options.threads, cores, gpus)


News = Literal["started", "done", "failed", "elsewhere"]
Report = Callable[[News, str], None]  # hears what has become of a cell
POLL_SECONDS = 0.1


class Worker(Protocol):
    """One that is at a cell, on this machine or another."""

    def poll(self) -> int | None:
        """How it has ended, as an exit code of `worker`; None before."""

    def stop(self) -> None:
        """Ask it to finish its step, write a checkpoint and end; asking again changes nothing."""

    def kill(self) -> None:
        """End it at once."""


Start = Callable[[Path, str, Slot, Options], Worker]  # folder, cell, its place: a worker for it


def run_grid(
    folder: Path,
    grid: Grid,
    slots: Sequence[Slot],
    options: Options,
    report: Report,
    start: Start | None = None,
) -> set[str]:
    """Bring all cells of the grid to an end, by processes here or what `start` gives; returns those that failed.

    One launcher per folder and machine, whose workers would fight for the same cores; those of other machines that
    share the folder take other cells.
    """
    busy = f"{folder} is in use by another ssdg bench on this machine; wait for it, or stop it and give more --jobs"
    with locked(lock_of_launcher(folder, socket.gethostname()), busy=busy), stopping() as stop:
        claim(folder, grid)
        failed = Launcher(folder, options, slots, report, start or start_worker).launch(apart(grid.cells), stop)
        if stop.is_set():
            raise Stopped(
                f"stopped; to go on, give the same command again; ssdg bench status {folder} tells the rest"
            )
    return failed


@dataclass(frozen=True)
class LocalWorker:
    """A process that takes the end of its standard input for a wish to stop."""

    process: subprocess.Popen[bytes]

    def poll(self) -> int | None:
        """Its exit code."""
        code = self.process.poll()
        if code is not None:
            self.stop()
        return code

    def stop(self) -> None:
        """Close the pipe."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()

    def kill(self) -> None:
        """Kill it and wait for its end."""
        self.process.kill()
        self.process.wait()


def start_worker(folder: Path, cell: str, slot: Slot, options: Options) -> LocalWorker:
    """A process for a cell. It is of a session of its own: Ctrl-C reaches the launcher alone, which passes it on."""
    place = cell_folder(folder, cell)
    place.mkdir(parents=True, exist_ok=True)
    told = json.dumps(asdict(replace(options, cores=slot.cores)))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(options.threads))
    gpu = {"CUDA_VISIBLE_DEVICES": slot.gpu} if slot.gpu else {}
    with (place / "worker.log").open("ab") as log:
        return LocalWorker(
            subprocess.Popen(
                [sys.executable, "-m", "ssdg.bench.worker", str(folder), cell, told],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **threads, **gpu},
                start_new_session=True,
            )
        )


def apart(cells: Sequence[Cell]) -> list[str]:
    """The ids in an order in which neighbours have no stage in common: a worker would wait for it at the other.

    Labeled domains and seeds take turns; within each, cells keep their order.
    """
    groups: dict[tuple[int, Any], list[str]] = {}
    for cell in cells:
        groups.setdefault((cell.seed, cell.config.get("labeled")), []).append(cell.id)
    return [cell for turn in zip_longest(*groups.values()) for cell in turn if cell is not None]


@dataclass
class Launcher:
    """Gives the cells of a folder to workers until none is left."""

    folder: Path
    options: Options
    slots: Sequence[Slot]
    report: Report
    start: Start
    waiting: deque[str] = field(default_factory=deque)
    running: dict[Slot, tuple[str, Worker]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)  # cells that a worker of another launcher has or had
    failed: set[str] = field(default_factory=set)

    def launch(self, cells: Sequence[str], stop: Flag) -> set[str]:
        """Run the cells that are not done, in this order; returns those that failed.

        When `stop` is set, the workers finish their step, write a checkpoint and end.
        """
        self.waiting.extend(cell for cell in dict.fromkeys(cells) if state_of(self.folder, cell) != "done")
        try:
            while (self.waiting and not stop.is_set()) or self.running:
                if stop.is_set():
                    self._stop()
                else:
                    self._fill()
                time.sleep(POLL_SECONDS)
                self._reap(stop)
        finally:
            for _, worker in self.running.values():
                worker.kill()
        return self.failed

    def _fill(self) -> None:
        """Start a worker in every free slot, passing over cells that others are at or have brought to an end."""
        free = [slot for slot in self.slots if slot not in self.running]
        for _ in range(len(self.waiting)):
            if not free:
                return
            cell = self.waiting.popleft()
            state = state_of(self.folder, cell)
            if state == "running":
                self._leave(cell)
            elif state == "done":
                self.report("done", cell)
            elif state == "failed" and cell in self.elsewhere:
                self._fail(cell)
            else:
                error_of(self.folder, cell).unlink(missing_ok=True)  # of an earlier try
                slot = free.pop(0)
                self.running[slot] = (cell, self.start(self.folder, cell, slot, self.options))
                self.report("started", cell)

    def _leave(self, cell: str) -> None:
        """Come back later to a cell that another launcher's worker has."""
        self.waiting.append(cell)
        if cell not in self.elsewhere:
            self.elsewhere.add(cell)
            self.report("elsewhere", cell)

    def _reap(self, stop: Flag) -> None:
        for slot, (cell, worker) in list(self.running.items()):
            code = worker.poll()
            if code is not None:
                del self.running[slot]
                self._conclude(cell, code, stop)

    def _conclude(self, cell: str, code: int, stop: Flag) -> None:
        if code == DONE:
            self.report("done", cell)
        elif code == BUSY:
            self._leave(cell)
        elif not stop.is_set():
            if not error_of(self.folder, cell).exists():
                write_text(error_of(self.folder, cell), f"{end_of(code)}; worker.log beside this file may say why\n")
            self._fail(cell)

    def _fail(self, cell: str) -> None:
        self.failed.add(cell)
        self.report("failed", cell)

    def _stop(self) -> None:
        for _, worker in self.running.values():
            worker.stop()


def end_of(code: int) -> str:
    """How a worker ended that left no sentence."""
    if code < 0:
        return f"the worker was ended by {signal.Signals(-code).name}"
    return f"the worker ended with exit code {code}"
