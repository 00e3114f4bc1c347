"""The throughput of local workers: the same grid with one worker and with one per core, in turns.

    python benchmarks/workers.py [--jobs 2] [--cells 4] [--steps 300] [--rounds 2]

Cells differ by their seed alone: they cost the same and share no stage. The whole command is timed: its start,
the processes of the cells and their starts, training, evaluation, files. The embedded digits are made before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ssdg.data.embedded.digits import digits_root
from ssdg.engine.setup import default_cache


def seconds_of(jobs: int, cells: int, steps: int) -> float:
    """Run a fresh grid of `source-only` with so many workers."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ssdg", "bench", "digits", "--preset", "quick", "--out", folder]
        command += ["--methods", "source-only", "--tasks", "syn:mnist", "--seeds", *map(str, range(cells))]
        started = time.perf_counter()
        subprocess.run(
            [*command, "--jobs", str(jobs), "epochs=1", f"iterations={steps}"], check=True, capture_output=True
        )
        seconds = time.perf_counter() - started
        done = list(Path(folder).glob("cells/*/result.json"))
    if len(done) != cells:
        raise SystemExit(f"{len(done)} of {cells} cells are done")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cells", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    digits_root(default_cache())
    jobs = (1, arguments.jobs)
    taken: dict[int, list[float]] = {count: [] for count in jobs}
    for _ in range(arguments.rounds):
        for count in jobs:
            taken[count].append(seconds_of(count, arguments.cells, arguments.steps))
    table = Table("workers", "seconds of a grid, by round", "cells per minute")
    for count in jobs:
        per_minute = 60 * arguments.cells * arguments.rounds / sum(taken[count])
        table.add_row(str(count), ", ".join(f"{s:.1f}" for s in taken[count]), f"{per_minute:.2f}")
    Console().print(table)
    print(json.dumps({"throughput_ratio": round(sum(taken[1]) / sum(taken[arguments.jobs]), 3)}))


if __name__ == "__main__":
    main()
