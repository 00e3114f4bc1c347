"""`ssdg bench`: a grid of runs in one folder, by local workers or on a Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ..errors import UserError
from ..limits import MAX_THREADS
from . import Jobs
from .train import SETTING, Several

if TYPE_CHECKING:
    from ..bench.folder import Grid
    from ..bench.grid import SuiteChoice
    from ..bench.launch import Slot, Start
    from ..bench.suites import Suite
    from ..bench.worker import CellOptions

app = App(name="bench", help="Run every cell of a suite: ssdg bench SUITE --data ROOT --out DIR.")
Json = Annotated[bool, Parameter(name="--json", negative=())]


@app.default
@app.command
def run(
    suite: str,
    *words: str,
    out: Path,
    data: str | None = None,
    preset: str | None = None,
    methods: Several = None,
    tasks: Several = None,
    seeds: Several = None,
    development: Annotated[bool, Parameter(negative=())] = False,
    jobs: Jobs = None,
    threads: Annotated[int, Parameter(validator=Number(gte=1, lte=MAX_THREADS))] = 1,
    device: str = "auto",
    cache: Path | None = None,
    save_seconds: Annotated[float, Parameter(validator=Number(gte=0))] = 30.0,
    shelf: Path | None = None,
    ray: str | None = None,
    scratch: Path | None = None,
) -> int:
    """Run the cells of a suite that are not done; the same command resumes. Exit with code 1 if a cell failed.

    Parameters
    ----------
    suite
        A built-in suite (`ssdg bench list` shows them), or your own YAML file.
    words
        key=value settings for all methods that have the key, such as epochs=5 labeler.epochs=5.
    out
        The benchmark folder; later commands may add methods, tasks and seeds to it.
    data
        A benchmark's folder or zip, or an embedded one: digits, web-digits.
    preset
        best, paper, release, fast or quick.  [default: paper]
    methods
        Rows of the suite by name, or methods, including those that the suite lacks.  [default: all rows]
    tasks
        labeled:target, such as P:A ('P>A' needs quotes).  [default: all tasks]
    seeds
        Seeds; every row runs every task once per seed.  [default: 0]
    development
        Run the development tasks and seeds of a suite file, on which settings are selected, instead of the reported
        ones.
    jobs
        Number of parallel workers.  [default: one per GPU, or per core; with --ray, of the whole cluster]
    threads
        CPU threads per worker.
    device
        auto, cpu, cuda or mps.
    cache
        Folder for decoded images.  [default: $SSDG_CACHE or ~/.cache/ssdg]
    save_seconds
        Minimum seconds between two checkpoints of a cell.
    shelf
        Folder for stages that cells share; several benchmarks may use the same.  [default: the folder shelf in --out]
    ray
        Run the cells on a Ray cluster: auto (that of $RAY_ADDRESS or of this machine) or HOST:PORT of its head.
    scratch
        With --ray, if --out is not shared: a local folder of each node; results are copied to --out.
    """
    from ..bench.worker import CellOptions
    from ..engine.setup import default_cache
    from ..methods.plugins import confirmed_plugins

    lists = {"methods": methods, "tasks": tasks, "seeds": seeds}
    grid_suite, choice = parse_choice(suite, words, data, preset, lists, development=development)
    cache_path, shelf_path = str((cache or default_cache()).absolute()), str(shelf.absolute()) if shelf else ""
    options = CellOptions(cache_path, device, threads, save_seconds, plugins=confirmed_plugins(), shelf=shelf_path)
    if ray is None:
        if scratch is not None:
            raise UserError("--scratch needs --ray; leave it out for local workers")
        return run_locally(grid_suite, choice, out, jobs, options)
    return run_on_cluster(grid_suite, choice, out, jobs, options, ray, scratch)


def run_locally(suite: Suite, choice: SuiteChoice, out: Path, jobs: int | None, options: CellOptions) -> int:
    """Run the grid by processes of this machine; return the exit code."""
    from ..bench.grid import expand
    from ..bench.launch import find_slots
    from ..machine import check_device

    check_device(options.device)
    grid = expand(suite, choice, Path(options.cache), device=options.device)
    return launch(grid, out, find_slots(jobs, options), options)


def run_on_cluster(
    suite: Suite,
    choice: SuiteChoice,
    out: Path,
    jobs: int | None,
    options: CellOptions,
    address: str,
    scratch: Path | None,
) -> int:
    """Run the grid by tasks of a Ray cluster; return the exit code."""
    from ..bench.cluster import join_cluster
    from ..bench.grid import expand
    from ..machine import check_device

    if options.device != "cuda":  # only the nodes need a GPU
        check_device(options.device)
    grid = expand(suite, choice, Path(options.cache), device=options.device)
    with join_cluster(address) as cluster:
        slots = cluster.slots(jobs, options)
        return launch(grid, out, slots, options, cluster.starter(options, scratch and scratch.absolute()))


def launch(grid: Grid, out: Path, slots: Sequence[Slot], options: CellOptions, start: Start | None = None) -> int:
    """Run the grid and show its progress; return the exit code."""
    from ..bench.launch import run_grid
    from .bench_progress import GridDisplay

    with GridDisplay(out, grid, len(slots)) as display:
        failed = run_grid(out.absolute(), grid, slots, options, display.report, start)
        display.conclude()
    return 1 if failed else 0


def parse_choice(
    suite: str,
    args: tuple[str, ...],
    data: str | None,
    preset: str | None,
    lists: dict[str, list[str] | None],
    *,
    development: bool = False,
) -> tuple[Suite, SuiteChoice]:
    """Return the suite and what the arguments choose of it.

    `--seeds 0 1 epochs=3` arrives as three seeds, so settings are separated from names here.
    """
    from ..bench.grid import SuiteChoice
    from ..bench.suite_file import load_suite
    from ..bench.suites import find_suite
    from ..config import parse_overrides
    from ..engine.setup import confirm_plugin, with_plugin

    names = {key: tuple(arg for arg in values or () if not SETTING.match(arg)) for key, values in lists.items()}
    args += tuple(arg for values in lists.values() for arg in values or () if SETTING.match(arg))
    overrides = parse_overrides(args)
    confirm_plugin(overrides, remember=True)  # not one that only a suite file names
    choice = SuiteChoice(data, preset, settings=with_plugin(overrides), **names)
    if Path(suite).suffix in (".yaml", ".yml"):
        custom_suite, file_choice = load_suite(Path(suite), development=development)
        return custom_suite, choice.over(file_choice)
    if development:
        raise UserError(f"the built-in suite '{suite}' has no development tasks; give a suite file, or leave it out")
    return find_suite(suite), choice


@app.command(name="list")
def list_suites(*, as_json: Json = False) -> None:
    """List the built-in suites, with the paper's tables and their sizes: rows × tasks.

    Parameters
    ----------
    as_json
        Print JSON instead of a table.
    """
    from rich.table import Table

    from ..bench.suites import SUITES
    from ..terminal import Console

    if as_json:
        print(json.dumps([suite_json(suite) for suite in SUITES], indent=2))
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("suite", "what it compares", "data", "paper's table", "size"):
        table.add_column(column, no_wrap=column != "what it compares")
    for suite in SUITES:
        rows, tasks = len(suite.rows), len(suite.datasets[0].tasks)
        data = [*suite.data, *(["any"] if suite.any_data else [])]
        table.add_row(suite.name, suite.about, ", ".join(data), suite.table, f"{rows} × {tasks}")
    Console().print(table)


def suite_json(suite: Suite) -> dict[str, Any]:
    """Return a suite for `ssdg bench list --json`."""
    from dataclasses import asdict

    return asdict(suite) | {"tasks": [f"{a}>{b}" for a, b in suite.datasets[0].tasks]}


@app.command
def status(folder: Path, *, as_json: Json = False) -> None:
    """Show which cells are done, running, failed and missing, and estimate the time left.

    Parameters
    ----------
    folder
        The benchmark folder: the --out of `ssdg bench`.
    as_json
        Print JSON: the counts, seconds left, and every cell with its state.
    """
    from ..bench.folder import read_grid
    from .bench_progress import read_status, show_status

    grid = read_grid(folder)
    progress = read_status(folder, grid)
    if not as_json:
        show_status(grid, progress)
        return
    seconds, errors = progress.seconds, progress.errors
    cells: list[dict[str, Any]] = [
        {key: value for key, value in vars(cell).items() if key != "config"}
        | {"state": progress.states[cell.id], "seconds": seconds.get(cell.id), "error": errors.get(cell.id)}
        for cell in grid.cells
    ]
    left = progress.seconds_left(grid.cells)
    print(json.dumps({"suite": grid.name, **progress.counts, "seconds_left": left, "cells": cells}, indent=2))
