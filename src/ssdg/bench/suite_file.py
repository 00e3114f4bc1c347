"""Custom benchmark suites from a YAML file: methods × overrides × tasks × seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..bounded_yaml import load_mapping
from ..config import merge
from ..engine.setup import with_plugin
from ..errors import UserError, brief, unknown
from ..methods import find_method
from .grid import SuiteChoice
from .suites import Row, Suite, find_suite, row_name

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
TYPE_NAMES: dict[type, str] = {list: "a list such as [a, b]", dict: "a mapping such as {epochs: 5}", str: "a string"}


def load_suite(path: Path) -> tuple[Suite, SuiteChoice]:
    """Load a custom benchmark suite from a YAML file, and what the file chooses of it."""
    content = load_mapping(path)
    for key, value in content.items():
        if key not in KEYS:
            raise unknown(f"key in {path}:", str(key), list(KEYS))
        if not isinstance(value, KEYS[key]):
            raise UserError(f"{path}: '{key}' must be {TYPE_NAMES[KEYS[key]]}, not {brief(value)}")
    if not content.get("methods"):
        raise UserError(f"{path} names no method; add for example 'methods: [source-only, eid]'")
    settings = with_plugin(content.get("settings") or {})
    paper_suite = find_suite(content["paper"]) if "paper" in content else None
    papers = {row.name: row.paper for row in paper_suite.rows} if paper_suite else {}
    rows = tuple(build_rows(path, content["methods"], content.get("overrides") or [{}], papers))
    check_unique_names(path, rows)
    table, data = (paper_suite.table, paper_suite.data[:1]) if paper_suite else (None, ())
    suite = Suite(path.stem, str(path), rows, table, data, any_data=True, settings=settings)
    tasks, seeds = (tuple(content.get(key) or ()) for key in ("tasks", "seeds"))
    return suite, SuiteChoice(content.get("data"), content.get("preset"), tasks=tasks, seeds=seeds)


def build_rows(path: Path, methods: list[Any], overrides: list[Any], papers: Mapping[str, Any]) -> list[Row]:
    """Return a row for every method with every override; rows named as in the paper's suite get its numbers."""
    rows = []
    for item in methods:
        entry = {"method": item} if isinstance(item, str) else item
        if not isinstance(entry, dict) or not isinstance(entry.get("method"), str):
            raise UserError(
                f"{path}: method {brief(item)} is neither a name nor a mapping such as {{method: eid, cycles: 2}}"
            )
        method = find_method(entry["method"])
        base = {key: value for key, value in entry.items() if key not in ("method", "name")}
        for override in overrides:
            if not isinstance(override, dict):
                raise UserError(f"{path}: override {brief(override)} is not a mapping such as {{cycles: 2}}")
            settings = merge(base, override)
            has_name = "name" in entry
            name = row_name(str(entry["name"]), override) if has_name else row_name(entry["method"], settings)
            rows.append(Row(name, method.family, method.name, settings, papers.get(name)))
    return rows


def check_unique_names(path: Path, rows: tuple[Row, ...]) -> None:
    """Raise `UserError` if two rows have the same name."""
    names = [row.name for row in rows]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{path} has two rows named '{repeated[0]}'; remove one, or give it another 'name:'")
