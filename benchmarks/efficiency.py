"""Compare the training loop with bare forward and backward passes, and measure decoding.

    python benchmarks/efficiency.py [--quick] [--photos ROOT]

Every comparison is made in one process and interleaved, so that a busy machine slows down both sides equally.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event as Flag

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from ssdg.data.cache import load_images
from ssdg.data.hidden import Problem
from ssdg.data.pixel_files import FilePixels
from ssdg.data.sets import ImageTable, Inputs, LabeledSet, Task, UnlabeledSet
from ssdg.data.sources.decode import decode
from ssdg.data.sources.tree import Reader, read_tree
from ssdg.data.streams import Pipeline
from ssdg.engine.events import Events
from ssdg.engine.loop import Clock
from ssdg.engine.pipelines import Pipelines
from ssdg.engine.stages import StageTrainer
from ssdg.machine import Machine, choose_precision, start_machine
from ssdg.methods.adaptation.mcd import Mcd, McdSettings
from ssdg.methods.api import Learner, Progress, Sizes, Trainer
from ssdg.methods.eid.dual import DualNetworks
from ssdg.methods.eid.settings import EidSettings
from ssdg.models.backbones import build_backbone

CLASSES = 7


class Interleaved:
    """Passes steps on to a learner and runs the floor after each; keeps the seconds of both apart.

    The loop's seconds are all that passes between the end of one floor and the end of the next step: drawing
    the batch, augmentation, the step and the engine's bookkeeping.
    """

    def __init__(self, learner: Learner, floor: Callable[[], None]) -> None:
        self.learner, self.floor = learner, floor
        self.nets, self.opts, self.logits = learner.nets, learner.opts, learner.logits
        self.seconds: list[tuple[float, float]] = []  # (loop, floor) of each iteration
        self.mark: float | None = None

    def step(self, batch: object, at: Progress) -> dict[str, Tensor]:
        """A step and a floor."""
        scalars = self.learner.step(batch, at)  # type: ignore[arg-type]
        stepped = time.perf_counter()
        self.floor()
        now = time.perf_counter()
        if self.mark is not None:
            self.seconds.append((stepped - self.mark, now - stepped))
        self.mark = now
        return scalars


def mcd_floor(learner: Mcd, x: Tensor, u: Tensor) -> Callable[[], None]:
    """The passes of steps A, B and C on random tensors: no loss, no update, no data."""
    net: nn.Module = copy.deepcopy(learner.features).train()

    def passes() -> None:
        net(x).sum().backward()
        with torch.no_grad():
            net(x)
        for _ in range(learner.inner_steps):
            net(u).sum().backward()

    return passes


def dcg_floor(learner: DualNetworks, x: Tensor) -> Callable[[], None]:
    """The passes of both networks, their style confusors included, on N + N random images."""
    nets = [copy.deepcopy(net).train() for net in learner.networks]

    def passes() -> None:
        for net in nets:
            net(x).sum().backward()

    return passes


def random_problem(count: int, size: int, folder: Path) -> Problem:
    """A labeled and an unlabeled domain of random images in a file."""
    rng, path = np.random.default_rng(0), folder / "images.bin"
    with path.open("wb") as file:
        for start in range(0, count, 1000):
            rows = min(1000, count - start)
            file.write(rng.integers(0, 256, (rows, size, size, 3), np.uint8).tobytes())
    digest = rng.integers(0, 256, (count, 16), np.uint8)
    table = ImageTable.from_pixels(FilePixels(path, (count, size, size, 3)), digest)
    half = np.arange(count // 2)
    y = rng.integers(0, CLASSES, len(half))
    labeled = LabeledSet(table.take(half), y, np.zeros(len(half), np.int64), np.ones(len(half), np.bool_))
    rest = np.arange(count // 2, count)
    unlabeled = UnlabeledSet(table.take(rest), np.ones(len(rest), np.int64))
    task = Task(tuple(f"class{k}" for k in range(CLASSES)), labeled, {"u": unlabeled})
    return Problem(task, ("l", "u"))


def trainer_for(problem: Problem, machine: Machine, folder: Path, kind: str) -> StageTrainer:
    pipeline = Pipeline(kind, machine.device, CLASSES)  # type: ignore[arg-type]
    clock = Clock(30.0, Flag(), machine)
    return StageTrainer(folder, 0, problem, Pipelines(pipeline), machine, Events(None), clock)


def measure(name: str, backbone: str, size: int, batch: int, steps: int) -> list[dict[str, float | str]]:
    """Loop against floor for MCD and DCG."""
    rows: list[dict[str, float | str]] = []
    precision = choose_precision(build_backbone(backbone), "cpu")
    machine = start_machine("cpu", precision)
    kind = "photo" if size > 32 else "none"
    with tempfile.TemporaryDirectory() as folder:
        problem = random_problem(2000, size, Path(folder))
        task, pool = problem.task, problem.task.unlabeled["u"]
        x, u = (torch.rand(batch * k, 3, size, size).contiguous(memory_format=torch.channels_last) for k in (1, 1))
        for method in ("mcd", "dcg"):
            torch.manual_seed(0)
            trainer = trainer_for(problem, machine, Path(folder) / method, kind)
            make = lambda: build_backbone(backbone)  # noqa: E731
            learner: Mcd | DualNetworks
            if method == "mcd":
                mcd = McdSettings(epochs=1, batch=batch, iterations=steps, lr=1e-4)  # type: ignore[call-arg]
                learner = Mcd(make, Sizes(CLASSES), mcd)
                machine.prepare(learner)
                timed = Interleaved(learner, mcd_floor(learner, x, u))
                Trainer(trainer).train("mcd", timed, Inputs(task.labeled, unlabeled=pool), mcd)
            else:
                eid = EidSettings(epochs=1, batch=batch, iterations=steps, lr=1e-4)  # type: ignore[call-arg]
                learner = DualNetworks(make, Sizes(CLASSES), eid)
                machine.prepare(learner)
                timed = Interleaved(learner, dcg_floor(learner, torch.cat([x, u])))
                Trainer(trainer).train("dcg", timed, Inputs(task.labeled, pseudo=task.labeled), eid)
            warm = timed.seconds[2:]
            ratio = sum(f for _, f in warm) / sum(loop for loop, _ in warm)
            rows.append(
                {
                    "what": f"{name}, {method}",
                    "precision": precision,
                    "floor_seconds": round(statistics.median(f for _, f in warm), 4),
                    "loop_seconds": round(statistics.median(loop for loop, _ in warm), 4),
                    "loop_speed_of_floor": round(ratio, 3),
                    "iterations": len(warm),
                }
            )
    return rows


def cache_speed(root: Path, size: int = 224, rounds: int = 3) -> dict[str, float | int]:
    """Images per second of building the cache and of decoding alone, on the same threads, in turns."""
    items = list(read_tree(root).images)
    bare, built = [], []
    for _ in range(rounds):
        with Reader() as reader:
            started = time.perf_counter()
            with ThreadPoolExecutor() as pool:
                for _image in pool.map(lambda item: decode(reader.content(item), size), items, chunksize=16):
                    pass
            bare.append(time.perf_counter() - started)
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            load_images(items, size, Path(folder))
            built.append(time.perf_counter() - started)
    return {
        "images": len(items),
        "bare_per_second": round(len(items) / min(bare)),
        "cache_per_second": round(len(items) / min(built)),
        "cache_speed_of_bare": round(sum(bare) / sum(built), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer iterations")
    parser.add_argument("--photos", type=Path, help="a root of photos, for the cache's speed")
    arguments = parser.parse_args()
    steps = 8 if arguments.quick else 24
    rows = measure("ResNet-18, 96 px, batch 32", "resnet18", 96, 32, steps)
    rows += measure("digits CNN, 32 px, batch 128", "digits-cnn", 32, 128, steps)
    console, table = Console(), Table("what", "precision", "floor, s", "loop, s", "loop speed / floor speed")
    for row in rows:
        numbers = (f"{row['floor_seconds']:.3f}", f"{row['loop_seconds']:.3f}", f"{row['loop_speed_of_floor']:.3f}")
        table.add_row(str(row["what"]), str(row["precision"]), *numbers)
    console.print(table)
    if arguments.photos:
        console.print(f"cache of {arguments.photos.name}: {cache_speed(arguments.photos)}")


if __name__ == "__main__":
    main()
