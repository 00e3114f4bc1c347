"""Compare discovered domains with true domains and with one pool, on digits, as Markdown tables.

python benchmarks/discovery.py --out runs/discovery
python benchmarks/discovery.py --only-piles --digits ROOT    # folder of mnist_m.npz, svhn.npz, ...; trains nothing
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from ssdg.config import RunConfig
from ssdg.data.hidden import Problem
from ssdg.discovery.discover import cluster_styles, make_mixtures
from ssdg.engine.pipelines import image_pipeline
from ssdg.engine.run import run
from ssdg.engine.setup import default_cache, open_run
from ssdg.machine import start_machine

ARMS: dict[str, Any] = {"true domains": None, "discovered (`auto`)": "auto", "one pool (`1`)": 1}
TASK: dict[str, Any] = {"data": "digits", "labeled": "syn", "unlabeled": ["mnist_m", "optdigits"], "target": "mnist"}
SCHEDULE: dict[str, Any] = {"preset": "quick", "cycles": 1, "epochs": 3}
# labeled domain and pile; single domains show whether one is taken for several
EMBEDDED = [
    ("syn", ("mnist_m", "optdigits")),
    ("syn", ("mnist", "optdigits")),
    ("syn", ("mnist", "mnist_m", "optdigits")),
    ("mnist", ("mnist_m", "syn")),
    *((("mnist" if name == "syn" else "syn"), (name,)) for name in ("mnist", "mnist_m", "optdigits", "syn")),
]
REAL = [
    ("mnist", ("mnist_m", "svhn")),
    ("svhn", ("mnist", "usps")),
    ("chars74k_font", ("mnist", "mnist_m", "svhn", "usps")),
    *((("usps" if name == "mnist" else "mnist"), (name,)) for name in ("mnist_m", "svhn", "usps", "chars74k_font")),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/discovery"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--digits", type=Path, help="a root of real digit domains, for mixtures of its domains")
    parser.add_argument("--only-piles", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| Pile | Images | Found | Purity, % | Strengths |\n|---|---|---|---|---|")
    for labeled, names in EMBEDDED:
        print(pile_row("digits", labeled, names), flush=True)
    for labeled, names in REAL if arguments.digits else ():
        print(pile_row(str(arguments.digits), labeled, names), flush=True)
    if not arguments.only_piles:
        compare(arguments.out, arguments.seeds)


def pile_row(data: str, labeled: str, names: tuple[str, ...]) -> str:
    """Return a table row with the clusters of a mixture, for seed 0."""
    settings = {"data": data, "labeled": labeled, "unlabeled": list(names), "preset": "quick"}
    config, problem = opened({**settings, "discover_domains": "auto"})
    (pile,) = make_mixtures(config, problem)
    clustering = cluster_styles(
        pile, config, image_pipeline(config, len(problem.task.classes), start_machine("cpu", "fp32"))
    )
    parts = [Counter(pile.source[clustering.of.numpy() == n].tolist()) for n in range(int(clustering.of.max()) + 1)]
    purity = 100 * sum(max(part.values()) for part in parts) / len(pile.images)
    clusters = "; ".join(
        ", ".join(f"{count:,} {pile.domains[n]}" for n, count in part.most_common()) for part in parts
    )
    strengths = ", ".join(f"{strength:.2f}" for strength in clustering.strengths)
    origin = "embedded" if data == "digits" else "real"
    return f"| {' + '.join(names)} ({origin}) | {len(pile.images):,} | {clusters} | {purity:.1f} | {strengths} |"


def compare(out: Path, seeds: list[int]) -> None:
    """Compare `eid` with true domains, with discovered domains and with one pool."""
    print("\n| Domains | Seed | Target accuracy, % | Pseudo-label accuracy, % | Purity, % | Images seen | Seconds |")
    print("|---|---|---|---|---|---|---|")
    means = {}
    for arm, wanted in ARMS.items():
        results = [trained(out / f"{str(wanted).lower()}-seed{seed}", wanted, seed) for seed in seeds]
        for seed, result in zip(seeds, results, strict=True):
            print(arm_row(arm, seed, result), flush=True)
        means[arm] = mean(result["target"]["final"]["mean"] for result in results)
    print("\nmean: " + ", ".join(f"{arm} {value:.2f}" for arm, value in means.items()))


def trained(folder: Path, wanted: Any, seed: int) -> dict[str, Any]:
    """A run; one that has ended is read."""
    config, problem = opened({**TASK, **SCHEDULE, "seed": seed, "discover_domains": wanted})
    return run(config, problem, folder, start_machine("cpu", config.precision))


def arm_row(arm: str, seed: int, result: dict[str, Any]) -> str:
    """Pseudo-labels are those of all labelers of the last cycle, before any is left out."""
    audits = [a for a in result["pseudo_labels"] if a["key"].startswith("apl/")]
    rows = [row for a in audits if a["round"] == audits[-1]["round"] for row in a["domains"].values()]
    accuracy = sum(row["accuracy"] * row["images"] for row in rows) / sum(row["images"] for row in rows)
    purity = result.get("discovery", {}).get("purity")
    purity_cell = "" if purity is None else f"{purity:.1f}"
    target, seen = result["target"]["final"]["mean"], result["images_seen"]
    return f"| {arm} | {seed} | {target:.2f} | {accuracy:.2f} | {purity_cell} | {seen:,} | {result['seconds']:.0f} |"


def opened(settings: dict[str, Any]) -> tuple[RunConfig, Problem]:
    return open_run(settings, default_cache(), device="cpu")


if __name__ == "__main__":
    main()
