"""Why pseudo-labels may get worse from cycle to cycle: what the intermediate domain feeds back to the labelers.

Trains `eid` on one task five times, with the schedule of docs/results/digits.yaml. They differ in one thing, what the
clean set is once the dual networks have labeled the pool:

    chosen       as the paper chooses it: agreement, then the smallest losses of all
    per-class    the smallest losses within each predicted class (clean_choice=per-class)
    balanced     as many of every predicted class as there are, no more in all (clean_choice=balanced)
    true labels  the paper's choice with its true classes, which no method can see
    none         no intermediate domain: every cycle starts from the labeled domain

    python benchmarks/feedback.py --data DIGITS/ --labeled mnist --target mnist_m --out runs/feedback

DIGITS/ holds one .npz per domain. Two cores need about ten minutes for a task.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from ssdg.data.sets import PseudoLabels, UnlabeledSet
from ssdg.engine.run import run
from ssdg.engine.setup import default_cache, open_run
from ssdg.engine.stages import StageTrainer
from ssdg.machine import start_machine
from ssdg.methods.api import LabelRequest
from ssdg.methods.eid import bridge, cycle

SCHEDULE: dict[str, Any] = {
    "preset": "quick",
    "method": "eid",
    "epochs": 3,
    "iterations": 17,
    "warm_epochs": 8,
    "warm_lr": 0.03,
    "labeler": {"epochs": 1, "iterations": 35},
}
VARIANTS = ("chosen", "per-class", "balanced", "true labels", "none")


def with_truth(trainer: StageTrainer, labels: PseudoLabels, pool: UnlabeledSet) -> PseudoLabels:
    """The same choice of images with their true classes."""
    y = labels.y.copy()
    for number in np.unique(pool.domain):
        y[pool.domain == number] = trainer.problem.truth[trainer.problem.domains[number]]
    return replace(labels, y=y)


@contextmanager
def variation(name: str) -> Iterator[None]:
    """The library with one thing changed."""
    label = StageTrainer.run_labeling

    def true_labels(self: StageTrainer, request: LabelRequest) -> PseudoLabels:
        labels = label(self, request)
        return with_truth(self, labels, request.pool) if request.kind == "clean-set" else labels

    def unmixed(task: Any, *rest: Any, **more: Any) -> Any:
        bridge.evolve(task, *rest, **more)  # for its audit
        return task.labeled

    changes: dict[str, Any] = {
        "true labels": patch.object(StageTrainer, "run_labeling", true_labels),
        "none": patch.object(cycle, "evolve", unmixed),
    }
    with changes.get(name, patch.object(cycle, "evolve", bridge.evolve)):
        yield


def train(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The result of one variant, found if it is done."""
    task = {"data": options.data, "labeled": options.labeled, "target": options.target, "seed": options.seed}
    settings = {**SCHEDULE, **task, "clean_choice": name if name in ("per-class", "balanced") else "whole"}
    config, problem = open_run(settings, options.cache or default_cache(), device="cpu")
    folder = options.out / name.replace(" ", "-")
    with variation(name):
        return run(config, problem, folder, start_machine("cpu", config.precision), stage_cache=options.out / "shelf")


def largest_share(folder: Path, number: int) -> float:
    """Of a clean set, percent that are of its most frequent predicted class."""
    with np.load(folder / "labels" / f"{number}-eid.npz") as file:
        counts = np.bincount(file["y"][file["keep"]])
    return 100 * float(counts.max() / counts.sum())


def report(name: str, result: dict[str, Any], folder: Path) -> str:
    """A row of the table."""
    rounds = range(1, int(result["config"]["cycles"]) + 1)
    audits = {
        (a["key"].split("/")[0], a["round"], d): row
        for a in result["pseudo_labels"]
        for d, row in a["domains"].items()
    }
    cells = []
    for domain in result["task"]["unlabeled"]:
        cells.append(" ".join(f"{audits['apl', n, domain]['accuracy']:.1f}" for n in rounds))
        cells.append(" ".join(f"{audits['eid', n, domain]['kept_accuracy']:.1f}" for n in rounds))
    cells.append(" ".join(f"{largest_share(folder, n):.0f}" for n in rounds))
    return " | ".join(["", name, *cells, f"{result['target']['last_five']['mean']:.2f}", ""]).strip()


def main() -> None:
    """Train and print a Markdown table; every figure goes cycle by cycle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "labeled", "target"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = {name: train(name, options) for name in options.variants}
    domains = next(iter(results.values()))["task"]["unlabeled"]
    heads = [f"{domain}: {what}, %" for domain in domains for what in ("pseudo-labels right", "clean set right")]
    names = ["clean set", *heads, "largest class of the clean set, %", f"{options.target}, %"]
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for name, result in results.items():
        print(report(name, result, options.out / name.replace(" ", "-")))
    (options.out / "feedback.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
