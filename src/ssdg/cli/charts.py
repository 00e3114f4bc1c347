"""Figures of `ssdg demo` and `ssdg evaluate`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from ..bench.tables.paper_figures import COLORS, canvas
from ..schema import LabelKind, Result

Runs = dict[str, list[Result]]


def draw_demo(results: Runs, path: Path) -> Path:
    """Draw accuracy on the unseen domain after every epoch (left) and pseudo-label accuracy per cycle (right)."""
    task = results["eid"][0].task
    with canvas(path, 2, figsize=(10, 4.2)) as (figure, (left, right)):
        figure.suptitle(f"labeled {task.labeled}, unlabeled {' and '.join(task.unlabeled)}, unseen {task.target}")
        _draw_target(left, results, task.target)
        _draw_labels(right, results["eid"])
    return path


def draw_coverage(report: dict[str, Any], name: str, path: Path) -> Path:
    """Draw the accuracy-coverage curve of `ssdg evaluate --reject`, and mark the threshold."""
    curve = report["curve"]
    with canvas(path, figsize=(5.4, 3.6)) as (_, axes):
        axes.plot(curve["coverage"], curve["accuracy"], color=COLORS[0], drawstyle="steps-pre", label=name)
        if report["accepted"]:
            label = f"--reject {report['share']:g}"
            axes.plot(report["coverage"], report["accuracy"], "o", color=COLORS[1], label=label)
        xlabel, ylabel = "coverage (% of images of a known class)", "accuracy of accepted images (%)"
        axes.set(xlabel=xlabel, ylabel=ylabel, xlim=(0, 101))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="0.9")
        axes.legend(frameon=False)
    return path


def _draw_target(axes: Any, results: Runs, target: str | None) -> None:
    curves = [[row.target[-1] for row in run.epochs] for run in results["eid"]]
    epochs = range(1, len(curves[0]) + 1)
    for curve in curves if len(curves) > 1 else []:
        axes.plot(epochs, curve, color=COLORS[0], alpha=0.3, linewidth=1)
    axes.plot(epochs, [mean(values) for values in zip(*curves, strict=True)], "o-", color=COLORS[0], label="eid")
    baseline = mean(run.target.final["mean"] for run in results["source-only"] if run.target)
    axes.axhline(baseline, color=COLORS[1], linestyle="--", label="source-only")
    rounds = [row.round for row in results["eid"][0].epochs]
    for epoch, (before, after) in enumerate(pairwise(rounds), start=1):
        if before != after:
            axes.axvline(epoch + 0.5, color="0.8", linewidth=1)
    axes.set(xlabel="epoch of DCG (gray lines: next cycle)", ylabel="accuracy (%)", title=f"unseen domain: {target}")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, loc="lower right")


def _draw_labels(axes: Any, runs: list[Result]) -> None:
    """Draw the accuracy of all pseudo-labels and of those that are learned: a clean set, or the most confident."""
    has_clean_set = any(audit.kind == "clean-set" for run in runs for audit in run.pseudo_labels)
    learned: tuple[LabelKind, str] = ("clean-set", "clean set") if has_clean_set else ("pseudo-labels", "selected")
    for color, name in zip(COLORS, runs[0].task.unlabeled, strict=False):
        cycles, values = _accuracy_by_cycle(runs, "pseudo-labels", name, selected=False)
        axes.plot(cycles, values, "o-", color=color, label=f"{name}, all pseudo-labels")
        cycles, values = _accuracy_by_cycle(runs, learned[0], name, selected=True)
        axes.plot(cycles, values, "s:", color=color, label=f"{name}, {learned[1]}")
    axes.set(xlabel="cycle", ylabel="pseudo-label accuracy (%)", title="pseudo-labels of the unlabeled domains")
    axes.set_xticks(sorted({audit.round for run in runs for audit in run.pseudo_labels}))
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, loc="lower right")


def _accuracy_by_cycle(
    runs: list[Result], kind: LabelKind, domain: str, *, selected: bool
) -> tuple[list[int], list[float]]:
    """Return cycles and label accuracy (%) of all or of the selected images, averaged over the runs."""
    by_cycle: dict[int, list[float]] = {}
    for run in runs:
        for audit in run.pseudo_labels:
            if audit.kind == kind and domain in audit.domains:
                row = audit.domains[domain]
                value = row.kept_accuracy if selected else row.accuracy
                by_cycle.setdefault(audit.round, []).extend([] if value is None else [value])
    known = {cycle: values for cycle, values in by_cycle.items() if values}
    return list(known), [mean(values) for values in known.values()]
