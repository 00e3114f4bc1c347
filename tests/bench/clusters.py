"""A Ray cluster of this machine for tests, and what its cells leave in their folders."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
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

ALONE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}  # no network; others' memory is theirs

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
        found = ADDRESS.search((folder / "head.log").read_text())
        assert found, (folder / "head.log").read_text()
        yield found[1]
    finally:
        family = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
        head.terminate()
        head.wait(timeout=240)
        _, alive = psutil.wait_procs(family, timeout=20)
        for process in alive:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)
        assert not alive, "Ray outlives the tests"


def wait_until(
    ready: Callable[[], Any], seconds: float = 280
) -> None:  # Ray is nice: beside other work its workers starve
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What `ssdg table` prints, byte for byte, in two of its formats."""
    told = []
    for form in ("text", "json"):
        capsys.readouterr()
        assert call(["table", str(folder), "--format", form]) == 0
        told.append(capsys.readouterr().out)
    return told


def cell_of(folder: Path, row: str) -> Path:
    return next(cell_folder(folder, cell.id) for cell in read_grid(folder).cells if cell.row == row)


def epochs(place: Path) -> list[int]:
    """Every epoch that was told, also those told twice."""
    return [event["epoch"] for event in events(place) if event["event"] == "epoch"]


def events(place: Path) -> list[dict[str, Any]]:
    path = place / "events.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []  # a last line may be half written
    return [json.loads(line) for line in lines]


def in_the_middle(act: Callable[[Path], None], places: Callable[[], list[Path]]) -> Thread:
    """Act on a cell's folder when it has told its second epoch, from a thread: the command has this one."""

    def wait() -> None:
        wait_until(lambda: any(len(epochs(place)) > 1 for place in places()))
        act(next(place for place in places() if len(epochs(place)) > 1))

    thread = Thread(target=wait)
    thread.start()
    return thread


def has_open(process: psutil.Process, path: Path) -> bool:
    try:
        return any(file.path == str(path) for file in process.open_files())
    except psutil.Error:
        return False
