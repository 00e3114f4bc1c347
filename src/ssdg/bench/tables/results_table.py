"""A results table from a benchmark folder: methods by family, tasks, their average, and the paper's numbers.

`paper.csv` has the paper's numbers per task. Averages are computed from them, because three printed ones are wrong.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal

from ...data.catalog import normalize_name
from ...errors import UserError, unknown
from ..folder import Grid, GridRow, Network, Number, Results
from .significance import Comparison, TaskSeed, compare

AVERAGE = "average"
AVERAGE_OF_MEAN = "networks averaged"  # a second average
NETWORKS: dict[Network, str] = {
    "1": "network 1",
    "2": "network 2, or the only one",
    "mean": "networks averaged",
}
FAMILIES = ("source", "DA", "DG", "DA+DG", "SSL", "ours")  # the paper's order; others follow in the suite's order
MAIN_ROW, MAIN_FAMILY = "eid", "ours"
DIGITS = 2  # printed, and compared to mark best and second best
VALUE_COLUMNS = ("task", "accuracy")  # of paper.csv; the others select a row
Mark = Literal["", "best", "second"]


@dataclass(frozen=True)
class Entry:
    """A cell of the table: accuracy (%) by seed, and the paper's."""

    values: Mapping[int, float]
    paper: float | None = None
    mark: Mark = ""

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None without a seed."""
        return mean(self.values.values()) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation over the seeds; None with fewer than two."""
        return stdev(self.values.values()) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Line:
    """A row of the table: its entries by task, and under `average`."""

    name: str
    family: str
    entries: Mapping[str, Entry]


@dataclass(frozen=True)
class Table:
    """A results table, from which all formats are written."""

    suite: str
    number: Number
    network: Network
    tasks: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    paper: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The tasks, then their average; next to that of a single network the one of all networks together."""
        return (*self.tasks, AVERAGE, *((AVERAGE_OF_MEAN,) if self.network != "mean" else ()))

    @property
    def seeds_differ(self) -> bool:
        """Whether entries are means over different numbers of seeds."""
        return len(_seed_counts(self.lines)) > 1


def make_table(
    results: Results,
    number: Number,
    *,
    network: Network | None = None,
    paper: bool = False,
    against: str | None = None,
) -> Table:
    """Build the table of a benchmark folder; the row `against` is tested against every other row.

    `network` defaults to network 1 for the paper's suites, as the authors' release evaluates, and to the mean of all
    networks for others.
    """
    grid = results.grid
    network = network or ("1" if grid.table else "mean")
    scores = {row.name: results.scores(row.name, number, network) for row in grid.rows}
    rows = sort_by_family(grid.rows)
    unmarked = [_line(row, scores[row.name], grid, paper) for row in rows]
    if network != "mean":
        unmarked = [_add_average_of_mean(line, results, number) for line in unmarked]
    lines = _mark_best(unmarked, tuple(unmarked[0].entries) if unmarked else ())
    main = find_main_row(rows, against)
    others = [row.name for row in rows if row.name != main]
    comparisons = [compare(main, scores[main], other, scores[other]) for other in others] if main else []
    return Table(
        suite=grid.name,
        number=number,
        network=network,
        tasks=grid.tasks,
        lines=tuple(lines),
        notes=tuple(_notes(results, lines, number, network, paper)),
        comparisons=tuple(comparisons),
        paper=paper,
    )


def sort_by_family(rows: Sequence[GridRow]) -> list[GridRow]:
    """Sort rows by family in the paper's order; keep the order of the suite within a family."""
    families = list(dict.fromkeys(name.casefold() for name in [*FAMILIES, *(row.family for row in rows)]))
    return sorted(rows, key=lambda row: families.index(row.family.casefold()))


def find_main_row(rows: Sequence[GridRow], name: str | None) -> str | None:
    """Return the row to test against the others: `name`, else `eid`, else the first of family `ours`, else None."""
    names = [row.name for row in rows]
    if name is not None and name not in names:
        raise unknown("row of this table", name, names)
    ours = [row.name for row in rows if row.family.casefold() == MAIN_FAMILY]
    return name or next((name for name in (MAIN_ROW, *ours) if name in names), None)


def _line(row: GridRow, scores: Mapping[TaskSeed, float], grid: Grid, paper: bool) -> Line:
    numbers = row_paper_numbers(row, grid) if paper else {}
    entries = {task: Entry(_of_task(scores, task), numbers.get(task)) for task in grid.tasks}
    return Line(row.name, row.family, {**entries, AVERAGE: average(list(entries.values()))})


def _add_average_of_mean(line: Line, results: Results, number: Number) -> Line:
    scores = results.scores(line.name, number, "mean")
    entries = [Entry(_of_task(scores, task), None) for task in results.grid.tasks]
    return replace(line, entries={**line.entries, AVERAGE_OF_MEAN: average(entries)})


def _of_task(scores: Mapping[TaskSeed, float], task: str) -> dict[int, float]:
    return {seed: value for (name, seed), value in sorted(scores.items()) if name == task}


def average(entries: list[Entry]) -> Entry:
    """Average over the tasks per seed, for the seeds that every task has; without such a seed the entry is empty."""
    seeds = sorted(set.intersection(*(set(entry.values) for entry in entries))) if entries else []
    values = {seed: mean(entry.values[seed] for entry in entries) for seed in seeds}
    papers = [entry.paper for entry in entries if entry.paper is not None]
    return Entry(values, mean(papers) if papers and len(papers) == len(entries) else None)


def _mark_best(lines: list[Line], columns: tuple[str, ...]) -> list[Line]:
    marks = {column: _marks([line.entries[column].mean for line in lines]) for column in columns}
    return [
        replace(line, entries={c: replace(entry, mark=marks[c][index]) for c, entry in line.entries.items()})
        for index, line in enumerate(lines)
    ]


def _marks(means: list[float | None]) -> list[Mark]:
    """Return the marks of a column, by the printed digits. Ties share a mark; a single number gets none."""
    rounded = [None if value is None else round(value, DIGITS) for value in means]
    ranking = sorted({value for value in rounded if value is not None}, reverse=True)
    if sum(value is not None for value in rounded) < 2:
        return [""] * len(rounded)
    marks: dict[float | None, Mark] = dict(zip(ranking, ("best", "second"), strict=False))
    return [marks.get(value, "") for value in rounded]


def _notes(results: Results, lines: Sequence[Line], number: Number, network: Network, paper: bool) -> list[str]:
    grid = results.grid
    title = f"{grid.name} on {Path(grid.data).name}, {grid.presets}"
    notes = [f"{title}: accuracy (%) on the target, {_describe_number(results, number)}, {NETWORKS[network]}."]
    if network != "mean":
        notes.append(f"{AVERAGE_OF_MEAN}: the same average with the networks' probabilities averaged.")
    notes += _seed_notes(_seed_counts(lines))
    num_done, num_cells = results.count_cells()
    if num_done < num_cells:
        counts = f"{num_done:,} of {num_cells:,} cells are done"
        notes.append(f"{counts}; -: no cell is done, or the average lacks a task.")
    if paper:
        notes.append(_paper_note(lines))
    return notes


def _describe_number(results: Results, number: Number) -> str:
    if number == "final":
        return "last epoch"
    fewest = min((result.target.epochs_averaged for result in results.by_cell.values() if result.target), default=5)
    fewer = f" (fewer, down to {fewest}, if the last cycle is shorter)" if fewest < 5 else ""
    return f"mean of the last five epochs{fewer}"


def _seed_counts(lines: Sequence[Line]) -> set[int]:
    return {len(entry.values) for line in lines for entry in line.entries.values() if entry.values}


def _seed_notes(counts: set[int]) -> list[str]:
    spread = "Mean ± sample standard deviation over"
    if len(counts) > 1:
        return [
            f"{spread} seeds, with their number in parentheses; "
            "an average is over the seeds that all tasks of a row have."
        ]
    return [f"{spread} {count} seeds." if count > 1 else "One seed." for count in counts]


def _paper_note(lines: Sequence[Line]) -> str:
    if any(entry.paper is not None for line in lines for entry in line.entries.values()):
        return "The paper's averages are computed from its numbers per task; three of the printed ones are wrong."
    return "The paper has no numbers for these rows and tasks."


@cache
def paper_rows() -> tuple[dict[str, str], ...]:
    """Read every number of the paper: table, dataset, setting, family, web_label, method, ..., task, accuracy."""
    text = (files(__package__) / "paper.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def paper_tables() -> list[str]:
    """Return the names of the paper's tables, in the order of `paper.csv`."""
    return list(dict.fromkeys(row["table"] for row in paper_rows()))


def row_paper_numbers(row: GridRow, grid: Grid) -> dict[str, float]:
    """Return the paper's accuracies (%) for a row by task; empty if it has none."""
    table = (row.paper or {}).get("table", grid.table)
    return paper_numbers(table, row.paper) if row.paper and table else {}


def paper_numbers(table: str, selectors: Mapping[str, Any]) -> dict[str, float]:
    """Return the paper's accuracies (%) by task, of the one row of a table that the selectors match.

    An example is `{"method": "MixUp", "cycles": 3, "clean_rate": 0.4}`. Case and punctuation are ignored.
    """
    if table not in paper_tables():
        raise unknown("table of the paper", table, paper_tables())
    columns = [column for column in paper_rows()[0] if column not in VALUE_COLUMNS]
    for column in selectors:
        if column not in columns:
            raise unknown("column of the paper's tables", column, columns)
    matches = [row for row in paper_rows() if _matches(row, {"table": table, **selectors})]
    numbers = {row["task"]: float(row["accuracy"]) for row in matches}
    if len(numbers) == len(matches) > 0:
        return numbers
    criteria = ", ".join(f"{column} '{value}'" for column, value in selectors.items())
    num_rows = "several rows" if matches else "no row"
    methods = ", ".join(dict.fromkeys(row["method"] for row in paper_rows() if row["table"] == table))
    raise UserError(f"the paper's table '{table}' has {num_rows} with {criteria}; its methods are {methods}")


def _matches(row: Mapping[str, str], selectors: Mapping[str, Any]) -> bool:
    return all(
        normalize_name(row[column]) == normalize_name("" if value is None else str(value))
        for column, value in selectors.items()
    )
