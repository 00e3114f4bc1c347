"""The parts of a table as they are shown in text, Markdown and LaTeX."""

from __future__ import annotations

from itertools import groupby

from .statistics import Comparison
from .tables import DIGITS, Entry, Line, Table

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
