"""Expansion of a suite, or the chosen part of it, into cells: resolved configurations by hash."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from ..config import RUN_KEYS, Flat, merge, nested_keys
from ..data.catalog import Dataset, find_domain, find_entry, identify_dataset
from ..data.sources.benchmark import Benchmark
from ..engine.setup import EMBEDDED, open_benchmark, resolve_config, with_full_paths, with_plugin
from ..errors import UserError, unknown
from ..methods import METHODS, find_method
from .folder import Cell, Grid, GridRow
from .suites import Row, Suite, flat_items

# Settings that differ between cells, and the options that choose them.
CHOSEN_BY = {
    "method": "--methods",
    "labeled": "--tasks",
    "unlabeled": "--tasks",
    "target": "--tasks",
    "seed": "--seeds",
    "data": "--data",
    "preset": "--preset",
}
PAIR = re.compile(r"\s*[>:→]\s*")  # between the domains of a task


@dataclass(frozen=True)
class SuiteChoice:
    """The part of a suite to run; an empty field means all, or the default."""

    data: str | None = None
    preset: str | None = None
    methods: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    seeds: tuple[Any, ...] = ()
    settings: Flat = field(default_factory=dict)

    def over(self, file: SuiteChoice) -> SuiteChoice:
        """Return this choice, made on the command line, with its gaps filled from a suite file."""
        return SuiteChoice(
            self.data or file.data,
            self.preset or file.preset,
            self.methods,  # the methods of a file are its rows
            self.tasks or file.tasks,
            self.seeds or file.seeds,
            self.settings,  # the settings of a file belong to its suite
        )


@dataclass(frozen=True)
class TaskDomains:
    """Domains that tasks are made of, in the order of the catalog as far as it lists them."""

    dataset: Dataset | None
    domains: tuple[str, ...]
    is_papers: bool = False  # whether the paper's numbers are for these domains

    @property
    def tasks(self) -> dict[str, tuple[str, str]]:
        """(labeled, target) by short name, in the paper's order."""
        pairs = [(a, b) for a in self.domains for b in self.domains if a != b]
        return {f"{self.short(a)}>{self.short(b)}": (a, b) for a, b in pairs}

    def short(self, domain: str) -> str:
        """Return the paper's name of a domain, or the name itself if the paper has none."""
        entry = find_entry(domain, self.dataset)
        return entry.short if entry else domain

    def unlabeled(self, labeled: str, target: str) -> list[str] | None:
        """Return all other domains; None in a web benchmark, whose unlabeled domain the catalog names."""
        if self.dataset and self.dataset.web:
            return None
        return [name for name in self.domains if name not in (labeled, target)]


def expand(suite: Suite, choice: SuiteChoice, cache: Path, *, device: str = "auto") -> Grid:
    """Resolve every chosen cell; invalid choices raise `UserError` before anything is written."""
    data = {"data": choice.data or default_data(suite)}
    shared = with_plugin(with_full_paths({**merge(suite.settings, choice.settings), **data}))
    benchmark = open_benchmark(shared, cache)
    assert benchmark is not None, "there is always data"
    domains = find_task_domains(suite, benchmark)
    rows, tasks, seeds = choose_rows(suite, choice.methods), choose_tasks(domains, choice.tasks), choose_seeds(choice)
    check_settings(suite, choice.settings, rows)
    preset = choice.preset or "paper"
    cells = []
    for seed, task, row in product(seeds, tasks, rows):  # neighbors have the most in common
        labeled, target = domains.tasks[task]
        row_settings = with_full_paths({**row.settings, "method": row.method, "data": shared["data"]})
        row_preset = row.settings.get("preset", preset)
        schedule = row.schedule if row_preset in ("paper", "release") else {}
        settings = merge(merge(schedule, applicable_settings(row, shared)), row_settings)
        others = None if settings.get("setting") == "uda" else domains.unlabeled(labeled, target)
        settings |= {"labeled": labeled, "unlabeled": others, "target": target}
        settings |= {"method": row.method, "preset": row_preset, "seed": seed}
        config = resolve_config(settings, benchmark, device=device)
        cells.append(Cell(config.hash, row.name, task, seed, config.flat()))
    if preset == "best":
        check_distinct(cells)
    return Grid(
        format=1,
        name=suite.name,
        table=suite.table if domains.is_papers else None,
        data=str(shared["data"]),
        preset=preset,
        settings={key: value for key, value in shared.items() if key != "data"},
        rows=tuple(GridRow(row.name, row.family, row.paper) for row in rows),
        tasks=tuple(tasks),
        seeds=tuple(seeds),
        cells=tuple(cells),
        row_order=tuple(row.name for row in suite.rows),
        task_order=tuple(domains.tasks),
    )


def check_distinct(cells: list[Cell]) -> None:
    """Reject rows of preset `best` that take out a part of the paper's cycle which `best` leaves out anyway."""
    rows: dict[str, str] = {}
    for cell in cells:
        other = rows.setdefault(cell.id, cell.row)
        if other != cell.row:
            raise UserError(
                f"rows '{other}' and '{cell.row}' are the same run in preset best; use --preset paper, release, "
                "fast or quick, or leave one of them out with --methods"
            )


def default_data(suite: Suite) -> str:
    """Return the embedded benchmark that the suite is made for; raise `UserError` if there is none."""
    if embedded := [name for name in suite.data if name in EMBEDDED]:
        return embedded[0]
    source = f"the folder or zip of {suite.data[0]}" if suite.data else "the folder or zip of a benchmark"
    raise UserError(f"suite '{suite.name}' has no data; add --data with {source}")


def find_task_domains(suite: Suite, benchmark: Benchmark) -> TaskDomains:
    """Return the domains of the suite's benchmark if all are present, else any domains if the suite allows it."""
    names = benchmark.names
    for dataset in suite.datasets:
        listed = in_catalog_order(names, dataset)
        if len(listed) == len(dataset.domains):
            web = find_entry(dataset.web or "", dataset)
            domains = tuple(name for name in listed if find_entry(name, dataset) != web)
            is_papers = suite.table is not None and dataset == suite.datasets[0]
            return TaskDomains(dataset, domains, is_papers=is_papers)
    if not suite.any_data:
        required = " or ".join(", ".join(entry.name for entry in dataset.domains) for dataset in suite.datasets)
        raise UserError(
            f"suite '{suite.name}' needs the domains {required}, but '{benchmark.root}' has {', '.join(names)}; "
            "use another --data, or write your own suite file"
        )
    known = identify_dataset(names)
    listed = in_catalog_order(names, known) if known else []
    all_names = [*listed, *(name for name in names if name not in listed)]
    if known and known.web:
        all_names.remove(find_domain(known.web, names, known))
    if len(all_names) < 2:
        raise UserError(f"'{benchmark.root}' has only the domain {', '.join(names)}; a task needs two or more")
    return TaskDomains(known, tuple(all_names))


def in_catalog_order(names: Sequence[str], dataset: Dataset) -> list[str]:
    """Return the domains that the catalog lists for this dataset, in its order."""
    return [name for entry in dataset.domains for name in names if find_entry(name, dataset) == entry]


def choose_rows(suite: Suite, names: Sequence[str]) -> list[Row]:
    """Return rows by name, else all rows of a method, else a new row for a method that the suite lacks."""
    if not names:
        return list(suite.rows)
    chosen: dict[str, Row] = {}
    for name in names:
        rows = [row for row in suite.rows if row.name == name]
        rows = rows or [row for row in suite.rows if row.method == name] or [new_row(name, suite)]
        chosen |= {row.name: row for row in rows}
    order = [row.name for row in suite.rows]
    return sorted(chosen.values(), key=lambda row: order.index(row.name) if row.name in order else len(order))


def new_row(name: str, suite: Suite) -> Row:
    """Return a row for a method that the suite lacks."""
    if name not in METHODS and "+" not in name:
        raise unknown("method or row", name, list(dict.fromkeys([*(row.name for row in suite.rows), *METHODS])))
    method = find_method(name)
    return Row(method.name, method.family, method.name)


def choose_tasks(domains: TaskDomains, names: Sequence[str]) -> list[str]:
    """Return tasks by `labeled>target`, in any spelling of the domains, in the order of `domains.tasks`."""
    pairs = set()
    for name in names:
        parts = PAIR.split(str(name).strip())
        if len(parts) != 2:
            example = next(iter(domains.tasks))
            raise UserError(f"task '{name}' is not a pair of domains; write labeled>target, for example '{example}'")
        labeled, target = (find_domain(part, domains.domains, domains.dataset) for part in parts)
        if labeled == target:
            raise UserError(f"task '{name}' has the same domain twice; write labeled>target with two domains")
        pairs.add((labeled, target))
    return [name for name, pair in domains.tasks.items() if pair in pairs or not names]


def choose_seeds(choice: SuiteChoice) -> list[int]:
    """Return the chosen seeds in order, without repeats; 0 by default."""
    seeds = set()
    for seed in choice.seeds or (0,):
        if not str(seed).isdecimal():
            raise UserError(f"seed '{seed}' is not a whole number from 0; use for example --seeds 0 1 2")
        seeds.add(int(str(seed)))
    return sorted(seeds)


def check_settings(suite: Suite, overrides: Flat, rows: Sequence[Row]) -> None:
    """Reject settings that distinguish cells, overrides of what a row sets itself, and settings that no row has.

    A row may set its own preset.
    """
    shared = merge(suite.settings, overrides)
    for key in [*shared, *(key for row in rows for key in row.settings if key != "preset")]:
        if key in CHOSEN_BY:
            raise UserError(f"'{key}' cannot be set for all cells, as they differ in it; use {CHOSEN_BY[key]}")
    for row in rows:
        fixed, values = flat_items(row.settings), flat_items(overrides)
        if conflicts := [key for key in values if key in fixed and fixed[key] != values[key]]:
            raise UserError(
                f"row '{row.name}' sets '{conflicts[0]}' itself; leave it out, or write your own suite file"
            )
    applicable = {key for row in rows for key in flat_items(applicable_settings(row, shared))}
    if unused := [key for key in flat_items(shared) if key not in applicable]:
        raise unknown("setting", unused[0], sorted({key for row in rows for key in known_keys(row)}))


def applicable_settings(row: Row, shared: Flat) -> Flat:
    """Return those of the settings for all rows that the method of this row has."""
    method = find_method(row.method)
    settings = {key: value for key, value in shared.items() if key in RUN_KEYS or key in method.settings.model_fields}
    for group, nested in method.settings.nested_methods(merge(settings, row.settings)).items():
        if isinstance(settings.get(group), Mapping):
            fields = nested.settings.model_fields
            settings[group] = {key: value for key, value in settings[group].items() if key in fields}
    return settings


def known_keys(row: Row) -> list[str]:
    """Return all settings of a row's method; nested ones as `group.key`."""
    method = find_method(row.method)
    keys = [key for key in (*RUN_KEYS, *method.settings.model_fields) if key not in CHOSEN_BY]
    return [*keys, *nested_keys(method, dict(row.settings))]
