"""`ssdg demo`: train and compare on embedded data, with unlabeled domains or with a web crawl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from ..bench.tables.paper_figures import COLORS, canvas
from ..files import write_json
from ..schema import DomainAudit, LabelKind, Result, RunOptions
from ..terminal import Console
from . import Threads
from .train import execute, prepare

Results = dict[str, list[Result]]  # by row, one per seed


@dataclass(frozen=True)
class Demo:
    """A task and the runs to compare on it."""

    folder: Path
    task: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]  # settings by name


# Preset best, cut to half a minute per row on two cores. Both rows make 3,000 forward passes of a batch, within 3 %.
CLOSED = Demo(
    Path("runs/demo"),
    {"data": "digits", "labeled": "syn", "target": "mnist", "preset": "best"},
    {
        "source-only": {"method": "source-only", "epochs": 5, "iterations": 200},
        "eid": {"method": "eid", "cycles": 5, "start_epochs": 6, "epochs": 1, "iterations": 75},
    },
)
MORE_TIME = "more time helps: ssdg train --data digits --labeled syn --target mnist --minutes 10"
# Every strategy has 2,400 forward passes of a batch, within 2.5 %: what it saves on labelers goes to its DCG.
OPEN = Demo(
    Path("runs/demo-open-set"),
    {**CLOSED.task, "preset": "quick", "data": "web-digits", "web": ["web"]},
    {
        "source-only": {"method": "source-only"},
        "ignored": {
            "method": "eid",
            "web_label": "ignored",
            "epochs": 3,
            "iterations": 13,
            "labeler": {"epochs": 1, "iterations": 50},
        },
        "retained": {"method": "eid", "web_label": "retained", "epochs": 3, "iterations": 22},
        "refined": {
            "method": "eid",
            "web_label": "refined",
            "epochs": 3,
            "iterations": 15,
            "labeler": {"epochs": 1, "iterations": 52},
        },
    },
)


def demo(
    *,
    open_set: Annotated[bool, Parameter(negative=())] = False,
    seeds: Annotated[list[int], Parameter(consume_multiple=True)] = [0],  # noqa: B006
    out: Path | None = None,
    threads: Threads = None,
    cache: Path | None = None,
) -> int:
    """Train source-only and eid on a task of the embedded digits; print a table, draw a figure, write a report.

    Labeled: digits rendered with fonts (syn). Unlabeled: digits over photographs (mnist_m) and scans (optdigits).
    Unseen: handwritten digits (mnist). The same command resumes a demo that was stopped.

    Parameters
    ----------
    open_set
        Use a web search for digits as unlabeled data: some keywords are wrong, and one image in six shows no digit.
        Compares the three web-label strategies.
    seeds
        Seeds; every row is trained once per seed.
    out
        Folder for the runs, the numbers (demo.json), the figure (demo.png) and the report (report.html).
        [default: runs/demo, runs/demo-open-set]
    threads
        CPU threads.
    cache
        Folder for decoded images.
    """
    from .charts import draw_demo

    config = OPEN if open_set else CLOSED
    folder, console = out or config.folder, Console(highlight=False)
    results = run_rows(config, seeds, folder, RunOptions(threads=threads, cache=str(cache) if cache else None))
    console.print(open_table(results) if open_set else demo_table(results))
    write_json(folder / "demo.json", summarize(config, results))
    figure = (draw_open if open_set else draw_demo)(results, folder / "demo.png")
    report = write_report([run_folder(folder, row, seed) for row in config.rows for seed in seeds], folder)
    console.print(f"figure: {figure}\nnumbers: {folder / 'demo.json'}\nreport: {report}")
    if not open_set:
        console.print(MORE_TIME, soft_wrap=True)
    return 0


def run_rows(demo: Demo, seeds: list[int], folder: Path, options: RunOptions) -> Results:
    """Train every row with every seed; stages that rows share, such as the warm start, are trained once."""
    results: Results = {name: [] for name in demo.rows}
    for seed in seeds:
        for name, row in demo.rows.items():
            config, problem, machine = prepare({**demo.task, **row, "seed": seed}, options)
            path = run_folder(folder, name, seed)
            result = execute(config, problem, machine, path, options, stage_cache=folder / "shelf")
            results[name].append(Result.model_validate(result))
    return results


def run_folder(folder: Path, row: str, seed: int) -> Path:
    """Return the run folder of a row and a seed."""
    return folder / f"{row}-seed{seed}"


def write_report(runs: list[Path], folder: Path) -> Path:
    """Write the report of all runs into the folder of the demo."""
    from ..files import write_text
    from ..report.page import build, render

    path = folder / "report.html"
    write_text(path, render(build(runs)))
    return path


def summarize(demo: Demo, results: Results) -> dict[str, Any]:
    """Return accuracy on the unseen domain by row and seed, networks averaged as in `ssdg predict`."""
    task = next(reversed(results.values()))[0].task
    return {
        "task": {**demo.task, "unlabeled": task.unlabeled},
        "methods": {name: accuracy_of(runs) for name, runs in results.items()},
    }


def accuracy_of(runs: list[Result]) -> dict[str, Any]:
    """Return the accuracies (%) of a row by seed, with their mean and standard deviation."""
    scores = [run.target for run in runs if run.target]
    final = [score.final["mean"] for score in scores]
    return {
        "seeds": [run.seed for run in runs],
        "final": final,
        "last_five": [score.last_five["mean"] for score in scores],
        "mean": round(mean(final), 2),
        "deviation": round(stdev(final), 2) if len(final) > 1 else None,
        "seconds": [run.seconds for run in runs],
    }


def demo_table(results: Results) -> Table:
    """Build a table with one row per method and one column per seed."""
    table = accuracy_table("method", results)
    table.add_column("time, s", justify="right")
    for method, runs in results.items():
        row = accuracy_of(runs)
        table.add_row(method, *accuracy_cells(row), f"{mean(row['seconds']):.0f}")
    return table


def accuracy_table(first: str, results: Results) -> Table:
    """Build an empty table with the columns for accuracy."""
    runs = next(iter(results.values()))
    title = f"Test accuracy (%) on the unseen domain {runs[0].task.target}, final model"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for run in runs:
        table.add_column(f"seed {run.seed}", justify="right")
    table.add_column("mean ± sd", justify="right", no_wrap=True)
    return table


def accuracy_cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of these columns: one per seed, mean and standard deviation."""
    spread = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
    return [*(f"{value:.2f}" for value in row["final"]), f"{row['mean']:.2f}{spread}"]


STRATEGIES = ("ignored", "retained", "refined")


def open_table(results: Results) -> Table:
    """Build a table with one row per web-label strategy: accuracy, label accuracy, contents of the clean set."""
    target = results["refined"][0].task.target
    title = f"Test accuracy (%) on the unseen domain {target}, final model"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("web-labels", no_wrap=True)
    for name in ("accuracy", "label accuracy\nby cycle (%)", "OOD in clean\nset (%)", "repaired", "broken"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, runs in results.items():
        row = accuracy_of(runs)
        cells = label_cells(runs) if name in STRATEGIES else ["-"] * 4
        label = name if name in STRATEGIES else f"({name})"
        table.add_row(label, accuracy_cells(row)[-1], *cells)
    return table


def label_cells(runs: list[Result]) -> list[str]:
    """Return the cells on labels, averaged over seeds; repaired and broken keywords are of the last clean set."""
    accuracy = " → ".join(f"{value:.0f}" for value in mean_over_seeds([learned_label_accuracy(run) for run in runs]))
    clean = [sets[max(sets)] for run in runs if (sets := crawl_audits(run, "clean-set")) and sets[max(sets)].kept]
    if not clean:
        return [accuracy, "-", "-", "-"]
    ood = mean(100 * (row.ood_kept or 0) / row.kept for row in clean)
    repaired, broken = (mean(row.repaired or 0 for row in clean), mean(row.broken or 0 for row in clean))
    return [accuracy, f"{ood:.1f}", f"{repaired:.0f}", f"{broken:.0f}"]


def learned_label_accuracy(run: Result) -> list[float]:
    """Return the accuracy (%) per cycle of the labels that DCG learned: keywords, or the labelers' pseudo-labels."""
    assert run.web_labels is not None
    crawl = next(iter(run.web_labels.domains.values()))
    learned = dict.fromkeys(sorted({row.round for row in run.epochs}), crawl)
    if run.web_labels.strategy != "retained":
        learned |= crawl_audits(run, "pseudo-labels")
    return [row.kept_accuracy or 0.0 for row in learned.values()]


def crawl_audits(run: Result, kind: LabelKind) -> dict[int, DomainAudit]:
    """Return the audits of the crawl by cycle: of the labelers' pseudo-labels, or of the clean sets."""
    return {audit.round: next(iter(audit.domains.values())) for audit in run.pseudo_labels if audit.kind == kind}


def mean_over_seeds(curves: list[list[float]]) -> list[float]:
    """Return the elementwise mean."""
    return [mean(values) for values in zip(*curves, strict=True)]


def draw_open(results: Results, path: Path) -> Path:
    """Draw accuracy on the unseen domain after every epoch (left) and accuracy of DCG's labels per cycle (right)."""
    task = results["refined"][0].task
    with canvas(path, 2, figsize=(10, 4.2)) as (figure, (left, right)):
        figure.suptitle(f"labeled {task.labeled}, a web search unlabeled, unseen {task.target}")
        for color, marker, name in zip(COLORS, "os^", STRATEGIES, strict=False):
            runs, style = results[name], {"color": color, "marker": marker, "label": f"web-labels {name}"}
            curve = mean_over_seeds([[row.target[-1] for row in run.epochs] for run in runs])
            left.plot([(n + 1) / len(curve) * 100 for n in range(len(curve))], curve, **style)
            labels = mean_over_seeds([learned_label_accuracy(run) for run in runs])
            right.plot(range(1, len(labels) + 1), labels, **style)
        baseline = mean(run.target.final["mean"] for run in results["source-only"] if run.target)
        left.axhline(baseline, color="0.4", linestyle="--", label="source-only")
        left.set(xlabel="progress of DCG (%)", ylabel="accuracy (%)", title=f"unseen domain: {task.target}")
        right.set(xlabel="cycle", ylabel="label accuracy (%)", title="labels of the crawl that DCG learns")
        right.set_xticks(range(1, len(labels) + 1))
        for axes in (left, right):
            axes.set_ylim(0, 100)
            axes.legend(frameon=False, loc="lower right")
    return path
