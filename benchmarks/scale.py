"""Measure the memory of a run, its growth with the data, and the start-up time of commands.

    python benchmarks/scale.py [--quick] [--only memory flat start]

Every figure comes from a fresh single-threaded process. Memory is its peak resident memory, including interpreter,
libraries and networks. Core seconds (user + system) are reported next to wall-clock seconds, because a busy machine
affects only the latter.

memory  a run of `eid` from start to end (one labeled, two unlabeled domains, held-out images, a target; MCD labelers,
        DCG, labeling, clean set, evaluation, two cycles) with ResNet-18, 96 px, batch 32. Few steps: every step needs
        the same, and the second cycle finds all that the first has left in memory.
flat    the same data path with 2,000 to 360,000 images of 32 px in one file (sparse: pixels do not matter)
        and a network of one small layer: drawing training batches of the intermediate domain for one pass or
        more, then labeling, choosing the clean set, writing and reading the labels.
start   `ssdg --help`, dry runs, and opening the cache of a folder of 100,000 images, which `ssdg` itself has decoded.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from efficiency import CLASSES, trainer_for
from ssdg.config import resolve
from ssdg.data.cache import load_images
from ssdg.data.hidden import Problem, Target
from ssdg.data.pixel_files import FilePixels
from ssdg.data.sets import ImageTable, Inputs, LabeledSet, Rows, Task, UnlabeledSet
from ssdg.data.sources.tree import read_tree
from ssdg.engine.batches import make_stream
from ssdg.engine.run import run
from ssdg.machine import choose_precision, start_machine
from ssdg.methods.eid.bridge import evolve
from ssdg.methods.eid.settings import EidSettings
from ssdg.models.backbones import build_backbone
from whole import write_photos

BATCH, SIZE = 32, 96
COUNTS = (2_000, 20_000, 360_000)
LEAST_IMAGES = 20_000  # drawn and labeled in all, so that few images are measured as long as many


def stored_problem(count: int, size: int, path: Path, pixels: bytes = b"") -> Problem:
    """`count` images in a file as a labeled domain, two unlabeled ones, held-out images and a target."""
    with path.open("wb") as file:
        file.write(pixels)
        file.truncate(count * size * size * 3)
    rng = np.random.default_rng(0)
    y = rng.integers(0, CLASSES, count)
    digest = rng.integers(0, 256, (count, 16), np.uint8)
    table = ImageTable.from_pixels(FilePixels(path, (count, size, size, 3)), digest)
    first, second, third, held, goal = np.split(np.arange(count), [count * k // 10 for k in (4, 6, 8, 9)])

    def labeled(rows: Rows) -> LabeledSet:
        return LabeledSet(table.take(rows), y[rows], np.zeros(len(rows), np.int64), np.ones(len(rows), np.bool_))

    pools = {
        name: UnlabeledSet(table.take(rows), np.full(len(rows), number, np.int64))
        for number, (name, rows) in enumerate({"u1": second, "u2": third}.items(), start=1)
    }
    task = Task(tuple(f"class{k}" for k in range(CLASSES)), labeled(first), pools)
    target = Target("t", table.take(goal), tuple(f"t/{row}.png" for row in goal), y[goal])
    return Problem(task, ("l", *pools), target, validation=labeled(held), fingerprint="scale")


def run_eid(precision: str) -> dict[str, Any]:
    """The run whose memory is measured."""
    machine, count = start_machine("cpu", precision), 10 * 2 * BATCH
    settings = {"batch": BATCH, "epochs": 1, "iterations": 3}
    config = {"labeled": "l", "weights": "none", "precision": precision, "cycles": 2, **settings, "labeler": settings}
    with tempfile.TemporaryDirectory() as folder:
        pixels = np.random.default_rng(0).integers(0, 256, count * SIZE * SIZE * 3, np.uint8).tobytes()
        problem = stored_problem(count, SIZE, Path(folder) / "images.u8", pixels)
        run(resolve(config, kind="photo", size=SIZE), problem, Path(folder) / "run", machine)
    return {"seconds": time.process_time()}


class SmallNetworks:
    """Two single-layer networks on the mean colors of images, so that only data handling is measured."""

    def __init__(self) -> None:
        self.nets = nn.ModuleDict({"first": nn.Linear(3, CLASSES), "second": nn.Linear(3, CLASSES)})
        self.opts: dict[str, Any] = {}

    def logits(self, x: Tensor) -> Tensor:
        """(2, B, classes)."""
        return torch.stack([net(x.mean((2, 3))) for net in self.nets.values()])


def handle(num_images: str) -> dict[str, Any]:
    """Draw, label and choose; seconds of a core per image."""
    machine, learner, count = start_machine("cpu"), SmallNetworks(), int(num_images)
    settings = EidSettings.model_validate({})
    with tempfile.TemporaryDirectory() as folder:
        problem = stored_problem(count, 32, Path(folder) / "images.u8")
        drawn, labeled = [], []
        with (Path(folder) / "images.u8").open("rb") as file:  # the disk is not what is measured
            while file.read(2**24):
                pass
        for number in range(max(3, LEAST_IMAGES // count)):
            trainer = trainer_for(problem, machine, Path(folder) / str(number), "none")
            start = time.process_time()
            source = evolve(problem.task, trainer, learner, settings, cycle=1)  # type: ignore[arg-type]
            labeled.append((time.process_time() - start) / len(problem.task.pool))
            stream = make_stream(Inputs(source, unlabeled=problem.task.pool), 64, number, trainer.pipelines.images)
            start, steps = time.process_time(), -(-len(source) // 64)
            for step in range(steps):
                stream.draw(step)
            drawn.append((time.process_time() - start) / (steps * 64 * 3))  # two mixed images and an unlabeled one
    return {"draw": statistics.median(drawn), "label": statistics.median(labeled)}


def open_cache(root: str, cache: str) -> dict[str, Any]:
    """Seconds of listing the folder (every file's size and times are asked for) and of opening what was decoded."""
    marks = [(time.perf_counter(), time.process_time())]
    items = read_tree(Path(root)).images
    marks.append((time.perf_counter(), time.process_time()))
    opened = load_images(items, 8, Path(cache))
    marks.append((time.perf_counter(), time.process_time()))
    return {
        "images": len(opened.images),
        "list": [after - before for before, after in zip(marks[0], marks[1], strict=True)],
        "open": [after - before for before, after in zip(marks[1], marks[2], strict=True)],
    }


CHILDREN: dict[str, Callable[..., dict[str, Any]]] = {"memory": run_eid, "flat": handle, "open": open_cache}


def child(kind: str, *words: str) -> dict[str, Any]:
    """Return the figures that a fresh process prints, including its peak memory in MB (10^6 bytes)."""
    command = [sys.executable, __file__, "--child", kind, *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def be_child(kind: str, *words: str) -> None:
    """Do it and tell."""
    figures = CHILDREN[kind](*words)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({**figures, "peak": peak}))


def command_seconds(words: list[str], rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of the clock and of a core, of `ssdg` with these words."""
    walls, cores = [], []
    for _ in range(rounds):
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "ssdg", *words], capture_output=True, check=True)
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cores.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return walls, cores


def write_many(root: Path, count: int) -> None:
    """So many different images of 2 x 2 pixels, as plain files in ten folders."""
    for number in range(count):
        folder = root / f"class{number % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.ppm").write_bytes(b"P6 2 2 255\n" + number.to_bytes(12, "big"))


def memory(console: Console, quick: bool) -> None:
    table = Table("eid, ResNet-18, 96 px, batch 32", "peak, MB", "seconds of a core")
    auto = choose_precision(build_backbone("resnet18"), "cpu")
    for precision in dict.fromkeys((auto,) if quick else (auto, "fp32")):
        figures = child("memory", precision)
        note = f"{precision} (auto here)" if precision == auto else precision
        table.add_row(note, f"{figures['peak']:,.0f}", f"{figures['seconds']:.0f}")
    console.print(table)


def flat(console: Console, quick: bool) -> None:
    names = ("images", "peak, MB", "draw, us/image", "label + choose, us/image", "draw / first", "label / first")
    table, first = Table(*names), dict[str, Any]()
    for count in COUNTS[: 2 if quick else None]:
        figures = child("flat", str(count))
        first = first or figures
        times = [f"{figures[part] * 1e6:.1f}" for part in ("draw", "label")]
        ratios = [f"{figures[part] / first[part]:.2f}" for part in ("draw", "label")]
        table.add_row(f"{count:,}", f"{figures['peak']:,.0f}", *times, *ratios)
    console.print(table)


def start(console: Console, quick: bool) -> None:
    table = Table("command", "best, s", "median, s", "best, s of a core", "median, s of a core")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        write_photos(root / "photos", 80, 240)
        dry = ["train", "--dry-run", "--device", "cpu", "--threads", "1", "--cache", str(root / "cache")]
        digits = [*dry, "--data", "digits", "--labeled", "syn", "--target", "mnist", "--preset", "quick"]
        own = [*dry, "--labeled", str(root / "photos/one"), "--unlabeled", str(root / "photos/two")]
        own += ["--target", str(root / "photos/four"), "backbone=resnet18", "weights=none", "size=96"]
        cases = {"--help": ["--help"], "dry run, digits, first (renders)": digits, "dry run, digits, again": digits}
        cases |= {"dry run, ResNet-18, 96 px, first": own, "dry run, ResNet-18, 96 px, again": own}
        for title, words in cases.items():
            rounds = 5 if title == "--help" else 1 if "first" in title or quick else 3
            row = [f(v) for v in command_seconds(words, rounds) for f in (min, statistics.median)]
            table.add_row(title, *(f"{value:.2f}" for value in row))
        count = 20_000 if quick else 100_000
        write_many(root / "many", count)
        load_images(read_tree(root / "many").images, 8, root / "cache", title="building")
        figures = [child("open", str(root / "many"), str(root / "cache")) for _ in range(3)]
        for title, key in (("list a folder of", "list"), ("open the cache of", "open")):
            row = [f(row[key][k] for row in figures) for k in (0, 1) for f in (min, statistics.median)]
            table.add_row(f"{title} {figures[0]['images']:,} images", *(f"{value:.2f}" for value in row))
    console.print(table)


PARTS = {"memory": memory, "flat": flat, "start": start}


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one precision, 20,000 images at most, fewer rounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.child:
        be_child(*arguments.child)
        return
    for part in arguments.only:
        PARTS[part](Console(width=120), arguments.quick)


if __name__ == "__main__":
    main()
