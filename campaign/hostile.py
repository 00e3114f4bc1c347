"""Hostile inputs by grammar and mutation: no traceback, no hang, no gigabytes, no byte outside the case's folder."""

from __future__ import annotations

import csv
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path

from .archive_inputs import ARCHIVE_MAKERS
from .browser import open_report
from .cases import Case, Maker
from .file_inputs import FILE_MAKERS
from .processes import Outcome, run_command
from .report import Finding, Tally
from .seeds import Seeds
from .text_inputs import TEXT_MAKERS
from .web_inputs import WEB_MAKERS

MAX_MEMORY = 2**30  # bytes above start-up
LIMIT = 60.0  # a case that takes longer than HANG of its own time is a finding; LIMIT ends it
HANG = 20.0
EXIT_CODES = (0, 1, 2)
FORMULA = re.compile(r"[=@\t\r]|[+-](?!\d)")  # at the start of a cell
MAKERS: dict[str, tuple[Maker, int]] = {**TEXT_MAKERS, **FILE_MAKERS, **ARCHIVE_MAKERS, **WEB_MAKERS}


def run_hostile(
    seeds: Seeds, work: Path, rng: random.Random, until: float, tally: Tally, most: int | None = None
) -> None:
    """Run cases until the time is over, or `most` of them: kinds of inputs in turn, cheap ones more often."""
    for turn, (name, make) in enumerate(cycle(spread(rng))):
        if time.monotonic() >= until or (most is not None and turn >= most):
            break
        around = work / "case"
        shutil.rmtree(around, ignore_errors=True)
        inside = around / "deep" / "inside"
        inside.mkdir(parents=True)
        case = make(seeds, inside, random.Random(rng.random()))
        outcome = run_command(case.words, inside, setup=lambda inside=inside: use_home(inside), limit=LIMIT)  # type: ignore[misc]
        judge(f"inputs: {name}", case, outcome, around, tally)
    if most is None:
        open_report(seeds, work, tally)


def spread(rng: random.Random) -> list[tuple[str, Maker]]:
    """Return every maker as often as its weight says, in a random order; the first ones are one of each."""
    once = [(name, make) for name, (make, _) in MAKERS.items()]
    more = [(name, make) for name, (make, weight) in MAKERS.items() for _ in range(weight - 1)]
    rng.shuffle(more)
    return once + more


def use_home(folder: Path) -> None:
    """Make the fork write what belongs into the user's home, or among temporary files, to the case's folder."""
    os.environ["HOME"] = str(folder / "home")
    os.environ["SSDG_CACHE"] = str(folder / "cache")
    (folder / "tmp").mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")


def judge(part: str, case: Case, outcome: Outcome, around: Path, tally: Tally) -> None:
    """Record what is wrong with the outcome of a case."""
    tally.count(part, outcome.memory, outcome.seconds)
    inside = around / "deep" / "inside"
    problems = {
        "traceback": outcome.crashed,
        "hang": outcome.hung or outcome.seconds > HANG,
        "memory": outcome.memory > MAX_MEMORY,
        "outside": os.listdir(around) != ["deep"] or os.listdir(around / "deep") != ["inside"],  # noqa: PTH208
        "leftover": any((inside / "tmp").glob("*")),
        "terminal escape": "\x1b[2J" in outcome.output,
        "formula in a table": outcome.code in (0, 1) and any(map(FORMULA.match, written_cells(inside))),
        f"exit code {outcome.code}": not outcome.crashed and not outcome.hung and outcome.code not in EXIT_CODES,
    }
    words = " ".join(str(word)[:60] for word in case.words)
    for problem, is_wrong in problems.items():
        if is_wrong:
            tally.add(Finding(part, f"{case.name}: ssdg {words}", problem, outcome.output[-2000:]))


def written_cells(folder: Path) -> Iterator[str]:
    """Yield the cells of the tables that a command wrote."""
    for path in (folder / "p.csv", folder / "web" / "manifest.csv"):
        with suppress(OSError), path.open(newline="", errors="replace") as file:
            for row in csv.reader(file):
                yield from row
