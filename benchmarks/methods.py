"""Compare all methods on two digits tasks at equal cost, and measure the cost of a step.

    python benchmarks/methods.py --digits ROOT [--out DIR] [--workers 2] [--methods A B] [--warm 600] [--passes 500]

ROOT holds mnist.npz, mnist_m.npz and svhn.npz; `syn` is rendered by the embedded benchmark. All methods start from
one backbone per labeled domain, trained on it for `--warm` steps: with random weights, the first few hundred
steps learn nothing, and a method with few, expensive steps would not get past them. The budget is that of `--passes`
steps of source-only, counting a backward pass as two forward passes; it is measured. A method with several stages
spends half of it on its labelers. Settings are those of preset `quick` for digits except for the schedule. Finished
runs are reused.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from passes import count_passes
from ssdg.data.embedded.digits import digits_root
from ssdg.data.sets import Inputs, PseudoLabels
from ssdg.engine.batches import make_stream, steps_per_epoch
from ssdg.engine.pipelines import image_pipeline
from ssdg.engine.run import Builder, NetworkSettings
from ssdg.engine.setup import default_cache, open_run
from ssdg.machine import start_machine
from ssdg.methods import METHODS, find_method
from ssdg.methods.api import LabelRequest, Learner, Progress, Settings, StageRequest, Trainer

TASKS = (("syn", "mnist"), ("mnist_m", "syn"))
FAMILIES = ("source", "DA", "DG", "DA+DG", "SSL", "ours")
EPOCHS = 3  # evaluations of the target
CYCLES = 3


@dataclass
class Stages:
    """A runner that trains nothing and records the first stage of each key."""

    requests: dict[str, tuple[Learner, Inputs, Settings]] = field(default_factory=dict)

    def run_stage(self, request: StageRequest) -> None:
        self.requests.setdefault(request.key, (request.learner, request.inputs, request.settings))

    def run_labeling(self, request: LabelRequest) -> PseudoLabels:
        count = len(request.pool)
        y = np.arange(count) % 10
        return PseudoLabels(y, np.ones(count, bool), np.ones(count, np.float32), y[None])


@dataclass(frozen=True)
class Cost:
    """Cost of one step of a stage; seconds are relative to a step of source-only measured alternately."""

    forward: float
    backward: float
    seconds: float
    steps: int  # of an epoch

    @property
    def passes(self) -> float:
        """In forward passes of the labeled batch."""
        return self.forward + 2 * self.backward


def measure(name: str, root: Path) -> dict[str, Cost]:
    """What the stages of a method cost, by key."""
    stages = stages_of(name, root)
    (base,) = stages_of("source-only", root).values()
    costs = {}
    for key, stage in stages.items():
        if key == "warm":
            continue
        forward, backward = count_passes(stage[0], stage[2](0), AT)
        costs[key] = Cost(forward, backward, relative_seconds(stage, base), stage[1])
    return costs


AT = Progress(1, 5, 10, 50, 100)
Stage = tuple[Learner, int, Any]  # learner, steps of an epoch, step -> batch


def stages_of(name: str, root: Path) -> dict[str, Stage]:
    """The stages that the method asks for, ready to be stepped."""
    settings = {
        **run_settings(name),
        "data": str(root),
        "labeled": TASKS[0][0],
        "target": TASKS[0][1],
        "method": name,
    }
    config, problem = open_run({**settings, "preset": "quick"}, default_cache(), device="cpu")
    machine, stages = start_machine("cpu", config.precision), Stages()
    builder = Builder(NetworkSettings.of(config), len(problem.task.classes), machine)
    find_method(name).fit(problem.task, Trainer(stages), builder.build, config.settings)
    pipeline = image_pipeline(config, len(problem.task.classes), machine)
    return {
        key: (learner, steps_per_epoch(inputs, settings), make_stream(inputs, settings.batch, 0, pipeline).draw)
        for key, (learner, inputs, settings) in stages.requests.items()
    }


def relative_seconds(stage: Stage, base: Stage, rounds: int = 8) -> float:
    """Median seconds of a step, its batch included, over those of source-only; the two take turns."""
    seconds: list[list[float]] = [[], []]
    for number in range(rounds):
        for kept, (learner, _, draw) in zip(seconds, (stage, base), strict=True):
            learner.nets.train()
            start = time.perf_counter()
            learner.step(draw(number), AT)
            kept.append(time.perf_counter() - start)
    mine, theirs = (statistics.median(kept[2:]) for kept in seconds)
    return mine / theirs


def run_settings(name: str) -> dict[str, Any]:
    """What this benchmark changes in preset `quick`."""
    return {"warm_epochs": 0, "cycles": CYCLES} if name == "eid" else {}


def schedule(name: str, costs: dict[str, Cost], budget: float) -> list[str]:
    """Settings under which all stages together make `budget` passes: half for the labelers, if there are any."""
    labelers = [cost for key, cost in costs.items() if key.startswith("apl/")]
    (main,) = [cost for key, cost in costs.items() if not key.startswith("apl/")]
    cycles = CYCLES if name == "eid" else 1
    epochs = max(1, EPOCHS // cycles) if cycles > 1 else EPOCHS
    share = budget / (2 if labelers else 1) / cycles
    words = [f"epochs={epochs}", f"iterations={max(1, round(share / epochs / main.passes))}"]
    if labelers:
        steps = share / sum(cost.passes for cost in labelers)
        words += ["labeler.epochs=1", f"labeler.iterations={max(1, round(steps))}"]
    return words


def warm_backbone(labeled: str, steps: int, root: Path, out: Path) -> Path:
    """A file of backbone weights after source-only training on the domain."""
    path = out / f"warm-{labeled}.safetensors"
    if not path.exists():
        target = next(target for first, target in TASKS if first == labeled)
        folder = out / f"warm-{labeled}"
        done = train("source-only", (labeled, target), ["epochs=1", f"iterations={steps}"], root, folder)
        if "error" in done:
            raise SystemExit(done["error"])
        weights = load_file(folder / f"source-only-{labeled}-{target}" / "model" / "model.safetensors")
        prefix = "network.0."
        save_file({k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}, path)
    return path


def train(name: str, task: tuple[str, str], words: list[str], root: Path, out: Path) -> dict[str, Any]:
    """One run in a process of one thread, or the result it has left."""
    folder = out / f"{name}-{task[0]}-{task[1]}"
    command = [sys.executable, "-m", "ssdg", "train", "--data", str(root), "--labeled", task[0], "--target", task[1]]
    command += ["--method", name, "--preset", "quick", "--threads", "1", "--out", str(folder)]
    done = subprocess.run(
        [*command, *words, *(f"{key}={value}" for key, value in run_settings(name).items())],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return dict(json.loads((folder / "result.json").read_text()))


def gather(digits: Path, out: Path) -> Path:
    """A folder with the four domains."""
    root = out / "digits"
    root.mkdir(parents=True, exist_ok=True)
    sources = {name: digits / f"{name}.npz" for name in ("mnist", "mnist_m", "svhn")}
    sources["syn"] = digits_root(default_cache()) / "syn.npz"
    for name, path in sources.items():
        link = root / f"{name}.npz"
        link.unlink(missing_ok=True)
        link.symlink_to(path.absolute())
    return root


def row(name: str, costs: dict[str, Cost], results: list[dict[str, Any]], floor: list[float], base: Cost) -> str:
    """A line of the table; accuracy below source-only is set in italics."""
    epoch = sum(cost.seconds * cost.steps for cost in costs.values()) / base.steps  # one of every stage
    cells = []
    for result, least in zip(results, floor, strict=True):
        value = result.get("target", {}).get("final", {}).get("mean")
        cells.append("failed" if value is None else f"{value:.2f}" if value >= least else f"*{value:.2f}*")
    main = next(cost for key, cost in costs.items() if not key.startswith("apl/"))
    steps = sum(phase["steps"] for phase in results[0].get("phases", {}).values())
    passes = f"{main.forward:g} + {main.backward:g}"
    return f"| `{name}` | {' | '.join(cells)} | {passes} | {steps} | {epoch:.1f} |"


def main(arguments: argparse.Namespace) -> None:
    """Measure, train, print."""
    torch.set_num_threads(1)
    root = gather(arguments.digits, arguments.out)
    names = sorted(METHODS, key=lambda n: (FAMILIES.index(METHODS[n].family), n))
    names = [n for n in names if not arguments.methods or n in arguments.methods or n == "source-only"]
    costs = {name: measure(name, root) for name in names}
    base = costs["source-only"]["main"]
    budget = arguments.passes * base.passes
    cells = [(name, task) for name in names for task in TASKS]
    with ThreadPoolExecutor(arguments.workers) as pool:
        domains = [labeled for labeled, _ in TASKS]
        files = list(pool.map(lambda d: warm_backbone(d, arguments.warm, root, arguments.out), domains))
        weights = {domain: f"weights={file.absolute()}" for domain, file in zip(domains, files, strict=True)}

        def run(cell: tuple[str, tuple[str, str]]) -> dict[str, Any]:
            name, task = cell
            words = [*schedule(name, costs[name], budget), weights[task[0]]]
            return train(name, task, words, root, arguments.out)

        cell_results = list(pool.map(run, cells))
    results = {name: [r for (n, _), r in zip(cells, cell_results, strict=True) if n == name] for name in names}
    floor = [r["target"]["final"]["mean"] for r in results["source-only"]]
    titles = " | ".join(f"{a} → {b}" for a, b in TASKS)
    print(f"| Method | {titles} | Passes per step | Steps | Seconds per epoch |\n|---|{'---|' * (len(TASKS) + 3)}")
    for name in names:
        print(row(name, costs[name], results[name], floor, base))
        for result in results[name]:
            if "error" in result:
                print(f"<!-- {name}: {result['error']} -->")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--digits", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/methods"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--warm", type=int, default=600)
    parser.add_argument("--passes", type=int, default=500)
    main(parser.parse_args())
