"""The numbers of the paper's result tables, shipped as `paper.csv`. Its averages are not: they are computed."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ..data.catalog import plain
from ..errors import UserError, unknown

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
