"""A suite and what is chosen of it -> cells: one resolved configuration each, known by its hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..config import merge
from ..engine.open import open_benchmark, settle, with_full_paths, with_plugin
from .choice import Choice, check_settings, choose_rows, choose_seeds, fitting
from .folder import Cell, Grid, GridRow
from .place import choose_tasks, default_data, find_place
from .suites import Row, Suite


def expand(suite: Suite, choice: Choice, cache: Path, *, device: str = "auto") -> Grid:
    """Every cell that is chosen, all mistakes told before anything is written."""
    data = {"data": choice.data or default_data(suite)}
    shared = with_plugin(with_full_paths({**merge(suite.settings, choice.settings), **data}))
    benchmark = open_benchmark(shared, cache)
    assert benchmark is not None, "there is always data"
    place = find_place(suite, benchmark)
    rows, tasks, seeds = choose_rows(suite, choice.methods), choose_tasks(place, choice.tasks), choose_seeds(choice)
    check_settings(suite, choice.settings, rows)
    preset = choice.preset or "paper"
    cells = []
    for seed, task, row in ordered(seeds, tasks, rows):
        labeled, target = place.tasks[task]
        given = merge(fitting(row, shared), with_full_paths({**row.settings, "data": shared["data"]}))
        others = None if given.get("setting") == "uda" else place.unlabeled(labeled, target)
        given |= {"labeled": labeled, "unlabeled": others, "target": target}
        given |= {"method": row.method, "preset": row.settings.get("preset", preset), "seed": seed}
        config = settle(given, benchmark, device=device)
        cells.append(Cell(config.hash, row.name, task, seed, config.flat()))
    return Grid(
        format=1,
        name=suite.name,
        table=suite.table if place.is_papers else None,
        data=str(shared["data"]),
        preset=preset,
        settings={key: value for key, value in shared.items() if key != "data"},
        rows=tuple(GridRow(row.name, row.family, row.paper) for row in rows),
        tasks=tuple(tasks),
        seeds=tuple(seeds),
        cells=tuple(cells),
        row_order=tuple(row.name for row in suite.rows),
        task_order=tuple(place.tasks),
    )


def ordered(seeds: Sequence[int], tasks: Sequence[str], rows: Sequence[Row]) -> Iterator[tuple[int, str, Row]]:
    """Seed by seed, labeled domain by labeled domain: neighbours have the most in common."""
    return ((seed, task, row) for seed in seeds for task in tasks for row in rows)
