"""A suite, narrowed to the chosen rows, tasks, seeds and settings, as cells: resolved configurations by hash."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import RUN_KEYS, Flat, labeler_settings, merge
from ..data.catalog import Dataset, dataset_of, entry_of, find_domain
from ..data.sources.benchmark import Benchmark
from ..engine.setup import EMBEDDED, open_benchmark, settle, with_full_paths, with_plugin
from ..errors import UserError, unknown
from ..methods import METHODS, find_method
from .folder import Cell, Grid, GridRow
from .suites import Row, Suite, flat_items

# Settings that differ from cell to cell, and what chooses them.
CHOSEN_BY = {
    "method": "--methods",
    "labeled": "--tasks",
    "unlabeled": "--tasks",
    "target": "--tasks",
    "seed": "--seeds",
    "data": "--data",
    "preset": "--preset",
}


@dataclass(frozen=True)
class Choice:
    """What is chosen of a suite; what is left open is all there is, or the default."""

    data: str | None = None
    preset: str | None = None
    methods: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    seeds: tuple[Any, ...] = ()
    settings: Flat = field(default_factory=dict)

    def over(self, file: Choice) -> Choice:
        """Words of the command on top of those of a file."""
        return Choice(
            self.data or file.data,
            self.preset or file.preset,
            self.methods,  # a file's methods are its rows
            self.tasks or file.tasks,
            self.seeds or file.seeds,
            self.settings,  # a file's are its suite's
        )


def choose_rows(suite: Suite, words: Sequence[str]) -> list[Row]:
    """Rows by their names, or all rows of a method, or a method that the suite has not."""
    if not words:
        return list(suite.rows)
    chosen: dict[str, Row] = {}
    for word in words:
        found = [row for row in suite.rows if row.name == word]
        found = found or [row for row in suite.rows if row.method == word]
        chosen |= {row.name: row for row in found or [added_row(word, suite)]}
    order = [row.name for row in suite.rows]
    return sorted(chosen.values(), key=lambda row: order.index(row.name) if row.name in order else len(order))


def added_row(word: str, suite: Suite) -> Row:
    """A row for a method that is not in the suite."""
    if word not in METHODS and "+" not in word:
        raise unknown("method or row", word, list(dict.fromkeys([*(row.name for row in suite.rows), *METHODS])))
    method = find_method(word)
    return Row(method.name, method.family, method.name)


def choose_seeds(choice: Choice) -> list[int]:
    """Whole numbers from 0, each once; 0 if none is chosen."""
    seeds = set()
    for word in choice.seeds or (0,):
        text = str(word)
        if not text.isdecimal():
            raise UserError(f"seed '{word}' is not a whole number from 0; give for example --seeds 0 1 2")
        seeds.add(int(text))
    return sorted(seeds)


def fitting(row: Row, shared: Flat) -> Flat:
    """The part of the settings for all rows that this row's method has."""
    method = find_method(row.method)
    kept = {key: value for key, value in shared.items() if key in RUN_KEYS or key in method.settings.model_fields}
    if isinstance(kept.get("labeler"), Mapping):
        fields = labeler_settings(method, merge(kept, row.settings)).model_fields
        kept["labeler"] = {key: value for key, value in kept["labeler"].items() if key in fields}
    return kept


def check_settings(suite: Suite, words: Flat, rows: Sequence[Row]) -> None:
    """Refuse what makes the cells (a row's preset is its own), what a row has of its own, and what no row has."""
    shared = merge(suite.settings, words)
    for key in [*shared, *(key for row in rows for key in row.settings if key != "preset")]:
        if key in CHOSEN_BY:
            raise UserError(f"'{key}' cannot be set for all cells, it makes them; choose it with {CHOSEN_BY[key]}")
    for row in rows:
        own, given = flat_items(row.settings), flat_items(words)
        if strange := [key for key in given if key in own and own[key] != given[key]]:
            raise UserError(f"row '{row.name}' sets '{strange[0]}' itself; leave it out, or write your own suite")
    taken = {key for row in rows for key in flat_items(fitting(row, shared))}
    if strange := [key for key in flat_items(shared) if key not in taken]:
        names = {key for row in rows for key in known_keys(row)}
        raise unknown("setting", strange[0], sorted(names))


def known_keys(row: Row) -> list[str]:
    """All keys that a row's method has, its labeler's as `labeler.KEY`."""
    method = find_method(row.method)
    keys = [key for key in (*RUN_KEYS, *method.settings.model_fields) if key not in CHOSEN_BY]
    if "labeler" in keys:
        keys += [f"labeler.{key}" for key in labeler_settings(method, dict(row.settings)).model_fields]
    return keys


PAIR = re.compile(r"\s*[>:→]\s*")


@dataclass(frozen=True)
class Place:
    """The domains that the tasks are made of, in the catalog's order where it knows them."""

    dataset: Dataset | None
    domains: tuple[str, ...]
    is_papers: bool = False  # whether the paper's numbers are of these very domains

    @property
    def tasks(self) -> dict[str, tuple[str, str]]:
        """(labeled, target) by short name, in the paper's order."""
        pairs = [(a, b) for a in self.domains for b in self.domains if a != b]
        return {f"{self.short(a)}>{self.short(b)}": (a, b) for a, b in pairs}

    def short(self, domain: str) -> str:
        """The paper's name of a domain, or its own."""
        entry = entry_of(domain, self.dataset)
        return entry.short if entry else domain

    def unlabeled(self, labeled: str, target: str) -> list[str] | None:
        """All other domains; in a web benchmark what the catalog says."""
        if self.dataset and self.dataset.web:
            return None
        return [name for name in self.domains if name not in (labeled, target)]


def default_data(suite: Suite) -> str:
    """The embedded digits, if the suite is made for them."""
    if own := [name for name in suite.data if name in EMBEDDED]:
        return own[0]
    wanted = f"the folder or zip of {suite.data[0]}" if suite.data else "a benchmark's folder or zip"
    raise UserError(f"suite '{suite.name}' has no data; add --data with {wanted}")


def find_place(suite: Suite, benchmark: Benchmark) -> Place:
    """The suite's benchmark if its domains are all there, else whatever there is if the suite takes any."""
    names = benchmark.names
    for dataset in suite.datasets:
        here = in_catalog_order(names, dataset)
        if len(here) == len(dataset.domains):
            seen = [name for name in here if entry_of(name, dataset) != entry_of(dataset.web or "", dataset)]
            return Place(dataset, tuple(seen), is_papers=suite.table is not None and dataset == suite.datasets[0])
    if not suite.any_data:
        wanted = " or ".join(", ".join(entry.name for entry in dataset.domains) for dataset in suite.datasets)
        raise UserError(
            f"suite '{suite.name}' needs the domains {wanted}, and '{benchmark.root}' holds {', '.join(names)}; "
            "give another --data, or write a suite of your own"
        )
    known = dataset_of(names)
    first = in_catalog_order(names, known) if known else []
    own = [*first, *(name for name in names if name not in first)]
    if known and known.web:
        own.remove(find_domain(known.web, names, known))
    if len(own) < 2:
        raise UserError(f"'{benchmark.root}' holds the domain {', '.join(names)} only; a task needs two or more")
    return Place(known, tuple(own))


def in_catalog_order(names: Sequence[str], dataset: Dataset) -> list[str]:
    """The domains that the catalog knows of this benchmark."""
    return [name for entry in dataset.domains for name in names if entry_of(name, dataset) == entry]


def choose_tasks(place: Place, words: Sequence[str]) -> list[str]:
    """Tasks by `labeled>target` in any spelling of the domains, in the order of the place."""
    wanted = set()
    for word in words:
        parts = PAIR.split(str(word).strip())
        if len(parts) != 2:
            example = next(iter(place.tasks))
            raise UserError(f"task '{word}' is not a pair of domains; write labeled>target, for example '{example}'")
        labeled, target = (find_domain(part, place.domains, place.dataset) for part in parts)
        if labeled == target:
            raise UserError(f"task '{word}' has one domain in both places; write labeled>target with two domains")
        wanted.add((labeled, target))
    return [name for name, pair in place.tasks.items() if pair in wanted or not words]


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
