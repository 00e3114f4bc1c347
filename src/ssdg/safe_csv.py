"""CSV files whose text no spreadsheet takes for a formula.

A cell that starts with `=`, `+`, `-`, `@`, a tab or a carriage return and is no number, or that starts with quotes
before one of these, gets a leading `'`, which makes it text for a spreadsheet. `restore_cell` removes it again.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

_ESCAPED = re.compile(r"'+[=+\-@\t\r]")
_FORMULA = re.compile(rf"{_ESCAPED.pattern}|(?![+-]?\d+(\.\d+)?\Z)[=+\-@\t\r]")


def write_rows(file: TextIO, rows: Iterable[Sequence[Any]], **dialect: Any) -> None:
    """Write rows with all text escaped; None is an empty cell."""
    csv.writer(file, **dialect).writerows([escape_cell(cell) for cell in row] for row in rows)


def escape_cell(cell: Any) -> Any:
    """Return a cell with a leading `'` if it is text that a spreadsheet would evaluate."""
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def restore_cell(cell: str) -> str:
    """Return the text that `escape_cell` was called with."""
    return cell[1:] if _ESCAPED.match(cell) else cell
