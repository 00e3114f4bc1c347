"""What the user chooses of a suite: rows, seeds, settings for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..config import RUN_KEYS, Flat, labeler_settings, merge
from ..errors import UserError, unknown
from ..methods import METHODS, Method, find_method
from .suites import Row, Suite

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
            merge(file.settings, self.settings),
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


def fitting(row: Row, settings: Flat) -> Flat:
    """The part of the settings for all that this row's method has."""
    method = find_method(row.method)
    kept = {key: value for key, value in settings.items() if key in RUN_KEYS or key in method.settings.model_fields}
    if isinstance(kept.get("labeler"), Mapping):
        fields = labeler_settings(method, merge(row.settings, kept)).model_fields
        kept["labeler"] = {key: value for key, value in kept["labeler"].items() if key in fields}
    return kept


def check_settings(shared: Flat, rows: Sequence[Row]) -> None:
    """Refuse what the grid chooses itself and what no method of it has."""
    for key in [*shared, *(key for row in rows for key in row.settings)]:
        if key in CHOSEN_BY:
            raise UserError(
                f"'{key}' differs from cell to cell and cannot be set for all; choose it by {CHOSEN_BY[key]}"
            )
    taken = [flat_keys(fitting(row, shared)) for row in rows]
    names = [flat_keys(known_keys(find_method(row.method), row)) for row in rows]
    for key in flat_keys(shared):
        if not any(key in keys for keys in taken):
            raise unknown("setting of every method of the grid", key, sorted(set().union(*names)))


def known_keys(method: Method, row: Row) -> Flat:
    """All keys that a row's method has, its labeler's in their group."""
    keys: Flat = dict.fromkeys([*(key for key in RUN_KEYS if key not in CHOSEN_BY), *method.settings.model_fields])
    if "labeler" in keys:
        keys["labeler"] = dict.fromkeys(labeler_settings(method, dict(row.settings)).model_fields)
    return keys


def flat_keys(settings: Mapping[str, Any]) -> list[str]:
    """`labeler.lr` for a key in a group."""
    return [
        name
        for key, value in settings.items()
        for name in ([f"{key}.{inner}" for inner in value] if isinstance(value, Mapping) else [str(key)])
    ]
