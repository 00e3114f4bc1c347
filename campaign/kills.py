"""Kill commands at every change of a file and at random times, run them again, compare with an undisturbed run."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .processes import Outcome, before_file_changes, count_file_changes, run_command
from .report import Finding, Tally
from .seeds import Seeds

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LIMIT = 300.0  # seconds; training may be slow on a busy machine, but it ends
TRIES = 3  # runs after the kill until the command has to be done


@dataclass(frozen=True)
class Job:
    """A command that writes to `out`, and which of the files it leaves have to be the same whenever it is killed."""

    name: str
    words: Callable[[Path], Sequence[str | Path]]
    exact: tuple[str, ...]  # glob patterns, relative to `out`; "" is `out` itself


WEIGHTS = ("run/model/*.safetensors", "run/predictions.csv", "run/labels/*")


def make_jobs(seeds: Seeds) -> list[Job]:
    """Return the commands that write something."""
    frozen = ("--method", "source-only", "backbone=resnet18", "freeze=stage1", "warm_epochs=1", "views=1")
    bench = ("bench", seeds.suite, "--data", seeds.world, "--cache", seeds.cache, "--jobs", "1", "--device", "cpu")
    run, night = seeds.run, seeds.world / "night"
    return [
        Job("train mcd", lambda out: (*seeds.train(), "--method", "mcd", "--out", out / "run"), WEIGHTS),
        Job("train eid", lambda out: (*seeds.train(), "cycles=1", "--out", out / "run"), WEIGHTS),
        Job("train frozen", lambda out: (*seeds.train(out / "cache"), *frozen, "--out", out / "run"), WEIGHTS),
        Job("bench", lambda out: (*bench, "--out", out / "bench"), ("bench/cells/*/model/*.safetensors",)),
        Job("predict", lambda out: ("predict", run, night, "-o", out / "p.csv"), ("p.csv",)),
        Job("export", lambda out: ("export", run, "--format", "safetensors", "-o", out / "m"), ("m/*.safetensors",)),
        Job("export onnx", lambda out: ("export", run, "--format", "onnx", "-o", out / "m.onnx"), ("m.onnx",)),
        Job("web ingest", lambda out: ("web", "ingest", seeds.crawl, "-o", out / "web"), ("web/**/*.png",)),
        Job("data unpack", lambda out: ("data", "unpack", seeds.arrays.parent, out / "u"), ("u/**/*.png",)),
        Job("report", lambda out: ("report", run, "-o", out / "r.html"), ()),
    ]


def run_kills(
    seeds: Seeds, work: Path, rng: random.Random, until: float, tally: Tally, most: int | None = None
) -> None:
    """Kill until the time is over, or `most` times: each job in turn, before a change of a file or at random."""
    trials = [trial for job in make_jobs(seeds) if (trial := Trial.prepare(job, work, tally)) is not None]
    turn = 0
    while trials and time.monotonic() < until and (most is None or turn < most):
        trials[turn % len(trials)].kill_once(rng, tally)
        turn += 1


@dataclass
class Trial:
    """A job, what it leaves when nothing disturbs it, and how often it changes a file."""

    job: Job
    work: Path
    reference: dict[str, str]
    names: frozenset[str]
    num_changes: int
    seconds: float
    next_change: int = 0

    @classmethod
    def prepare(cls, job: Job, work: Path, tally: Tally) -> Trial | None:
        """Run the job undisturbed; None, and a finding, if that fails."""
        out = fresh(work / "reference")
        outcome, num_changes = count_file_changes(job.words(out), work, out, LIMIT)
        if outcome.code != 0:
            tally.add(Finding("kills", job.name, "does not run undisturbed", outcome.output))
            return None
        return cls(job, work, digests(out, job.exact), names_below(out), num_changes, outcome.seconds)

    def kill_once(self, rng: random.Random, tally: Tally) -> None:
        """Kill the job once, run it to its end, and compare."""
        out, number = fresh(self.work / "killed"), rng.choice(SIGNALS)
        if rng.random() < 0.75:  # three kills of four hit the moment before a change of a file
            change = self.next_change % max(1, self.num_changes) + 1
            self.next_change += 1
            moment = f"before change {change} of {self.num_changes}"
            setup = before_file_changes(out, lambda count: os.kill(os.getpid(), number) if count == change else None)
            first = run_command(self.job.words(out), self.work, setup=setup, limit=LIMIT)
        else:
            seconds = rng.random() * self.seconds
            moment = f"after {seconds:.2f} s"
            first = run_command(self.job.words(out), self.work, signal_after=(number, seconds), limit=LIMIT)
        name = f"{self.job.name}: {signal.Signals(number).name} {moment}"
        tally.count("kills")
        for problem, detail in self.problems(out, first):
            tally.add(Finding("kills", name, problem, detail))

    def problems(self, out: Path, first: Outcome) -> list[tuple[str, str]]:
        """Return what is wrong with the killed command, and after it."""
        return [*self.own_problems(first), *self.problems_after(out)]

    def own_problems(self, outcome: Outcome) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with a command that was disturbed."""
        if outcome.hung:
            yield "hang", outcome.output
        if outcome.crashed:
            yield "traceback", outcome.output

    def problems_after(self, out: Path) -> list[tuple[str, str]]:
        """Run the job to its end, undisturbed; return what is wrong with it and with what it left."""
        problems = []
        for _ in range(TRIES):
            last = run_command(self.job.words(out), self.work, limit=LIMIT)
            problems += [(f"{problem} of the next command", detail) for problem, detail in self.own_problems(last)]
            if last.code == 0:
                break
        else:
            return [*problems, ("does not finish", last.output)]
        if digests(out, self.job.exact) != self.reference:
            problems.append(("difference", last.output))
        if left := sorted(names_below(out) - self.names):
            problems.append(("leftover", ", ".join(left[:5])))
        return problems


def fresh(folder: Path) -> Path:
    """Return the folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def digests(root: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Return the digest of every file that matches a pattern."""
    files = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def names_below(root: Path) -> frozenset[str]:
    """Return the relative names of everything below a folder."""
    return frozenset(str(path.relative_to(root)) for path in root.rglob("*"))
