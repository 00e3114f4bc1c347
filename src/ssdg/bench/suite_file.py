"""A suite of one's own from a short YAML file: methods × overrides × tasks × seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import merge, read_yaml
from ..engine.setup import with_plugin
from ..errors import UserError, unknown
from ..methods import find_method
from .grid import Choice
from .suites import Row, Suite, find_suite, label

KEYS: dict[str, type] = {
    "methods": list,
    "overrides": list,
    "tasks": list,
    "seeds": list,
    "settings": dict,
    "preset": str,
    "data": str,
    "paper": str,
}
WORDS: dict[type, str] = {list: "a list such as [a, b]", dict: "a mapping such as {epochs: 5}", str: "a word"}


def read_own(path: Path) -> tuple[Suite, Choice]:
    """The suite in a YAML file and what the file chooses of it."""
    told = read_yaml(path)
    for key, value in told.items():
        if key not in KEYS:
            raise unknown(f"key in {path}:", str(key), list(KEYS))
        if not isinstance(value, KEYS[key]):
            raise UserError(f"{path}: '{key}' must be {WORDS[KEYS[key]]}, and {value!r} is not")
    if not told.get("methods"):
        raise UserError(f"{path} names no method; add for example 'methods: [source-only, eid]'")
    settings = with_plugin(told.get("settings") or {})
    like = find_suite(told["paper"]) if "paper" in told else None
    papers = {row.name: row.paper for row in like.rows} if like else {}
    rows = tuple(own_rows(path, told["methods"], told.get("overrides") or [{}], papers))
    check_names(path, rows)
    table, data = (like.table, like.data[:1]) if like else (None, ())
    suite = Suite(path.stem, str(path), rows, table, data, any_data=True, settings=settings)
    tasks, seeds = (tuple(told.get(key) or ()) for key in ("tasks", "seeds"))
    return suite, Choice(told.get("data"), told.get("preset"), tasks=tasks, seeds=seeds)


def own_rows(path: Path, methods: list[Any], overrides: list[Any], papers: Mapping[str, Any]) -> list[Row]:
    """Every method with every set of overrides; a row named as one of the paper's suite has its numbers."""
    rows = []
    for given in methods:
        entry = {"method": given} if isinstance(given, str) else given
        if not isinstance(entry, dict) or not isinstance(entry.get("method"), str):
            raise UserError(
                f"{path}: method {given!r} is neither a name nor a mapping such as {{method: eid, cycles: 2}}"
            )
        own = {key: value for key, value in entry.items() if key not in ("method", "name")}
        for more in overrides:
            if not isinstance(more, dict):
                raise UserError(f"{path}: override {more!r} is not a mapping such as {{cycles: 2}}")
            settings = merge(own, more)
            named = label(str(entry["name"]), more) if "name" in entry else label(entry["method"], settings)
            method = find_method(entry["method"])
            rows.append(Row(named, method.family, method.name, settings, papers.get(named)))
    return rows


def check_names(path: Path, rows: tuple[Row, ...]) -> None:
    """A row is known by its name."""
    names = [row.name for row in rows]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{path} has two rows named '{twice[0]}'; leave one out, or give it another 'name:'")
