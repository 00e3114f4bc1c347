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
    "development": dict,
}
DEVELOPMENT_KEYS: dict[str, type] = {key: KEYS[key] for key in ("tasks", "seeds", "data")}
TYPE_NAMES: dict[type, str] = {list: "a list such as [a, b]", dict: "a mapping such as {epochs: 5}", str: "a string"}


def load_suite(path: Path, *, development: bool = False) -> tuple[Suite, SuiteChoice]:
    """Load a custom benchmark suite from a YAML file, and what the file chooses of it.

    With `development`, choose its development tasks and seeds, on which settings are selected, instead of the
    reported ones.
    """
    content = load_mapping(path)
    check_types(path, content, KEYS)
    check_development(path, content)
    if not content.get("methods"):
        raise UserError(f"{path} names no method; add for example 'methods: [source-only, eid]'")
    settings = with_plugin(content.get("settings") or {})
    paper_suite = find_suite(content["paper"]) if "paper" in content else None
    papers = {row.name: row.paper for row in paper_suite.rows} if paper_suite else {}
    rows = tuple(build_rows(path, content["methods"], content.get("overrides") or [{}], papers))
    check_unique_names(path, rows)
    table, data = (paper_suite.table, paper_suite.data[:1]) if paper_suite else (None, ())
    name = f"{path.stem}-development" if development else path.stem  # a folder holds one of the two
    suite = Suite(name, str(path), rows, table, data, any_data=True, settings=settings)
    choice = {**content, **chosen_for_development(path, content)} if development else content
    tasks, seeds = (tuple(choice.get(key) or ()) for key in ("tasks", "seeds"))
    return suite, SuiteChoice(choice.get("data"), content.get("preset"), tasks=tasks, seeds=seeds)


def check_types(path: Path, content: Mapping[str, Any], keys: Mapping[str, type], inside: str = "") -> None:
    """Raise `UserError` for an unknown key or a value of another type."""
    for key, value in content.items():
        if key not in keys:
            raise unknown(f"key in {path}{inside}:", str(key), list(keys))
        if not isinstance(value, keys[key]):
            raise UserError(f"{path}{inside}: '{key}' must be {TYPE_NAMES[keys[key]]}, not {brief(value)}")


def check_development(path: Path, content: Mapping[str, Any]) -> None:
    """Require that no cell is both a development cell and a reported one, unless they have other data."""
    section = content.get("development") or {}
    check_types(path, section, DEVELOPMENT_KEYS, ", development")
    tasks = set(map(str, section.get("tasks") or ())) & set(map(str, content.get("tasks") or ()))
    seeds = set(map(str, section.get("seeds") or ())) & set(map(str, content.get("seeds") or ()))
    if tasks and seeds and "data" not in section:
        cell = f"task {min(tasks)} with seed {min(seeds)}"
        raise UserError(
            f"{path}: {cell} is both reported and used for development; give development other tasks, seeds or data"
        )


def chosen_for_development(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tasks, seeds and data on which settings are selected."""
    if section := content.get("development"):
        return {"tasks": None, "seeds": None, **section}
    raise UserError(f"{path} names no development tasks; add for example 'development: {{tasks: [a>b], seeds: [9]}}'")


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
