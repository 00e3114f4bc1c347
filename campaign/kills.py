"""Kill commands at every change of a file and at random times, run them again, compare with an undisturbed run."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .jobs import Job, make_jobs
from .processes import Outcome, before_file_changes, count_file_changes
from .report import Finding, Tally
from .seeds import Seeds

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TRIES = 3  # runs after the kill until the command has to be done
AT_CHANGES = 0.75  # this rate of the kills hits the moment before a change of a file


def run_kills(
    seeds: Seeds, work: Path, rng: random.Random, until: float, tally: Tally, most: int | None = None
) -> None:
    """Kill until the time is over, or `most` times: jobs by their weights, before a change of a file or at random."""
    trials = [trial for job in make_jobs(seeds) if (trial := Trial.prepare(job, work, rng, tally)) is not None]
    weights = [trial.job.weight for trial in trials]
    turn = 0
    while trials and time.monotonic() < until and (most is None or turn < most):
        trial = trials[turn] if turn < len(trials) else rng.choices(trials, weights)[0]  # every job at least once
        trial.kill_once(rng, tally)
        turn += 1
    num_hit, num_changes = sum(trial.num_hit for trial in trials), sum(trial.num_changes for trial in trials)
    tally.note(
        f"kills: just before {num_hit:,} of the {num_changes:,} changes of files that the jobs make, each once"
    )


@dataclass
class Trial:
    """A job, what it leaves when nothing disturbs it, and how often it changes a file."""

    job: Job
    work: Path
    reference: dict[str, str]
    names: frozenset[str]
    num_changes: int
    seconds: float
    changes: list[int] = field(default_factory=list)  # in a random order, to be used in turn
    num_kills: int = 0

    @classmethod
    def prepare(cls, job: Job, work: Path, rng: random.Random, tally: Tally) -> Trial | None:
        """Run the job undisturbed; None, and a finding, if that fails."""
        out, counter = job.start_folder(work / "out"), work / "changes"
        outcome = job.run(out, count_file_changes(out, counter))
        num_changes = counter.stat().st_size
        if outcome.code != job.code or not num_changes:
            tally.add(Finding("kills", job.name, "does not run undisturbed", outcome.output))
            return None
        changes = list(range(1, num_changes + 1))
        rng.shuffle(changes)
        return cls(job, work, digests(out, job.exact), names_below(out), num_changes, outcome.seconds, changes)

    @property
    def num_hit(self) -> int:
        """The number of different changes of files that a kill preceded."""
        return min(self.num_kills, self.num_changes)

    def kill_once(self, rng: random.Random, tally: Tally) -> None:
        """Kill the job once, run it to its end, and compare."""
        out, number = self.job.start_folder(self.work / "out"), rng.choice(SIGNALS)
        if rng.random() < AT_CHANGES:
            change = self.changes[self.num_kills % self.num_changes]
            self.num_kills += 1
            moment = f"{signal.Signals(number).name} before change {change} of {self.num_changes}"
            kill = before_file_changes(out, lambda count: os.kill(os.getpid(), number) if count == change else None)
            first = self.job.run(out, kill)
        else:
            seconds = rng.random() * self.seconds
            moment = f"{signal.Signals(number).name} after {seconds:.2f} s"
            first = self.kill_after(out, number, seconds)
        part = f"kills: {self.job.name}"
        tally.count(part, first.memory)
        for problem, detail in [*self.own_problems(first), *self.problems_after(out)]:
            tally.add(Finding(part, moment, problem, detail))

    def kill_after(self, out: Path, number: int, seconds: float) -> Outcome:
        """Kill the job after some seconds; a worker by the default action of SIGALRM, which nothing catches."""
        if self.job.is_worker:
            return self.job.run(out, lambda: signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3)))
        return self.job.run(out, signal_after=(number, seconds))

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
            last = self.job.run(out)
            problems += [(f"{problem} of the next command", detail) for problem, detail in self.own_problems(last)]
            if last.code == self.job.code:
                break
        else:
            return [*problems, ("does not finish", last.output)]
        if digests(out, self.job.exact) != self.reference:
            problems.append(("difference", last.output))
        if left := sorted(names_below(out) - self.names):
            problems.append(("leftover", ", ".join(left[:5])))
        return problems


def digests(root: Path, patterns: Sequence[str]) -> dict[str, str]:
    """Return the digest of every file that matches a pattern."""
    files = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def names_below(root: Path) -> frozenset[str]:
    """Return the relative names of everything below a folder."""
    return frozenset(str(path.relative_to(root)) for path in root.rglob("*"))
