"""A whole run, and a whole table, against the plain floor's passes with images decoded again in every epoch.

    python benchmarks/whole.py [--only resnet18] [--images 64] [--rounds 2]
    python benchmarks/whole.py --table [--images 384]

`ssdg train` runs the paper's schedule (three cycles, twice as many epochs for labelers as for DCG) with fewer epochs
and images: start, decoding, all phases, evaluation, checkpoints and the model are in its seconds. The floor's seconds
are the passes that the run made times what each costs in a plain loop (benchmarks/floor.py), measured right before
and after it: iterations of MCD and DCG, looks at the target after every epoch of DCG and at the unlabeled images for
labels, and every one of these images read from its file. Both are CPU seconds of one thread. `--table` compares wall
times: `ssdg bench` of twelve tasks with two workers of one thread, and the floor's passes for twelve runs with two
threads.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table

import floor

CASES = {"resnet18": (96, 32, 227), "digits-cnn": (32, 128, 32)}  # size, batch, pixels of the files
IMAGES = {"resnet18": 64, "digits-cnn": 768}
DOMAINS, CLASSES = ("one", "two", "three", "four"), 7
EPOCHS, CYCLES = 3, 3  # of DCG; labelers have twice as many
KINDS = ("mcd", "dcg", "look", "read")
CHILD = {**os.environ, "OMP_NUM_THREADS": "1"}


def write_photos(root: Path, images: int, pixels: int) -> None:
    """Four domains of JPEGs with smooth random content, which compress and decode like photos."""
    rng = np.random.default_rng(0)
    for domain in DOMAINS:
        for k in range(images):
            folder = root / domain / f"class{k % CLASSES}"
            folder.mkdir(parents=True, exist_ok=True)
            coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8))
            coarse.resize((pixels, pixels), Image.Resampling.BICUBIC).save(folder / f"{k}.jpg", quality=90)


def schedule(backbone: str) -> list[str]:
    """The overrides that make the paper's schedule short."""
    size, batch, _ = CASES[backbone]
    words = [f"backbone={backbone}", "weights=none", f"size={size}", f"augment={'photo' if size > 32 else 'none'}"]
    words += [f"batch={batch}", f"labeler.batch={batch}", f"epochs={EPOCHS}", f"labeler.epochs={2 * EPOCHS}"]
    return [*words, f"cycles={CYCLES}"]


def train(backbone: str, root: Path, folder: Path) -> float:
    """CPU seconds of `ssdg train`."""
    command = [sys.executable, "-m", "ssdg", "train", "--data", str(root), "--labeled", "one", "--target", "four"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run([*command, "--cache", str(folder / "cache"), "--out", str(folder / "run"), *schedule(backbone)])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(command: list[str]) -> None:
    """A command that must succeed."""
    done = subprocess.run(command, env=CHILD, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def passes_of(run_folder: Path, images: int, batch: int) -> dict[str, float]:
    """How often a run made each kind of pass; looks are batches, reads are images."""
    lines = (run_folder / "events.jsonl").read_text().splitlines()
    stages = next(event["stages"] for event in map(json.loads, lines) if event["event"] == "start")
    mcd = sum(stage["steps"] for stage in stages if stage["key"].startswith("apl/"))
    dcg = sum(stage["steps"] for stage in stages if stage["key"] == "dcg")
    # One network labels each of two domains, then two networks look at both for the clean set, in every cycle.
    labeled, evaluated = CYCLES * 2 * images, CYCLES * EPOCHS * images
    looks = (labeled * 0.5 + labeled + evaluated) / batch  # of a batch through two networks
    return {"mcd": mcd, "dcg": dcg, "look": looks, "read": 2 * batch * (mcd + dcg) + 2 * labeled + evaluated}


def cost(backbone: str, root: Path, threads: int, repeats: int) -> dict[str, list[float]]:
    """Return the seconds of each kind of pass, measured in a separate process."""
    command = [sys.executable, __file__, "--cost", "--only", backbone, "--root", str(root)]
    command += ["--threads", str(threads), "--repeats", str(repeats)]
    environment = {**CHILD, "OMP_NUM_THREADS": str(threads)}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    answer: dict[str, list[float]] = json.loads(out)
    return answer


def measure_cost(backbone: str, root: Path, threads: int, repeats: int) -> dict[str, list[float]]:
    """What `cost` asks for; wall time where there are several threads."""
    torch.set_num_threads(threads)
    size, batch, _ = CASES[backbone]
    clock = time.process_time if threads == 1 else time.perf_counter
    x, u = (torch.rand(batch, 3, size, size) for _ in range(2))
    files = sorted(root.rglob("*.jpg"))[:: max(1, DOMAINS.index("four") * 16)][:64]
    acts: dict[str, Callable[[], object]] = {
        "mcd": partial(floor.mcd(backbone, CLASSES), x, u),
        "dcg": partial(floor.dcg(backbone, CLASSES), x, u),
        "look": partial(floor.look(backbone, CLASSES, 2), x),
        "read": lambda: [floor.read(path, size) for path in files],
    }
    taken = {kind: floor.seconds(acts[kind], repeats + 1, clock)[1:] for kind in KINDS}
    return {**taken, "read": [seconds / len(files) for seconds in taken["read"]]}


def floor_seconds(passes: dict[str, float], costs: list[dict[str, list[float]]]) -> float:
    """The passes at their mean cost."""
    return sum(passes[kind] * statistics.fmean(s for cost in costs for s in cost[kind]) for kind in KINDS)


def whole_run(backbone: str, images: int, rounds: int, repeats: int) -> Table:
    """Runs with the floor measured before, between and after them."""
    _, batch, pixels = CASES[backbone]
    table = Table("run", *(f"{kind}, s" for kind in KINDS), "floor, core s", "ours, core s", "ours / floor")
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "photos"
        write_photos(root, images, pixels)
        costs = [cost(backbone, root, 1, repeats)]
        for k in range(rounds):
            folder = Path(name) / str(k)
            ours = train(backbone, root, folder)
            costs.append(cost(backbone, root, 1, repeats))
            passes = passes_of(folder / "run", images, batch)
            plain = floor_seconds(passes, costs[-2:])
            parts = [passes[kind] * statistics.fmean(costs[-1][kind]) for kind in KINDS]
            table.add_row(
                f"{backbone}, {k + 1}",
                *(f"{s:.1f}" for s in parts),
                f"{plain:.1f}",
                f"{ours:.1f}",
                f"{ours / plain:.3f}",
            )
    return table


def whole_table(backbone: str, images: int, repeats: int) -> Table:
    """Twelve tasks."""
    _, batch, pixels = CASES[backbone]
    with tempfile.TemporaryDirectory() as name:
        root, out = Path(name) / "photos", Path(name) / "bench"
        write_photos(root, images, pixels)
        suite = Path(name) / "suite.yaml"
        suite.write_text("preset: paper\nmethods: [{method: eid, name: eid}]\n")
        command = [sys.executable, "-m", "ssdg", "bench", str(suite), "--data", str(root), "--out", str(out)]
        costs = [cost(backbone, root, 2, repeats)]
        since = time.perf_counter()
        run([*command, "--cache", str(Path(name) / "cache"), "--jobs", "2", *schedule(backbone)])
        ours = time.perf_counter() - since
        costs.append(cost(backbone, root, 2, repeats))
        cells = sorted(path.parent for path in out.glob("cells/*/result.json"))
        plain = sum(floor_seconds(passes_of(cell, images, batch), costs) for cell in cells)
    table = Table("cells", "floor with two threads, s", "ours with two workers, s", "ours / floor")
    table.add_row(str(len(cells)), f"{plain:.0f}", f"{ours:.0f}", f"{ours / plain:.3f}")
    return table


def main() -> None:
    """Compare, or measure the floor."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--images", type=int, help="per domain")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=8, help="of each kind of pass, every time it is measured")
    parser.add_argument("--table", action="store_true")
    for hidden, kind in (("--root", Path), ("--threads", int)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--cost", action="store_true", help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.cost:
        print(json.dumps(measure_cost(arguments.only, arguments.root, arguments.threads, arguments.repeats)))
        return
    console = Console(width=120)
    if arguments.table:
        console.print(whole_table(arguments.only or "digits-cnn", arguments.images or 384, arguments.repeats))
        return
    for backbone in [arguments.only] if arguments.only else CASES:
        console.print(whole_run(backbone, arguments.images or IMAGES[backbone], arguments.rounds, arguments.repeats))


if __name__ == "__main__":
    main()
