"""The table and the figure of `ssdg demo --open-set`: what became of the keywords of a crawl."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from ..bench.figures import INK, canvas
from .demo import Result, Results, accuracy_cells, accuracy_of

STRATEGIES = ("ignored", "retained", "refined")


def open_table(results: Results) -> Table:
    """One row per strategy: accuracy, the labels that DCG learned, how much of the clean set is no digit, repairs."""
    target = results["refined"][0]["task"]["target"]
    table = Table(title=f"accuracy on {target} (never seen), %", title_justify="left", title_style="bold")
    table.add_column("web-labels", no_wrap=True)
    for name in ("accuracy", "labels right,\n% by cycle", "OOD in\nclean, %", "repaired", "broken"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, runs in results.items():
        row = accuracy_of(runs)
        cells = story(runs) if name in STRATEGIES else ["-"] * 4
        label = name if name in STRATEGIES else f"({name})"
        table.add_row(label, accuracy_cells(row)[-1], *cells)
    return table


def story(runs: list[Result]) -> list[str]:
    """Averages over the seeds; repaired and broken are keywords in the last clean set."""
    right = " → ".join(f"{value:.0f}" for value in over_seeds([labels_learned(run) for run in runs]))
    clean = [sets[-1] for run in runs if (sets := audits(run, "eid")) and sets[-1]["kept"]]
    if not clean:
        return [right, "-", "-", "-"]
    strange = mean(100 * one["ood_kept"] / one["kept"] for one in clean)
    return [right, f"{strange:.1f}", *(f"{mean(one[key] for one in clean):.0f}" for key in ("repaired", "broken"))]


def labels_learned(run: Result) -> list[float]:
    """Percent right, cycle by cycle, of the labels that DCG learned: keywords, or what the labelers said."""
    crawl = next(iter(run["web_labels"]["domains"].values()))
    cycles = sorted({row["round"] for row in run["epochs"]})
    found = dict.fromkeys(cycles, crawl["kept_accuracy"])
    if run["web_labels"]["strategy"] != "retained":
        found |= {one["round"]: one["kept_accuracy"] for one in audits(run, "apl")}
    return [found[number] for number in cycles]


def audits(run: Result, key: str) -> list[dict[str, Any]]:
    """What the auditor says of the crawl, cycle by cycle: of the labelers' labels (apl), of the clean sets (eid)."""
    found = [audit for audit in run["pseudo_labels"] if audit["key"].split("/")[0] == key]
    return [{"round": one["round"], **next(iter(one["domains"].values()))} for one in found]


def over_seeds(lists: list[list[float]]) -> list[float]:
    """The mean at each place."""
    return [mean(values) for values in zip(*lists, strict=True)]


def draw_open(results: Results, path: Path) -> Path:
    """Left: accuracy on the unseen domain after every epoch. Right: the labels that DCG learns, cycle by cycle."""
    task = results["refined"][0]["task"]
    with canvas(path, 2, figsize=(10, 4.2)) as (figure, (left, right)):
        figure.suptitle(f"labeled {task['labeled']}, a web search unlabeled, unseen {task['target']}")
        for colour, marker, name in zip(INK, "os^", STRATEGIES, strict=False):
            runs, style = results[name], {"color": colour, "marker": marker, "label": f"web-labels {name}"}
            curve = over_seeds([[row["target"][-1] for row in run["epochs"]] for run in runs])
            left.plot([(n + 1) / len(curve) * 100 for n in range(len(curve))], curve, **style)
            labels = over_seeds([labels_learned(run) for run in runs])
            right.plot(range(1, len(labels) + 1), labels, **style)
        floor = mean(run["target"]["final"]["mean"] for run in results["source-only"])
        left.axhline(floor, color="0.4", linestyle="--", label="source-only")
        left.set(xlabel="DCG done, %", ylabel="accuracy, %", title=f"unseen domain: {task['target']}")
        right.set(xlabel="cycle", ylabel="labels that are right, %", title="labels of the crawl that DCG learns")
        right.set_xticks(range(1, len(labels) + 1))
        for axes in (left, right):
            axes.set_ylim(0, 100)
            axes.legend(frameon=False, loc="lower right")
    return path
