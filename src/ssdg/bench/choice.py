"""What the user chooses of a suite: rows, seeds, settings for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..config import RUN_KEYS, Flat, labeler_settings, merge
from ..errors import UserError, unknown
from ..methods import METHODS, find_method
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
