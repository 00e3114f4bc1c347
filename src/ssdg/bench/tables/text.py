"""Parts that the written formats of a results table share, and the table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import groupby
from typing import TypeVar

from rich.box import SIMPLE_HEAD
from rich.table import Table as Grid
from rich.text import Text

from ...terminal import Console
from .results_table import DIGITS, Entry, Line, Mark, Table
from .significance import Comparison

MISSING = "-"
TESTS_CAPTION = "Paired tests over the tasks and seeds that both rows have; differences are in percentage points."
TEXT_LEGEND = "*: best of its column; °: second best."
TEXT_MARKS: dict[Mark, tuple[str, str]] = {"": (" ", ""), "best": ("*", "bold"), "second": ("°", "underline")}
UNLIMITED = 10_000  # characters: a file or a pipe has no width
Cells = list[str]
T = TypeVar("T")


@dataclass(frozen=True)
class PrintedRow:
    """A printed row: our numbers of a line, or the paper's."""

    line: Line
    is_paper: bool = False

    def cells(self, columns: Sequence[str], ours: Callable[[Entry], T], paper: Callable[[Entry], T]) -> list[T]:
        """Return a cell per column, written by `ours` or `paper`."""
        write = paper if self.is_paper else ours
        return [write(self.line.entries[column]) for column in columns]


def rows_by_family(table: Table) -> list[tuple[str, list[PrintedRow]]]:
    """Return the families with their rows: one per line, and one below it if the paper has numbers for it."""
    families = groupby(table.lines, key=lambda line: line.family)
    return [(name, [row for line in lines for row in _printed_rows(table, line)]) for name, lines in families]


def _printed_rows(table: Table, line: Line) -> list[PrintedRow]:
    has_paper = table.paper and any(entry.paper is not None for entry in line.entries.values())
    return [PrintedRow(line), *([PrintedRow(line, is_paper=True)] if has_paper else [])]


def fixed(value: float | None) -> str:
    """Format a number with the digits of the table, None as `-`."""
    return MISSING if value is None else f"{value:.{DIGITS}f}"


def signed(value: float | None) -> str:
    """Format a difference with its sign."""
    return MISSING if value is None else f"{value:+.{DIGITS}f}".replace("-", "−")


def probability(p: float | None) -> str:
    """Format a p-value with three digits; very small ones as `<0.001`."""
    if p is None:
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def paper_number(entry: Entry) -> str:
    """Format the paper's number."""
    return fixed(entry.paper)


def spread(entry: Entry, sign: str) -> str:
    """Format the deviation as `± 0.50`; empty for one seed."""
    return "" if entry.deviation is None else f"{sign}{fixed(entry.deviation)}"


def seed_count(table: Table, entry: Entry) -> str:
    """Format the number of seeds as ` (2)`; empty if it is the same in the whole table."""
    return f" ({len(entry.values)})" if table.seeds_differ and entry.values else ""


def arrow(column: str) -> str:
    """Return `P→A` for the task P>A."""
    return column.replace(">", "→")


def comparison_header(table: Table) -> Cells:
    """Return the column names of the paired tests."""
    return [f"{table.comparisons[0].row} minus", "pairs", "difference", "95 % CI", "p (t-test)", "p (perm.)"]


def comparison_cells(comparison: Comparison) -> Cells:
    """Return the cells of one paired test."""
    low, high = comparison.interval or (None, None)
    return [
        comparison.other,
        str(comparison.num_pairs),
        signed(comparison.difference),
        MISSING if low is None else f"{signed(low)} to {signed(high)}",
        probability(comparison.p_t),
        probability(comparison.p_permutation),
    ]


def plain_text(table: Table) -> str:
    """Format the table without colors, as wide as it needs to be."""
    return plain(lambda console: print_table(table, console))


def plain(show: Callable[[Console], None]) -> str:
    """Return what `show` prints, without colors, as wide as it needs to be."""
    file = StringIO()
    show(Console(file=file, width=UNLIMITED, color_system=None, force_terminal=False))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def print_table(table: Table, console: Console) -> None:
    """Print the table on a console; a narrow one gets its columns in several parts."""
    for columns in _column_parts(table, console.width):
        console.print(_results_grid(table, columns))
    for note in (*table.notes, TEXT_LEGEND):
        console.print(note, markup=False, highlight=False)
    if table.comparisons:
        console.print()
        console.print(TESTS_CAPTION, markup=False, highlight=False)
        console.print(_comparison_grid(table))


def _column_parts(table: Table, width: int) -> Iterator[tuple[str, ...]]:
    label_width = max(len(line.name) + len(line.family) for line in table.lines) + 6 if table.lines else 0
    cell_width = 13 if table.seeds_differ else 10  # `±10.00 (3)` or `average` with margins
    num = max(1, (width - label_width) // cell_width)
    for start in range(0, len(table.columns), num):
        yield table.columns[start : start + num]


def _results_grid(table: Table, columns: tuple[str, ...]) -> Grid:
    def ours(entry: Entry) -> Text:
        """Two lines: the mean, and below it the deviation and the number of seeds."""
        sign, style = TEXT_MARKS[entry.mark]
        cell = Text().append(fixed(entry.mean), style=style).append(sign)
        if below := (spread(entry, "±") + seed_count(table, entry)).strip():
            cell.append(f"\n{below} ", style="dim")
        return cell

    def paper(entry: Entry) -> Text:
        return Text(f"{paper_number(entry)} ")

    grid = Grid(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    for name in ("", "method"):
        grid.add_column(name, no_wrap=True)
    for column in columns:
        grid.add_column(arrow(column), justify="right", no_wrap=True)
    for family, rows in rows_by_family(table):
        for index, row in enumerate(rows):
            name = "  paper" if row.is_paper else row.line.name
            cells = [Text("" if index else family), Text(name), *row.cells(columns, ours, paper)]
            grid.add_row(*cells, style="dim" if row.is_paper else None)
        grid.add_section()
    return grid


def _comparison_grid(table: Table) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    for index, name in enumerate(comparison_header(table)):
        grid.add_column(Text(name), justify="right" if index else "left")
    for comparison in table.comparisons:
        grid.add_row(*(Text(cell) for cell in comparison_cells(comparison)))
    return grid
