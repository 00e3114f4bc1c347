"""`ssdg demo`: the main job on embedded data, with unlabeled domains or with a crawl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from ..bench.tables.paper_figures import INK, canvas
from ..files import write_json
from .train import Options, execute, prepare

Result = dict[str, Any]
Results = dict[str, list[Result]]  # by row, one per seed


@dataclass(frozen=True)
class Demo:
    """A task and the runs to compare on it, by the name of their row."""

    folder: Path
    task: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]


CLOSED = Demo(
    Path("runs/demo"),
    {"data": "digits", "labeled": "syn", "target": "mnist", "preset": "quick"},
    {"source-only": {"method": "source-only"}, "eid": {"method": "eid"}},
)
# 2,400 forward passes of a batch for every strategy, within 2.5 %: what one saves in labelers goes to its DCG.
OPEN = Demo(
    Path("runs/demo-open-set"),
    {**CLOSED.task, "data": "web-digits", "web": ["web"]},
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
    threads: int | None = None,
    cache: Path | None = None,
) -> int:
    """Train source-only and the method on one task of the embedded digits; end with a table and a figure.

    Labeled: digits rendered with fonts (syn). Unlabeled: digits over photographs (mnist_m) and scans (optdigits).
    Never seen in training: handwritten digits (mnist). Stopped and started again, it continues.

    Parameters
    ----------
    open_set
        Unlabeled is a web search for digits instead: wrong keywords, and one image of six shows no digit. The three
        strategies for its web-labels side by side.
    seeds
        One run of each row per seed.
    out
        Where the runs, the table (demo.json), the figure (demo.png) and the page (report.html) go.
        [default: runs/demo, runs/demo-open-set]
    threads
        CPU threads.
    cache
        Where decoded images are kept.
    """
    from .charts import draw_demo

    chosen = OPEN if open_set else CLOSED
    folder, console = out or chosen.folder, Console(highlight=False)
    results = run_rows(chosen, seeds, folder, Options(threads=threads, cache=cache))
    console.print(open_table(results) if open_set else demo_table(results))
    write_json(folder / "demo.json", summary(chosen, results))
    figure = (draw_open if open_set else draw_demo)(results, folder / "demo.png")
    page = write_report([place_of(folder, row, seed) for row in chosen.rows for seed in seeds], folder)
    console.print(f"figure: {figure}\nnumbers: {folder / 'demo.json'}\nreport: {page}")
    return 0


def run_rows(chosen: Demo, seeds: list[int], folder: Path, options: Options) -> Results:
    """Train every row with every seed; what rows have in common, such as the warm start, is trained once."""
    results: Results = {name: [] for name in chosen.rows}
    for seed in seeds:
        for name, row in chosen.rows.items():
            config, problem, machine = prepare({**chosen.task, **row, "seed": seed}, options, dry_run=False)
            place = place_of(folder, name, seed)
            results[name].append(execute(config, problem, machine, place, options, shelf=folder / "shelf"))
    return results


def place_of(folder: Path, row: str, seed: int) -> Path:
    """The run folder of a row and a seed."""
    return folder / f"{row}-seed{seed}"


def write_report(runs: list[Path], folder: Path) -> Path:
    """The page of all runs, beside their figure."""
    from ..files import write_text
    from ..report.page import build, render

    path = folder / "report.html"
    write_text(path, render(build(runs)))
    return path


def summary(chosen: Demo, results: Results) -> dict[str, Any]:
    """Accuracy on the unseen domain by row and seed; networks averaged, as `ssdg predict` does."""
    task = next(reversed(results.values()))[0]["task"]
    return {
        "task": {**chosen.task, "unlabeled": task["unlabeled"]},
        "methods": {name: accuracy_of(runs) for name, runs in results.items()},
    }


def accuracy_of(runs: list[Result]) -> dict[str, Any]:
    """One row over its seeds."""
    final = [run["target"]["final"]["mean"] for run in runs]
    return {
        "seeds": [run["seed"] for run in runs],
        "final": final,
        "last_five": [run["target"]["last_five"]["mean"] for run in runs],
        "mean": round(mean(final), 2),
        "deviation": round(stdev(final), 2) if len(final) > 1 else None,
        "seconds": [run["seconds"] for run in runs],
    }


def demo_table(results: Results) -> Table:
    """One row per method, one column per seed."""
    table = accuracy_table("method", results)
    table.add_column("last five", justify="right")  # the mean of up to five of the last cycle
    table.add_column("time, s", justify="right")
    for method, runs in results.items():
        row = accuracy_of(runs)
        table.add_row(method, *accuracy_cells(row), f"{mean(row['last_five']):.2f}", f"{mean(row['seconds']):.0f}")
    return table


def accuracy_table(first: str, results: Results) -> Table:
    """The columns that every demo has."""
    runs = next(iter(results.values()))
    title = f"accuracy on {runs[0]['task']['target']} (never seen), %: the model as it is shipped"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for run in runs:
        table.add_column(f"seed {run['seed']}", justify="right")
    table.add_column("mean ± sd", justify="right", no_wrap=True)
    return table


def accuracy_cells(row: dict[str, Any]) -> list[str]:
    """What stands in them."""
    spread = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
    return [*(f"{value:.2f}" for value in row["final"]), f"{row['mean']:.2f}{spread}"]


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
