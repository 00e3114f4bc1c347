"""Kill a worker of `ssdg bench --ray` on a cluster of this machine: its cell is tried again, with the same result."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .kills import digests
from .processes import run_command
from .report import Finding, Tally
from .seeds import Seeds

PART = "faults: worker killed under Ray"
START_SECONDS, LIMIT = 90.0, 300.0
ADDRESS = re.compile(r"ray start --address='([\d.]+:\d+)'")
ALONE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}  # no network; others' memory is theirs
# Ray runs workers with the lowest priority and replaces those that take a minute to start: all, on a busy machine.
ALONE |= {"RAY_worker_niceness": "0", "RAY_worker_register_timeout_seconds": "1200"}


def kill_ray_worker(seeds: Seeds, work: Path, tally: Tally) -> None:
    """Compare a benchmark whose worker is killed with an undisturbed one; leave a note if there is no cluster."""
    if importlib.util.find_spec("ray") is None:
        tally.note("worker killed under Ray: skipped, the package ray is not installed")
        return
    bench = ("bench", seeds.suite, "--data", seeds.world, "--cache", seeds.cache, "--device", "cpu", "epochs=300")
    with running_cluster() as address:
        if address is None:
            tally.note(f"worker killed under Ray: skipped, Ray did not start within {START_SECONDS:.0f} s")
            return
        folders, killed = (work / "ray-undisturbed", work / "ray-killed"), list[int]()
        for folder in folders:
            disturb = threading.Thread(target=_kill_holder, args=(folder, killed))
            if folder == folders[1]:
                disturb.start()
            words = (*bench, "--save-seconds", "0", "--ray", address, "--out", folder)
            outcome = run_command(words, work, limit=LIMIT)
            if outcome.code != 0:
                tally.add(Finding(PART, folder.name, f"exit code {outcome.code}", outcome.output))
        disturb.join()
        tally.count(PART)
        weights = [digests(folder, ("cells/*/model/*.safetensors",)) for folder in folders]
        if not killed:
            tally.add(Finding(PART, "no worker was killed", "the campaign missed it"))
        if not weights[0] or weights[0] != weights[1]:
            tally.add(Finding(PART, "weights after a killed worker", "difference"))


@contextmanager
def running_cluster() -> Iterator[str | None]:
    """Start a cluster of one CPU; yield its address, or None if it does not start in time."""
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as name:  # sockets need short paths
        log = Path(name) / "head.log"
        command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port=0"]
        command += ["--num-cpus=1", "--include-dashboard=false", f"--temp-dir={name}"]
        command += ["--object-store-memory=100000000"]
        with log.open("w") as file:
            head = subprocess.Popen(
                command, env={**os.environ, **ALONE}, stdout=file, stderr=file, start_new_session=True
            )
        try:
            yield _wait_for_address(log, head)
        finally:
            head.terminate()
            with suppress(subprocess.TimeoutExpired):
                head.wait(30)
            with suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)


def _wait_for_address(log: Path, head: subprocess.Popen[bytes]) -> str | None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until and head.poll() is None:
        if match := ADDRESS.search(log.read_text()):
            return match[1]
        time.sleep(0.2)
    return None


def _kill_holder(folder: Path, killed: list[int]) -> None:
    """Kill the process that holds the lock of a cell, once its run has begun."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until and not killed:
        for events in folder.glob("cells/*/events.jsonl"):
            if events.read_text().count('"epoch"') < 2:
                continue
            for pid in _holders(events.with_name(".cell.lock")):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        time.sleep(0.02)


def _holders(lock: Path) -> Iterator[int]:
    """Yield the processes that have a file open."""
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if entry.readlink() == lock:
                yield int(entry.parts[2])
