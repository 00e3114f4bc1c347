"""A benchmark folder as a table (methods by family, tasks, average), with the paper's numbers from `paper.csv`.

The paper's averages are computed from its cells: three of the printed ones are wrong.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from ...data.catalog import plain
from ...errors import UserError, unknown
from ..folder import Grid, GridRow, Number, Results
from .significance import Comparison, Place, compare

NUMBERS = ("task", "accuracy")


@cache
def paper_rows() -> tuple[dict[str, str], ...]:
    """Every number of the paper: table, dataset, setting, family, web_label, method, ..., task, accuracy."""
    text = (files(__package__) / "paper.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def paper_tables() -> list[str]:
    """The names of the tables, in the paper's order."""
    return list(dict.fromkeys(row["table"] for row in paper_rows()))


def paper_numbers(table: str, selectors: Mapping[str, Any]) -> dict[str, float]:
    """Percent right by task of the one row of a table that the selectors leave.

    `{"method": "MixUp", "cycles": 3, "clean_rate": 0.4}`: case and signs do not count.
    """
    if table not in paper_tables():
        raise unknown("table of the paper", table, paper_tables())
    keys = [key for key in paper_rows()[0] if key not in NUMBERS]
    for key in selectors:
        if key not in keys:
            raise unknown("column of the paper's tables", key, keys)
    chosen = [row for row in paper_rows() if _matches(row, {"table": table, **selectors})]
    numbers = {row["task"]: float(row["accuracy"]) for row in chosen}
    if len(numbers) == len(chosen) > 0:
        return numbers
    given = ", ".join(f"{key} '{value}'" for key, value in selectors.items())
    found = "several rows" if chosen else "no row"
    named = ", ".join(dict.fromkeys(row["method"] for row in paper_rows() if row["table"] == table))
    raise UserError(f"{found} of the paper's table '{table}' answer to {given}; its methods are {named}")


def _matches(row: Mapping[str, str], selectors: Mapping[str, Any]) -> bool:
    return all(plain(row[key]) == plain("" if value is None else str(value)) for key, value in selectors.items())


AVERAGE = "average"
FAMILIES = ("source", "DA", "DG", "DA+DG", "SSL", "ours")  # the paper's order; others follow in the suite's
MAIN_ROW, MAIN_FAMILY = "eid", "ours"
DIGITS = 2  # shown, and what best and second are decided by
Mark = Literal["", "best", "second"]


@dataclass(frozen=True)
class Entry:
    """One place of the table: percent right by seed, and what the paper has there."""

    values: Mapping[int, float]
    paper: float | None = None
    mark: Mark = ""

    @property
    def mean(self) -> float | None:
        """Over the seeds; None where there are none."""
        return mean(self.values.values()) if self.values else None

    @property
    def deviation(self) -> float | None:
        """The sample standard deviation over the seeds; None below two."""
        return stdev(self.values.values()) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Line:
    """A row of the table: its entries by task, and under `average`."""

    name: str
    family: str
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Table:
    """What every format is written from."""

    suite: str
    number: Number
    tasks: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    paper: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The tasks, then their average."""
        return (*self.tasks, AVERAGE)

    @property
    def seeds_differ(self) -> bool:
        """Whether places of the table are means of unlike numbers of seeds."""
        return len(_seed_counts(self.lines)) > 1


def make_table(results: Results, number: Number, *, paper: bool = False, against: str | None = None) -> Table:
    """The table of a benchmark folder; `against` is the row that is tested against every other."""
    grid = results.grid
    scores = {row.name: results.scores(row.name, number) for row in grid.rows}
    rows = in_order(grid.rows)
    lines = _marked([_line(row, scores[row.name], grid, paper) for row in rows], (*grid.tasks, AVERAGE))
    main = main_row(rows, against)
    others = [row.name for row in rows if row.name != main]
    comparisons = [compare(main, scores[main], other, scores[other]) for other in others] if main else []
    return Table(
        suite=grid.name,
        number=number,
        tasks=grid.tasks,
        lines=tuple(lines),
        notes=tuple(_notes(results, lines, number, paper)),
        comparisons=tuple(comparisons),
        paper=paper,
    )


def in_order(rows: tuple[GridRow, ...]) -> list[GridRow]:
    """Rows by family in the paper's order; within a family as the suite has them."""
    families = list(dict.fromkeys(name.casefold() for name in [*FAMILIES, *(row.family for row in rows)]))
    return sorted(rows, key=lambda row: families.index(row.family.casefold()))


def main_row(rows: list[GridRow], asked: str | None) -> str | None:
    """The row to be tested against the others: the one asked for, `eid`, the first of family `ours`, or none."""
    names = [row.name for row in rows]
    if asked is not None and asked not in names:
        raise unknown("row of this table", asked, names)
    ours = [row.name for row in rows if row.family.casefold() == MAIN_FAMILY]
    return asked or next((name for name in (MAIN_ROW, *ours) if name in names), None)


def _line(row: GridRow, scores: Mapping[Place, float], grid: Grid, paper: bool) -> Line:
    table = (row.paper or {}).get("table", grid.table)
    known = paper_numbers(table, row.paper) if paper and row.paper and table else {}
    entries = {task: Entry(_of_task(scores, task), known.get(task)) for task in grid.tasks}
    return Line(row.name, row.family, {**entries, AVERAGE: average(list(entries.values()))})


def _of_task(scores: Mapping[Place, float], task: str) -> dict[int, float]:
    return {seed: value for (name, seed), value in sorted(scores.items()) if name == task}


def average(entries: list[Entry]) -> Entry:
    """The mean over the tasks, seed by seed, of the seeds that no task lacks; empty if there are none."""
    seeds = sorted(set.intersection(*(set(entry.values) for entry in entries))) if entries else []
    values = {seed: mean(entry.values[seed] for entry in entries) for seed in seeds}
    papers = [entry.paper for entry in entries if entry.paper is not None]
    return Entry(values, mean(papers) if papers and len(papers) == len(entries) else None)


def _marked(lines: list[Line], columns: tuple[str, ...]) -> list[Line]:
    marks = {column: _marks([line.entries[column].mean for line in lines]) for column in columns}
    return [
        replace(line, entries={c: replace(entry, mark=marks[c][place]) for c, entry in line.entries.items()})
        for place, line in enumerate(lines)
    ]


def _marks(means: list[float | None]) -> list[Mark]:
    """Best and second of a column by the digits that are shown; equals share a mark; a single number has none."""
    shown = [None if value is None else round(value, DIGITS) for value in means]
    ranks = sorted({value for value in shown if value is not None}, reverse=True)
    if sum(value is not None for value in shown) < 2:
        return [""] * len(shown)
    names: dict[float | None, Mark] = dict(zip(ranks, ("best", "second"), strict=False))
    return [names.get(value, "") for value in shown]


def _seed_counts(lines: tuple[Line, ...] | list[Line]) -> set[int]:
    return {len(entry.values) for line in lines for entry in line.entries.values() if entry.values}


def _notes(results: Results, lines: list[Line], number: Number, paper: bool) -> list[str]:
    grid = results.grid
    place = f"{grid.name} on {Path(grid.data).name}, {grid.presets}"
    notes = [f"{place}: percent right on the target, {_what(results, number)}."]
    notes += _about_seeds(_seed_counts(lines))
    done = sum(cell.id in results.found for cell in grid.cells)
    if done < len(grid.cells):
        notes.append(f"{done:,} of {len(grid.cells):,} cells are done; -: none yet, or an average that lacks a task.")
    if paper:
        notes.append(_about_paper(lines))
    return notes


def _about_paper(lines: list[Line]) -> str:
    if any(entry.paper is not None for line in lines for entry in line.entries.values()):
        return "The paper's averages are computed from its numbers; three that it prints are not their mean."
    return "The paper has no numbers for these rows and tasks."


def _what(results: Results, number: Number) -> str:
    if number == "final":
        return "last epoch, networks averaged"
    fewest = min((int(result["target"]["epochs_averaged"]) for result in results.found.values()), default=5)
    short = f" (of fewer, down to {fewest}, where the last cycle has no more)" if fewest < 5 else ""
    return f"mean of the last five epochs{short}, networks averaged"


def _about_seeds(counts: set[int]) -> list[str]:
    spread = "Mean ± sample standard deviation over"
    if len(counts) > 1:
        return [
            f"{spread} seeds, their number in brackets; an average is over the seeds that all tasks of a row have."
        ]
    return [f"{spread} {count} seeds." if count > 1 else "One seed." for count in counts]
