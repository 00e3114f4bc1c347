"""A table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from .shown import (
    arrow,
    comparison_cells,
    comparison_header,
    count,
    families,
    fixed,
    has_paper,
    paper_cells,
    spread,
)
from .tables import Entry, Line, Mark, Table

SIGNS: dict[Mark, tuple[str, str]] = {"": ("", ""), "best": ("*", "bold"), "second": ("°", "underline")}
LEGEND = "*: best, °: second of a column."
TESTS = "Paired tests over the tasks and seeds that both rows have, in points of percent."
UNLIMITED = 10_000  # characters: a file or a pipe has no width


def plain_text(table: Table) -> str:
    """The table without colours, as wide as it needs to be."""
    return plain(lambda console: print_table(table, console))


def plain(show: Callable[[Console], None]) -> str:
    """What `show` prints, without colours, as wide as it needs to be."""
    file = StringIO()
    show(Console(file=file, width=UNLIMITED, color_system=None, force_terminal=False))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def print_table(table: Table, console: Console) -> None:
    """The table on a console; on a narrow one its columns are told in several pieces."""
    for columns in _pieces(table, console.width):
        console.print(_grid(table, columns))
    for note in (*table.notes, LEGEND):
        console.print(note, markup=False, highlight=False)
    if table.comparisons:
        console.print()
        console.print(TESTS, markup=False, highlight=False)
        console.print(_comparisons(table))


def _pieces(table: Table, width: int) -> Iterator[tuple[str, ...]]:
    labels = max(len(line.name) + len(line.family) for line in table.lines) + 6 if table.lines else 0
    room = 13 if table.seeds_differ else 10  # characters of `±10.00 (3)` or `average` with their margins
    num = max(1, (width - labels) // room)
    for start in range(0, len(table.columns), num):
        yield table.columns[start : start + num]


def _grid(table: Table, columns: tuple[str, ...]) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    for name in ("", "method"):
        grid.add_column(name, no_wrap=True)
    for column in columns:
        grid.add_column(arrow(column), justify="right", no_wrap=True)
    for family, lines in families(table):
        for place, line in enumerate(lines):
            grid.add_row(Text(family if place == 0 else ""), Text(line.name), *_cells(table, line, columns))
            if has_paper(table, line):
                papers = dict(zip(table.columns, paper_cells(table, line), strict=True))
                grid.add_row("", "  paper", *(f"{papers[column]} " for column in columns), style="dim")
        grid.add_section()
    return grid


def _cells(table: Table, line: Line, columns: tuple[str, ...]) -> Iterator[Text]:
    """Two lines each: the mean, and below it the deviation and the number of seeds."""
    for column in columns:
        entry: Entry = line.entries[column]
        sign, style = SIGNS[entry.mark]
        cell = Text().append(fixed(entry.mean), style=style).append(sign or " ")
        if below := (spread(entry, "±") + count(table, entry)).strip():
            cell.append(f"\n{below} ", style="dim")
        yield cell


def _comparisons(table: Table) -> Grid:
    grid = Grid(box=SIMPLE_HEAD, header_style="bold", padding=(0, 1))
    for place, name in enumerate(comparison_header(table)):
        grid.add_column(Text(name), justify="right" if place else "left")
    for comparison in table.comparisons:
        grid.add_row(*(Text(cell) for cell in comparison_cells(comparison)))
    return grid
