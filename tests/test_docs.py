"""The documentation matches the code: generated tables are up to date and names exist. Links: tests/docs."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from ssdg.bench.folder import Cell, Grid, GridRow
from ssdg.config import resolve
from ssdg.hub.published import PUBLISHED
from ssdg.schema import Result, Scores

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


def load_script(name: str) -> ModuleType:
    """Import a script under docs/, which is not part of the package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def make_settings() -> ModuleType:
    return load_script("make_settings")


def test_run_files_page_is_up_to_date() -> None:
    script = load_script("make_run_files")
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run python docs/make_run_files.py"


def test_settings_page_is_up_to_date(make_settings: ModuleType) -> None:
    text = make_settings.PAGE.read_text(encoding="utf-8")
    assert make_settings.page(text) == text, "run python docs/make_settings.py"


def test_a_changed_value_is_detected(make_settings: ModuleType) -> None:
    text = make_settings.PAGE.read_text(encoding="utf-8")
    stale = text.replace("| `clean_rate` | `0.4` |", "| `clean_rate` | `0.5` |")
    assert stale != text
    assert make_settings.page(stale) == text


def test_names_in_the_method_page_exist() -> None:
    """Rows say `file` `name`, the file below src/ssdg or tests: the name must be defined there."""
    text = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
    pairs = re.findall(r"`([\w/]+\.py)`((?: `\w+`,?)+)", text)
    assert len(pairs) > 15
    for file, names in pairs:
        path = ROOT / file if file.startswith("tests/") else ROOT / "src" / "ssdg" / file
        code = path.read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"\b(def|class) {name}\b|^{name}\b|^    {name}:", code, re.MULTILINE), (file, name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_pages_name_exist(page: Path) -> None:
    named = set(re.findall(r"`(test_\w+)`", page.read_text(encoding="utf-8")))
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name in named if f"def {name}(" not in code]


def test_settings_files_in_examples_are_allowed() -> None:
    """Those of commands: tests/docs/test_code_blocks.py."""
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    files = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert files
    for file in files:
        resolve(yaml.safe_load(file), kind="photo", size=224)


def test_sources_on_the_data_page_match_the_code() -> None:
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:`([\w-]+)`)? ?\| (\d) \| (\S+) \|", text, re.MULTILINE)
    dataset, sources = "", []
    for name, number, host in rows:
        dataset = name or dataset
        sources.append((dataset, int(number), host))
    assert sources == [
        (name, number, source.files[0].url.split("/")[2])
        for name, published in PUBLISHED.items()
        for number, source in enumerate(published.sources, start=1)
    ]
    fetched = re.findall(r"^ssdg data fetch (\S+)", text, re.MULTILINE)
    assert fetched
    assert {*fetched} <= PUBLISHED.keys()


def test_earlier_accuracies_stay_in_a_results_page(tmp_path: Path) -> None:
    script = load_script("make_results")
    commits = {"eid": {"a>b": {"0": "aaa"}}, "probe": {"a>b": {"0": "aaa"}}}
    rows = [
        {
            "name": "eid",
            "family": "ours",
            "cells": {"a>b": {"seeds": {"0": 70.0}}, "average": {"seeds": {"0": 70.0}}},
        },
        {"name": "probe", "family": "frozen", "cells": {"a>b": {"seeds": {"0": 50.0}}}},
    ]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"tasks": ["a>c", "a>b"], "rows": rows, "commits": commits}))
    earlier, tasks = script.read_earlier(path), script.read_tasks(path)
    cell = Cell("1", "eid", "a>b", 0, {})
    rerun = Cell("2", "eid", "a>b", 1, {})
    grid = Grid(
        format=1, name="s", data="d", preset="best", rows=(GridRow("eid", "ours"),), tasks=("a>b",), seeds=(0, 1),
        cells=(cell, rerun),
    )  # fmt: skip
    scores = Scores(final={"mean": 71.0}, last_five={"mean": 71.0}, epochs_averaged=1)
    results = {"2": Result.model_construct(target=scores)}
    merged = script.MergedResults(script.with_rows_of(grid, earlier, tasks), results, earlier)
    assert merged.grid.tasks == ("a>c", "a>b")
    assert merged.scores("eid", "last-five") == {("a>b", 0): 70.0, ("a>b", 1): 71.0}
    assert merged.scores("probe", "last-five") == {("a>b", 0): 50.0}
    assert merged.commits("bbb") == {("eid", "a>b", 0): "aaa", ("eid", "a>b", 1): "bbb", ("probe", "a>b", 0): "aaa"}
    assert merged.count_cells() == (3, 5)  # a>c lacks both rows
