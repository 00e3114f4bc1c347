"""The cells of a table as text, and the table for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from .results_table import DIGITS, Entry, Line, Mark, Table
from .significance import Comparison

MISSING = "-"
Cells = list[str]


def families(table: Table) -> list[tuple[str, list[Line]]]:
    """The rows, family by family."""
    return [(name, list(lines)) for name, lines in groupby(table.lines, key=lambda line: line.family)]


def fixed(value: float | None) -> str:
    """With the digits of the table, or `-`."""
    return MISSING if value is None else f"{value:.{DIGITS}f}"


def signed(value: float | None) -> str:
    """A difference with its sign."""
    return MISSING if value is None else f"{value:+.{DIGITS}f}".replace("-", "−")


def probability(p: float | None) -> str:
    """Three digits; very small ones as `<0.001`."""
    if p is None:
        return MISSING
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def comparison_header(table: Table) -> Cells:
    """The columns of the paired tests."""
    return [f"{table.comparisons[0].row} minus", "pairs", "difference", "95 % interval", "p, t", "p, signs"]


def comparison_cells(comparison: Comparison) -> Cells:
    """One paired test, as shown."""
    low, high = comparison.interval or (None, None)
    between = MISSING if low is None else f"{signed(low)} to {signed(high)}"
    return [
        comparison.other,
        str(comparison.num_pairs),
        signed(comparison.difference),
        between,
        probability(comparison.p_t),
        probability(comparison.p_permutation),
    ]


def spread(entry: Entry, sign: str) -> str:
    """`± 0.50`; nothing for one seed."""
    return "" if entry.deviation is None else f"{sign}{fixed(entry.deviation)}"


def count(table: Table, entry: Entry) -> str:
    """`(2)`, the number of seeds, where it differs within the table."""
    return f" ({len(entry.values)})" if table.seeds_differ and entry.values else ""


def has_paper(table: Table, line: Line) -> bool:
    """Whether the paper's numbers go below this row."""
    return table.paper and any(entry.paper is not None for entry in line.entries.values())


def paper_cells(table: Table, line: Line) -> Cells:
    """The paper's numbers for a row."""
    return [fixed(line.entries[column].paper) for column in table.columns]


def arrow(column: str) -> str:
    """`P→A` for the task P>A."""
    return column.replace(">", "→")


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
