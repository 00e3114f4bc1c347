"""Faults of the machine while a command runs: it ends with one sentence, and the next command finishes the work."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

from .jobs import make_jobs
from .kills import Trial
from .processes import Setup, before_file_changes
from .ray_worker import kill_ray_worker
from .report import Finding, Tally
from .seeds import Seeds


def fail_with(root: Path, number: int, code: int) -> Setup:
    """Return a setup that fails the `number`-th and all later changes of files below `root` with an OS error."""

    def fail(count: int) -> None:
        if count >= number:
            raise OSError(code, os.strerror(code), str(root))

    return before_file_changes(root, fail)


def limit_files(root: Path, number: int) -> Setup:
    """Return a setup that leaves few file descriptors."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (12 + number % 12, 12 + number % 12))


def limit_memory(root: Path, number: int) -> Setup:
    """Return a setup that allows little memory beyond what is in use."""

    def setup() -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + (8 + number % 64) * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return setup


def turn_clock_back(root: Path, number: int) -> Setup:
    """Return a setup in which the clock of the day jumps back an hour at every reading."""

    def setup() -> None:
        now, calls = time.time(), [0]

        def back() -> float:
            calls[0] += 1
            return now - 3600.0 * calls[0]

        time.time = back

    return setup


def remove_folder(root: Path, number: int) -> Setup:
    """Return a setup that deletes the output folder before a change of a file in it."""
    return before_file_changes(
        root, lambda count: shutil.rmtree(root, ignore_errors=True) if count == number else None
    )


FAULTS: dict[str, Callable[[Path, int], Setup]] = {
    "full disk": lambda root, number: fail_with(root, number, errno.ENOSPC),
    "read-only folder": lambda root, number: fail_with(root, number, errno.EROFS),
    "folder removed": remove_folder,
    "few file descriptors": limit_files,
    "memory limit": limit_memory,
    "clock going backwards": turn_clock_back,
}


def run_faults(
    seeds: Seeds, work: Path, rng: random.Random, until: float, tally: Tally, most: int | None = None
) -> None:
    """Disturb each job by each fault in turn, and by a second process on its folder; then kill a worker under Ray."""
    jobs = [job for job in make_jobs(seeds) if not job.is_worker]
    trials = [trial for job in jobs if (trial := Trial.prepare(job, work, rng, tally)) is not None]
    pairs = [(trial, name) for trial in trials for name in (*FAULTS, "two processes")]
    rng.shuffle(pairs)
    turn = 0
    while pairs and time.monotonic() < until and (most is None or turn < most):
        trial, name = pairs[turn % len(pairs)]
        turn += 1
        number = rng.randrange(trial.num_changes) + 1
        part = f"faults: {name}"
        tally.count(part)
        problems = run_two(trial) if name == "two processes" else run_fault(trial, name, number)
        for problem, detail in problems:
            tally.add(Finding(part, f"{trial.job.name} ({number})", problem, detail))
    if most is None:  # Ray takes longer to start than a slice of the campaign
        kill_ray_worker(seeds, work, tally)


def run_fault(trial: Trial, name: str, number: int) -> list[tuple[str, str]]:
    """Run a job with a fault, then to its end without one; return what is wrong."""
    out = trial.job.start_folder(trial.work / "out")
    first = trial.job.run(out, FAULTS[name](out, number))
    # Without memory Python itself cannot always end in a sentence.
    problems = [] if name == "memory limit" and not first.hung else list(trial.own_problems(first))
    has_lost_input = name == "folder removed" and trial.job.fill is not None
    if not out.exists() or has_lost_input:
        trial.job.start_folder(out)
    return [*problems, *trial.problems_after(out)]


def run_two(trial: Trial) -> list[tuple[str, str]]:
    """Run the same command twice at the same time; one may refuse, the result is the same."""
    out = trial.job.start_folder(trial.work / "out")
    outcomes = []
    thread = threading.Thread(target=lambda: outcomes.append(trial.job.run(out)))
    thread.start()
    outcomes.append(trial.job.run(out))
    thread.join()
    return [problem for outcome in outcomes for problem in trial.own_problems(outcome)] + trial.problems_after(out)
