"""A table in one of its formats. The same table gives the same characters."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from io import StringIO
from typing import Any, Literal

from .markup import latex, markdown
from .statistics import Comparison
from .tables import Entry, Line, Table
from .text import plain_text

Format = Literal["text", "markdown", "latex", "csv", "json"]


def render(table: Table, form: Format) -> str:
    """The table in one of the formats, with a line end."""
    return WRITERS[form](table)


def comma_separated(table: Table) -> str:
    """One line for every row and task, and for the row's average; what is not known is empty."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["row", "family", "task", "number", "seeds", "mean", "deviation", "paper", "mark"])
    for line in table.lines:
        for column in table.columns:
            entry = line.entries[column]
            numbers = [_rounded(value) for value in (entry.mean, entry.deviation, entry.paper)]
            writer.writerow([line.name, line.family, column, table.number, len(entry.values), *numbers, entry.mark])
    return file.getvalue()


def as_json(table: Table) -> str:
    """Everything, with the value of every seed."""
    told = {
        "suite": table.suite,
        "number": table.number,
        "notes": list(table.notes),
        "tasks": list(table.tasks),
        "rows": [_line_json(table, line) for line in table.lines],
        "comparisons": [_comparison_json(comparison) for comparison in table.comparisons],
    }
    return json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _line_json(table: Table, line: Line) -> dict[str, Any]:
    entries = {column: _entry_json(line.entries[column]) for column in table.columns}
    return {"name": line.name, "family": line.family, "cells": entries}


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "mean": _rounded(entry.mean),
        "deviation": _rounded(entry.deviation),
        "seeds": {str(seed): _rounded(value) for seed, value in entry.values.items()},
        "paper": _rounded(entry.paper),
        "mark": entry.mark,
    }


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    interval = comparison.interval
    return {
        "row": comparison.row,
        "other": comparison.other,
        "pairs": comparison.num_pairs,
        "difference": _rounded(comparison.difference),
        "interval": [_rounded(value) for value in interval] if interval else None,
        "p_t": _rounded(comparison.p_t, 6),
        "p_permutation": _rounded(comparison.p_permutation, 6),
    }


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


WRITERS: dict[Format, Callable[[Table], str]] = {
    "text": plain_text,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "json": as_json,
}
