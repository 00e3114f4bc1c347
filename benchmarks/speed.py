"""Compare a step of the training loop with the plain baseline: the same forward and backward passes in a plain loop.

    python benchmarks/speed.py [--steps 20] [--only resnet18]

The plain baseline (benchmarks/floor.py) executes only the passes of a step. Ours is the loop of the engine, including
drawing images from a file and augmentation. They are two single-threaded processes (because the allocator is
per process) that alternate after every step; times are CPU seconds, so that other work on the machine has little
effect.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import floor
from efficiency import CLASSES, random_problem, trainer_for
from ssdg.data.sets import Inputs
from ssdg.machine import choose_precision, start_machine
from ssdg.methods.adaptation.mcd import Mcd, McdSettings
from ssdg.methods.api import Learner, Progress, Sizes, Trainer
from ssdg.methods.eid.dual import DualNetworks
from ssdg.methods.eid.settings import EidSettings
from ssdg.models.backbones import build_backbone

CASES = {"resnet18": (96, 32), "digits-cnn": (32, 128), "efficientnet-lite0": (96, 32)}  # size, batch
PARTS = ("mcd", "dcg")
WARM = 2  # first steps of either side that are not counted


class Turns:
    """A learner that waits for its turn after every step and prints the duration of the previous step."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.nets, self.opts, self.logits = learner.nets, learner.opts, learner.logits
        wait()
        self.since = time.process_time()

    def step(self, batch: Any, at: Progress) -> dict[str, Tensor]:
        """A step, then the other side's turn."""
        scalars = self.learner.step(batch, at)
        tell(time.process_time() - self.since)
        wait()
        self.since = time.process_time()
        return scalars


def wait() -> None:
    """Until the other process has had its turn."""
    if not sys.stdin.readline():
        sys.exit(0)


def tell(seconds: float) -> None:
    """How long this turn took."""
    print(json.dumps(seconds), flush=True)


def ours(backbone: str, part: str, steps: int) -> None:
    """The engine's loop."""
    size, batch = CASES[backbone]
    machine = start_machine("cpu", choose_precision(build_backbone(backbone), "cpu"))
    with tempfile.TemporaryDirectory() as folder:
        problem = random_problem(2000, size, Path(folder))
        task, pool = problem.task, problem.task.unlabeled["u"]
        trainer = trainer_for(problem, machine, Path(folder) / "run", "photo" if size > 32 else "none")
        schedule: dict[str, Any] = {"epochs": 1, "batch": batch, "iterations": steps, "lr": 1e-4}
        settings: Any = McdSettings(**schedule) if part == "mcd" else EidSettings(**schedule)
        kind: Any = Mcd if part == "mcd" else DualNetworks
        learner = kind(lambda: build_backbone(backbone), Sizes(CLASSES), settings)
        machine.prepare(learner)
        inputs = Inputs(task.labeled, unlabeled=pool) if part == "mcd" else Inputs(task.labeled, pseudo=task.labeled)
        Trainer(trainer).train(part, Turns(learner), inputs, settings)


def plain(backbone: str, part: str, steps: int) -> None:
    """The passes alone, as a plain loop makes them."""
    size, batch = CASES[backbone]
    passes = {"mcd": floor.mcd, "dcg": floor.dcg}[part](backbone, CLASSES)
    x, u = (torch.rand(batch, 3, size, size) for _ in range(2))
    for _ in range(steps):
        wait()
        since = time.process_time()
        passes(x, u)
        tell(time.process_time() - since)


def start(side: str, backbone: str, part: str, steps: int) -> subprocess.Popen[str]:
    """One of the two processes."""
    command = [sys.executable, __file__, "--side", side, "--only", backbone, "--part", part, "--steps", str(steps)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def turn(process: subprocess.Popen[str]) -> float:
    """Let a process make its step; returns its seconds."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline()))


def compare(backbone: str, part: str, steps: int) -> dict[str, Any]:
    """Medians, and the ratio of every pair of turns."""
    both = [start(side, backbone, part, steps + WARM) for side in ("plain", "ours")]
    try:
        pairs = [tuple(turn(process) for process in both) for _ in range(steps + WARM)][WARM:]
    finally:
        for process in both:
            process.kill()
    ratios = sorted(slow / fast for slow, fast in pairs)
    return {
        "backbone": backbone,
        "part": part,
        "precision": choose_precision(build_backbone(backbone), "cpu"),
        "plain": statistics.median(slow for slow, _ in pairs),
        "ours": statistics.median(fast for _, fast in pairs),
        "ratio": sum(slow for slow, _ in pairs) / sum(fast for _, fast in pairs),
        "quartiles": [ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]],
    }


def main() -> None:
    """Compare, or be one of the sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=("plain", "ours"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.side:
        {"plain": plain, "ours": ours}[arguments.side](arguments.only, arguments.part, arguments.steps)
        return
    names = ("network", "part", "precision", "plain, s", "ours, s", "times faster", "quartiles")
    table = Table(*names)
    for backbone in [arguments.only] if arguments.only else CASES:
        for part in PARTS:
            row = compare(backbone, part, arguments.steps)
            spread = "{:.2f} to {:.2f}".format(*row["quartiles"])
            times = (f"{row['plain']:.3f}", f"{row['ours']:.3f}", f"{row['ratio']:.2f}", spread)
            table.add_row(backbone, part, row["precision"], *times)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
