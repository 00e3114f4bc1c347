"""Workers of `ssdg bench` as forks: a new interpreter would spend most of its time on imports."""

from __future__ import annotations

import json
import os
import signal
import traceback
from dataclasses import asdict, dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any

from ssdg.bench import launch, worker
from ssdg.bench.folder import cell_folder

from .processes import Setup


def fork_workers(in_worker: Setup) -> None:
    """Replace the start of a worker in this process; `in_worker` is called in each before its work."""
    launch.start_worker = partial(_start_fork, in_worker)


@dataclass
class ForkedProcess:
    """The part of `subprocess.Popen` that the launcher uses."""

    pid: int
    stdin: FileIO
    code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int | None:
        """Wait for its end."""
        return self._wait(0)

    def kill(self) -> None:
        """Send SIGKILL."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait(self, flags: int) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, flags)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code


def _start_fork(in_worker: Setup, folder: Path, cell: str, slot: Any, options: Any) -> launch.LocalWorker:
    """Start a worker as `launch.start_worker` does: a session, a log, and a pipe that ends with the launcher."""
    run_folder = cell_folder(folder, cell)
    run_folder.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _run_worker(in_worker, reading, run_folder / "worker.log", [str(folder), cell, json.dumps(asdict(options))])
    os.close(reading)
    process: Any = ForkedProcess(pid, FileIO(writing, "wb"))
    return launch.LocalWorker(process)


def _run_worker(in_worker: Setup, reading: int, log: Path, args: list[str]) -> None:
    """Run a worker and exit; never returns."""
    code = worker.FAILED
    try:
        os.setsid()
        logging = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for source, target in ((reading, 0), (logging, 1), (logging, 2)):
            os.dup2(source, target)
        os.closerange(3, 1024)  # the locks and the pipe of the launcher
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        in_worker()
        code = worker.main(args)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
