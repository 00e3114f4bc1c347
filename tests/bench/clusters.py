"""A Ray cluster of this machine for tests, and what its cells leave in their folders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from runs import environment
from ssdg.bench.folder import cell_folder, read_grid
from ssdg.cli import call
from waiting import PATIENCE, wait_until

ALONE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}  # no network; others' memory is theirs
# Ray runs workers with the lowest priority and replaces those that take a minute to start: all, on a busy machine.
ALONE |= {"RAY_worker_niceness": "0", "RAY_worker_register_timeout_seconds": "1200"}

ADDRESS = re.compile(r"ray start --address='([\d.]+:\d+)'")


@contextmanager
def running_cluster() -> Iterator[str]:
    """The address of a new cluster of two CPUs, of which no process is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # sockets must have short paths
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port=0", "--num-cpus=2"]
    command += ["--include-dashboard=false", f"--temp-dir={folder}", "--object-store-memory=100000000"]
    with (folder / "head.log").open("w") as log:
        head = subprocess.Popen(command, env=environment(ALONE), stdout=log, stderr=log)
    try:
        wait_until(lambda: ADDRESS.search((folder / "head.log").read_text()) or head.poll() is not None)
        match = ADDRESS.search((folder / "head.log").read_text())
        assert match, (folder / "head.log").read_text()
        yield match[1]
    finally:
        family = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
        head.terminate()
        head.wait(PATIENCE)
        _, alive = psutil.wait_procs(family, timeout=PATIENCE)
        for process in alive:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        assert not alive, "Ray outlives the tests"


def tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `ssdg table` prints, byte for byte, in two of its formats."""
    outputs = []
    for form in ("text", "json"):
        capsys.readouterr()
        assert call(["table", str(folder), "--format", form]) == 0
        outputs.append(capsys.readouterr().out)
    return outputs


def cell_of(folder: Path, row: str) -> Path:
    return next(cell_folder(folder, cell.id) for cell in read_grid(folder).cells if cell.row == row)


def epochs(folder: Path) -> list[int]:
    """Return every reported epoch, repeated ones included."""
    return [event["epoch"] for event in events(folder) if event["event"] == "epoch"]


def events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "events.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []  # a last line may be half written
    return [json.loads(line) for line in lines]


def in_the_middle(act: Callable[[Path], None], folders: Callable[[], list[Path]]) -> Thread:
    """Act on a cell's folder once it has reported its second epoch, in a thread: the command blocks this one."""

    def wait() -> None:
        wait_until(lambda: any(len(epochs(folder)) > 1 for folder in folders()))
        act(next(folder for folder in folders() if len(epochs(folder)) > 1))

    thread = Thread(target=wait)
    thread.start()
    return thread


def has_open(process: psutil.Process, path: Path) -> bool:
    try:
        return any(file.path == str(path) for file in process.open_files())
    except psutil.Error:
        return False
