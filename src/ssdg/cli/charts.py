"""The figures of `ssdg demo` and `ssdg evaluate`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from ..bench.tables.paper_figures import INK, canvas

Runs = dict[str, list[dict[str, Any]]]


def draw_demo(results: Runs, path: Path) -> Path:
    """Left: accuracy on the unseen domain after every epoch. Right: pseudo-label accuracy per cycle."""
    task = results["eid"][0]["task"]
    with canvas(path, 2, figsize=(10, 4.2)) as (figure, (left, right)):
        figure.suptitle(
            f"labeled {task['labeled']}, unlabeled {' and '.join(task['unlabeled'])}, unseen {task['target']}"
        )
        _draw_target(left, results, task["target"])
        _draw_labels(right, results["eid"])
    return path


def draw_coverage(report: dict[str, Any], name: str, path: Path) -> Path:
    """Accuracy against coverage of `ssdg evaluate --reject`, with the coverage at the threshold."""
    curve = report["curve"]
    with canvas(path, figsize=(5.4, 3.6)) as (_, axes):
        axes.plot(curve["coverage"], curve["accuracy"], color=INK[0], drawstyle="steps-pre", label=name)
        if report["accepted"]:
            told = f"--reject {report['share']:g}"
            axes.plot(report["coverage"], report["accuracy"], "o", color=INK[1], label=told)
        axes.set(xlabel="coverage, % of the images of a class", ylabel="accuracy of the accepted, %", xlim=(0, 101))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9")
        axes.legend(frameon=False)
    return path


def _draw_target(axes: Any, results: Runs, target: str) -> None:
    curves = [[row["target"][-1] for row in run["epochs"]] for run in results["eid"]]
    epochs = range(1, len(curves[0]) + 1)
    for curve in curves if len(curves) > 1 else []:
        axes.plot(epochs, curve, color=INK[0], alpha=0.3, linewidth=1)
    axes.plot(epochs, [mean(values) for values in zip(*curves, strict=True)], "o-", color=INK[0], label="eid")
    baseline = mean(run["target"]["final"]["mean"] for run in results["source-only"])
    axes.axhline(baseline, color=INK[1], linestyle="--", label="source-only")
    rounds = [row["round"] for row in results["eid"][0]["epochs"]]
    for place, (before, after) in enumerate(pairwise(rounds), start=1):
        if before != after:
            axes.axvline(place + 0.5, color="0.8", linewidth=1)
    axes.set(xlabel="epoch of DCG (grey lines: next cycle)", ylabel="accuracy, %", title=f"unseen domain: {target}")
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, loc="lower right")


def _draw_labels(axes: Any, runs: list[dict[str, Any]]) -> None:
    for colour, name in zip(INK, runs[0]["task"]["unlabeled"], strict=False):
        for key, style, what in (("apl", "o-", "all pseudo-labels"), ("eid", "s:", "clean set")):
            cycles, values = _series(runs, key, name)
            axes.plot(cycles, values, style, color=colour, label=f"{name}, {what}")
    axes.set(xlabel="cycle", ylabel="labels that are right, %", title="pseudo-labels of the unlabeled domains")
    axes.set_xticks(sorted({audit["round"] for run in runs for audit in run["pseudo_labels"]}))
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, loc="lower right")


def _series(runs: list[dict[str, Any]], key: str, domain: str) -> tuple[list[int], list[float]]:
    """Percent right per cycle, averaged over the runs; of the kept images for the clean set."""
    field = "kept_accuracy" if key == "eid" else "accuracy"
    found: dict[int, list[float]] = {}
    for run in runs:
        for audit in run["pseudo_labels"]:
            value = audit["domains"].get(domain, {}).get(field)
            if audit["key"].split("/")[0] == key and value is not None:
                found.setdefault(audit["round"], []).append(value)
    return list(found), [mean(values) for values in found.values()]
