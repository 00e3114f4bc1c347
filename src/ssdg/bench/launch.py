"""A launcher that assigns cells to worker processes on this machine, as many as its cores and GPUs allow."""

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
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from threading import Event as Flag
from typing import Any, Literal, Protocol

from ..data.parallel import num_cores
from ..engine.run import stop_on_signal
from ..errors import Stopped
from ..files import locked, write_text
from .folder import (
    Cell,
    Grid,
    cell_folder,
    claim,
    error_of,
    lock_of_launcher,
    remove_leftovers_of_worker,
    state_of,
)
from .worker import BUSY, DONE, CellOptions


@dataclass(frozen=True)
class Slot:
    """Resources of one worker: its GPU (empty: all).

    Workers are not bound to cores: only the scheduler knows which cores other grids and programs use.
    """

    number: int
    gpu: str = ""


def make_slots(jobs: int, gpus: Sequence[str] = ()) -> list[Slot]:
    """Return slots; assign GPUs round-robin."""
    return [Slot(n, gpus[n % len(gpus)] if gpus else "") for n in range(jobs)]


def find_gpus(device: str) -> list[str]:
    """Return the GPUs that workers may use, by their CUDA names."""
    import torch

    if device == "cpu" or not torch.cuda.is_available():
        return []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]


def find_slots(jobs: int | None, options: CellOptions) -> list[Slot]:
    """Return `jobs` slots; by default one per GPU, or as many as the cores of this process allow."""
    gpus = find_gpus(options.device)
    return make_slots(jobs or len(gpus) or max(1, num_cores() // options.threads), gpus)


CellEvent = Literal["started", "done", "failed", "elsewhere"]  # elsewhere: another launcher's worker holds the cell
Report = Callable[[CellEvent, str], None]  # called with an event and the id of its cell
POLL_SECONDS = 0.1


class Worker(Protocol):
    """A worker that computes a cell, on this machine or another."""

    def poll(self) -> int | None:
        """Return its exit code (see `worker`), or None while it runs."""

    def stop(self) -> None:
        """Ask it to finish its step, write a checkpoint and end; repeated calls have no effect."""

    def kill(self) -> None:
        """End it immediately."""


Start = Callable[[Path, str, Slot, CellOptions], Worker]  # starts a worker for a cell of a folder


def run_grid(
    folder: Path,
    grid: Grid,
    slots: Sequence[Slot],
    options: CellOptions,
    report: Report,
    start: Start | None = None,
) -> set[str]:
    """Run all cells of the grid, by local processes or by the workers of `start`; return those that failed.

    Only one launcher per folder and machine may run, because workers of two would compete for the same cores.
    Launchers on other machines that share the folder take other cells.
    """
    busy = f"{folder} is in use by another ssdg bench on this machine; wait for it, or stop it and use more --jobs"
    with locked(lock_of_launcher(folder, socket.gethostname()), busy=busy), stop_on_signal() as stop:
        claim(folder, grid)
        failed = Launcher(folder, options, slots, report, start or start_worker).launch(interleave(grid.cells), stop)
        if stop.is_set():
            raise Stopped(
                f"stopped; to resume, run the same command again (ssdg bench status {folder} shows what is left)"
            )
    return failed


@dataclass(frozen=True)
class LocalWorker:
    """A process that treats the end of its standard input as a request to stop."""

    process: subprocess.Popen[bytes]

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        code = self.process.poll()
        if code is not None:
            self.stop()
        return code

    def stop(self) -> None:
        """Close the pipe."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()

    def kill(self) -> None:
        """Kill it and wait until it has ended."""
        self.process.kill()
        self.process.wait()


def start_worker(folder: Path, cell: str, slot: Slot, options: CellOptions) -> LocalWorker:
    """Start a process for a cell, in its own session: Ctrl-C reaches only the launcher, which stops the worker."""
    run_folder = cell_folder(folder, cell)
    run_folder.mkdir(parents=True, exist_ok=True)
    options_json = json.dumps(asdict(options))
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(options.threads))
    gpu = {"CUDA_VISIBLE_DEVICES": slot.gpu} if slot.gpu else {}
    with (run_folder / "worker.log").open("ab") as log:
        return LocalWorker(
            subprocess.Popen(
                [sys.executable, "-m", "ssdg.bench.worker", str(folder), cell, options_json],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, **threads, **gpu},
                start_new_session=True,
            )
        )


def interleave(cells: Sequence[Cell]) -> list[str]:
    """Return the ids in an order in which neighbors share no stage, so that no worker waits for another's.

    Labeled domains and seeds alternate; within each, cells keep their order.
    """
    groups: dict[tuple[int, Any], list[str]] = {}
    for cell in cells:
        groups.setdefault((cell.seed, cell.config.get("labeled")), []).append(cell.id)
    return [cell for turn in zip_longest(*groups.values()) for cell in turn if cell is not None]


@dataclass
class Launcher:
    """Assigns the cells of a folder to workers until none is left."""

    folder: Path
    options: CellOptions
    slots: Sequence[Slot]
    report: Report
    start: Start
    waiting: deque[str] = field(default_factory=deque)
    running: dict[Slot, tuple[str, Worker]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)  # cells that another launcher's worker holds or held
    failed: set[str] = field(default_factory=set)

    def launch(self, cells: Sequence[str], stop: Flag) -> set[str]:
        """Run the cells that are not done, in this order; return those that failed.

        Once `stop` is set, the workers finish their step, write a checkpoint and end.
        """
        for cell in dict.fromkeys(cells):
            if state_of(self.folder, cell) == "done":
                remove_leftovers_of_worker(self.folder, cell)
            else:
                self.waiting.append(cell)
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
        """Start a worker in every free slot; skip cells that other launchers are running or have finished."""
        free = [slot for slot in self.slots if slot not in self.running]
        for _ in range(len(self.waiting)):
            if not free:
                return
            cell = self.waiting.popleft()
            state = state_of(self.folder, cell)
            if state == "running":
                self._postpone(cell)
            elif state == "done":
                self.report("done", cell)
            elif state == "failed" and cell in self.elsewhere:
                self._fail(cell)
            else:
                error_of(self.folder, cell).unlink(missing_ok=True)  # of an earlier attempt
                slot = free.pop(0)
                self.running[slot] = (cell, self.start(self.folder, cell, slot, self.options))
                self.report("started", cell)

    def _postpone(self, cell: str) -> None:
        """Move a cell that another launcher's worker holds to the end of the queue."""
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
        if code == DONE or state_of(self.folder, cell) == "done":  # it may be killed after its result
            remove_leftovers_of_worker(self.folder, cell)
            self.report("done", cell)
        elif code == BUSY:
            self._postpone(cell)
        elif not stop.is_set():
            if not error_of(self.folder, cell).exists():
                write_text(error_of(self.folder, cell), f"{describe_exit(code)}; see worker.log in the same folder\n")
            self._fail(cell)

    def _fail(self, cell: str) -> None:
        self.failed.add(cell)
        self.report("failed", cell)

    def _stop(self) -> None:
        for _, worker in self.running.values():
            worker.stop()


def describe_exit(code: int) -> str:
    """Describe the end of a worker that left no message."""
    if code < 0:
        return f"the worker was killed by {signal.Signals(-code).name}"
    return f"the worker exited with code {code}"
