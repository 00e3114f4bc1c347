"""A suite and what is chosen of it -> cells: one resolved configuration each, known by its hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..config import merge
from ..engine.open import open_benchmark, settle, with_full_paths, with_plugin
from .choice import Choice, check_settings, choose_rows, choose_seeds, fitting
from .folder import Cell, Grid
from .place import choose_tasks, default_data, find_place
from .suites import Row, Suite


def expand(suite: Suite, choice: Choice, cache: Path, *, device: str = "auto") -> Grid:
    """Every cell that is chosen, all mistakes told before anything is written."""
    shared = with_plugin(with_full_paths({**choice.settings, "data": choice.data or default_data(suite)}))
    benchmark = open_benchmark(shared, cache)
    assert benchmark is not None, "there is always data"
    data = str(shared.pop("data"))
    place = find_place(suite, benchmark)
    rows, tasks, seeds = choose_rows(suite, choice.methods), choose_tasks(place, choice.tasks), choose_seeds(choice)
    check_settings(shared, rows)
    preset = choice.preset or "paper"
    cells = []
    for seed, task, row in ordered(seeds, tasks, rows):
        labeled, target = place.tasks[task]
        given = merge(merge(suite.settings, row.settings), fitting(row, shared))
        is_uda = given.get("setting") == "uda"
        given |= {"data": data, "method": row.method, "preset": preset, "labeled": labeled, "target": target}
        given |= {"seed": seed, "unlabeled": None if is_uda else place.unlabeled(labeled, target)}
        config = settle(with_full_paths(given), benchmark, device=device)
        cells.append(Cell(config.hash, row.name, task, seed, config.flat()))
    is_papers = bool(suite.datasets) and place.dataset == suite.datasets[0]
    return Grid(
        name=suite.name,
        table=suite.table if is_papers else None,
        data=data,
        preset=preset,
        settings=shared,
        rows=tuple({"name": row.name, "family": row.family, "paper": row.paper} for row in rows),
        tasks=tuple(tasks),
        seeds=tuple(seeds),
        cells=tuple(cells),
        row_order=tuple(row.name for row in suite.rows),
        task_order=tuple(place.tasks),
    )


def ordered(seeds: Sequence[int], tasks: Sequence[str], rows: Sequence[Row]) -> Iterator[tuple[int, str, Row]]:
    """Seed by seed, labeled domain by labeled domain: neighbours have the most in common."""
    return ((seed, task, row) for seed in seeds for task in tasks for row in rows)
