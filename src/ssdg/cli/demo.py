"""`ssdg demo`: the main job on embedded data."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from ..files import write_json
from .train import Options, execute, prepare

METHODS = ("source-only", "eid")
TASK = {"data": "digits", "labeled": "syn", "target": "mnist", "preset": "quick"}


def demo(
    *,
    seeds: Annotated[list[int], Parameter(consume_multiple=True)] = [0],  # noqa: B006
    out: Path = Path("runs/demo"),
    threads: int | None = None,
    cache: Path | None = None,
) -> int:
    """Train source-only and the method on one task of the embedded digits; end with a table and a figure.

    Labeled: digits rendered with fonts (syn). Unlabeled: digits over photographs (mnist_m) and scans (optdigits).
    Never seen in training: handwritten digits (mnist). Stopped and started again, it continues.

    Parameters
    ----------
    seeds
        One run of each method per seed.
    out
        Where the runs, the table (demo.json) and the figure (demo.png) go.
    threads
        CPU threads.
    cache
        Where decoded images are kept.
    """
    from .figure import draw_demo

    console = Console(highlight=False)
    options = Options(threads=threads, cache=cache)
    results: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
    for seed in seeds:
        for method in METHODS:
            config, problem, machine = prepare({**TASK, "method": method, "seed": seed}, options, dry_run=False)
            results[method].append(execute(config, problem, machine, out / f"{method}-seed{seed}", options))
    console.print(demo_table(results))
    write_json(out / "demo.json", summary(results))
    figure = draw_demo(results, out / "demo.png")
    console.print(f"figure: {figure}\nnumbers: {out / 'demo.json'}")
    return 0


def summary(results: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Accuracy on the unseen domain by method and seed; networks averaged, as `ssdg predict` does."""
    rows = {}
    for method, runs in results.items():
        final = [run["target"]["final"]["mean"] for run in runs]
        rows[method] = {
            "seeds": [run["seed"] for run in runs],
            "final": final,
            "last_five": [run["target"]["last_five"]["mean"] for run in runs],
            "mean": round(mean(final), 2),
            "deviation": round(stdev(final), 2) if len(final) > 1 else None,
            "seconds": [run["seconds"] for run in runs],
        }
    return {"task": {**TASK, "unlabeled": results["eid"][0]["task"]["unlabeled"]}, "methods": rows}


def demo_table(results: dict[str, list[dict[str, Any]]]) -> Table:
    """One row per method, one column per seed."""
    rows = summary(results)["methods"]
    title = f"accuracy on {TASK['target']} (never seen), %: the model as it is shipped"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("method")
    for seed in rows["eid"]["seeds"]:
        table.add_column(f"seed {seed}", justify="right")
    table.add_column("mean ± sd", justify="right", no_wrap=True)
    table.add_column("last five", justify="right")  # the mean of up to five of the last cycle
    table.add_column("time, s", justify="right")
    for method, row in rows.items():
        spread = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
        seconds = f"{mean(row['seconds']):.0f}"
        cells = [f"{row['mean']:.2f}{spread}", f"{mean(row['last_five']):.2f}", seconds]
        table.add_row(method, *(f"{v:.2f}" for v in row["final"]), *cells)
    return table
