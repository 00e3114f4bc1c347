"""The pages under docs/ say what the code does: tables made from it, names that exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from ssdg.config import resolve
from ssdg.hub.published import PUBLISHED

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))


def load_script(name: str) -> ModuleType:
    """A script under docs/, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def make_settings() -> ModuleType:
    return load_script("make_settings")


def test_run_files_page_is_what_the_script_writes() -> None:
    script = load_script("make_run_files")
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run python docs/make_run_files.py"


def test_settings_page_is_what_the_script_writes(make_settings: ModuleType) -> None:
    text = make_settings.PAGE.read_text(encoding="utf-8")
    assert make_settings.page(text) == text, "run python docs/make_settings.py"


def test_a_changed_value_is_noticed(make_settings: ModuleType) -> None:
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


def test_sources_on_the_data_page_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:`([\w-]+)`)? ?\| (\d) \| (\S+) \|", text, re.MULTILINE)
    named, told = "", []
    for name, number, host in rows:
        named = name or named
        told.append((named, int(number), host))
    assert told == [
        (name, number, source.files[0].url.split("/")[2])
        for name, one in PUBLISHED.items()
        for number, source in enumerate(one.sources, start=1)
    ]
    asked = re.findall(r"^ssdg data fetch (\S+)", text, re.MULTILINE)
    assert asked
    assert {*asked} <= PUBLISHED.keys()
