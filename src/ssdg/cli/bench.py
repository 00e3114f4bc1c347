"""`ssdg bench`: a grid of runs in one folder, by local workers or a Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ..errors import UserError
from .train import SETTING, Several

if TYPE_CHECKING:
    from ..bench.folder import Grid
    from ..bench.grid import Choice
    from ..bench.launch import Slot, Start
    from ..bench.suites import Suite
    from ..bench.worker import Options

app = App(name="bench", help="Run every cell of a suite: ssdg bench SUITE --data ROOT --out DIR.")
Json = Annotated[bool, Parameter(name="--json", negative=())]
Count = Annotated[int | None, Parameter(validator=Number(gte=1))]


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
    jobs: Count = None,
    threads: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    device: str = "auto",
    cache: Path | None = None,
    save_seconds: Annotated[float, Parameter(validator=Number(gte=0))] = 30.0,
    shelf: Path | None = None,
    ray: str | None = None,
    scratch: Path | None = None,
) -> int:
    """Run the cells of a suite that are not done yet; the same command continues, and exits with 1 if a cell failed.

    Parameters
    ----------
    suite
        A name that `ssdg bench list` shows, or a YAML file of your own.
    words
        key=value settings for every method that has the key, such as epochs=5 labeler.epochs=5.
    out
        The folder of the grid; more methods, tasks and seeds may be added to it later.
    data
        A benchmark's folder or zip, or an embedded one: digits, web-digits.
    preset
        paper, release, fast or quick.  [default: paper]
    methods
        Rows of the suite by name, or else methods, also others than the suite's.  [default: all rows]
    tasks
        labeled:target, such as P:A ('P>A' needs quotes).  [default: all tasks]
    seeds
        One run of each method and task per seed.  [default: 0]
    jobs
        Workers at a time.  [default: one for each GPU, or for each core; with --ray, of the whole cluster]
    threads
        CPU threads of each worker.
    device
        auto, cpu or cuda.
    cache
        Where decoded images are kept.  [default: $SSDG_CACHE or ~/.cache/ssdg]
    save_seconds
        Least time between two checkpoints of a cell.
    shelf
        Where stages that cells share are kept; grids may have one together.  [default: the folder shelf in --out]
    ray
        Give the cells to a Ray cluster: auto (the one of $RAY_ADDRESS or of this machine) or HOST:PORT of its head.
    scratch
        With --ray where --out is not shared: a folder that every node has of its own; results come back to --out.
    """
    from ..bench.worker import Options
    from ..engine.setup import default_cache

    wanted, choice = choose(suite, words, data, preset, {"methods": methods, "tasks": tasks, "seeds": seeds})
    shared = str(shelf.absolute()) if shelf else ""
    options = Options(str((cache or default_cache()).absolute()), device, threads, save_seconds, shelf=shared)
    if ray is None:
        if scratch is not None:
            raise UserError("--scratch was given without --ray; local workers need none, leave it out")
        return start_here(wanted, choice, out, jobs, options)
    return start_on_cluster(wanted, choice, out, jobs, options, ray, scratch)


def start_here(suite: Suite, choice: Choice, out: Path, jobs: int | None, options: Options) -> int:
    """The grid by processes of this machine; returns the exit code."""
    from ..bench.grid import expand
    from ..bench.launch import find_slots
    from ..machine import check_device

    check_device(options.device)
    grid = expand(suite, choice, Path(options.cache), device=options.device)
    return launch(grid, out, find_slots(jobs, options), options)


def start_on_cluster(
    suite: Suite, choice: Choice, out: Path, jobs: int | None, options: Options, address: str, scratch: Path | None
) -> int:
    """The grid by tasks of a Ray cluster; returns the exit code."""
    from ..bench.cluster import joined_cluster
    from ..bench.grid import expand
    from ..machine import check_device

    if options.device != "cuda":  # whether there is one, the nodes know
        check_device(options.device)
    grid = expand(suite, choice, Path(options.cache), device=options.device)
    with joined_cluster(address) as cluster:
        slots = cluster.slots(jobs, options)
        return launch(grid, out, slots, options, cluster.starter(options, scratch and scratch.absolute()))


def launch(grid: Grid, out: Path, slots: Sequence[Slot], options: Options, start: Start | None = None) -> int:
    """Run and show; returns the exit code."""
    from ..bench.launch import run_grid
    from .bench_progress import GridDisplay

    with GridDisplay(out, grid, len(slots)) as display:
        failed = run_grid(out.absolute(), grid, slots, options, display.hear, start)
        display.conclude()
    return 1 if failed else 0


def choose(
    suite: str, words: tuple[str, ...], data: str | None, preset: str | None, lists: dict[str, list[str] | None]
) -> tuple[Suite, Choice]:
    """The suite that is meant and what the words choose of it."""
    from ..bench.grid import Choice
    from ..bench.suite_file import read_own
    from ..bench.suites import find_suite
    from ..config import parse_overrides
    from ..engine.setup import with_plugin

    # `--seeds 0 1 epochs=3` reaches us as three seeds: settings are told from names here.
    given = {key: tuple(word for word in values or () if not SETTING.match(word)) for key, values in lists.items()}
    words += tuple(word for values in lists.values() for word in values or () if SETTING.match(word))
    choice = Choice(data, preset, settings=with_plugin(parse_overrides(words)), **given)
    if Path(suite).suffix in (".yaml", ".yml"):
        own, file = read_own(Path(suite))
        return own, choice.over(file)
    return find_suite(suite), choice


@app.command(name="list")
def list_suites(*, as_json: Json = False) -> None:
    """Show the suites that are known by name, with the paper's tables and their sizes: rows × tasks.

    Parameters
    ----------
    as_json
        Print JSON instead of a table.
    """
    from rich.console import Console
    from rich.table import Table

    from ..bench.suites import SUITES

    if as_json:
        print(json.dumps([suite_json(suite) for suite in SUITES], indent=2))
        return
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("suite", "what it compares", "data", "paper's table", "size"):
        table.add_column(column, no_wrap=column != "what it compares")
    for suite in SUITES:
        rows, tasks = len(suite.rows), len(suite.datasets[0].tasks)
        places = [*suite.data, *(["any"] if suite.any_data else [])]
        table.add_row(suite.name, suite.about, ", ".join(places), suite.table, f"{rows} × {tasks}")
    Console().print(table)


def suite_json(suite: Suite) -> dict[str, Any]:
    """A suite for `ssdg bench list --json`."""
    from dataclasses import asdict

    return asdict(suite) | {"tasks": [f"{a}>{b}" for a, b in suite.datasets[0].tasks]}


@app.command
def status(folder: Path, *, as_json: Json = False) -> None:
    """Show which cells of a folder are done, running, failed and missing, and how long the rest may take.

    Parameters
    ----------
    folder
        What was given as --out.
    as_json
        Print JSON: the counts, seconds left, and every cell with its state.
    """
    from ..bench.folder import read_grid
    from .bench_progress import read_status, show_status

    grid = read_grid(folder)
    found = read_status(folder, grid)
    if not as_json:
        show_status(grid, found)
        return
    cells: list[dict[str, Any]] = [
        {key: value for key, value in vars(cell).items() if key != "config"}
        | {"state": found.states[cell.id], "seconds": found.seconds.get(cell.id), "error": found.errors.get(cell.id)}
        for cell in grid.cells
    ]
    left = found.seconds_left(grid.cells)
    print(json.dumps({"suite": grid.name, **found.counts, "seconds_left": left, "cells": cells}, indent=2))
