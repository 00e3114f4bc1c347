"""README.md is short, and its lists of methods, presets and extras are those of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from ssdg.config import PRESETS
from ssdg.methods import METHODS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAX_LINES = 110


def names_in_list(title: str) -> set[str]:
    """Return the names in code style of a list item such as `- **Presets:** ...`."""
    item = re.search(rf"^- \*\*{title}:\*\*(.*?)(?=^- \*\*|^$)", README, re.MULTILINE | re.DOTALL)
    assert item is not None
    return set(re.findall(r"`([^`]+)`", item[1]))


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= MAX_LINES


def test_methods_are_those_of_the_code() -> None:
    listed = {name for name in names_in_list("Methods") if "+" not in name and not name.startswith("ssdg ")}
    assert listed == {name for name in METHODS if "+" not in name}


def test_presets_are_those_of_the_code() -> None:
    assert names_in_list("Presets") == set(PRESETS)


def test_extras_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert names_in_list("Extras") == set(project["optional-dependencies"])


@pytest.mark.parametrize("target", ["demo", "docs", "test"])
def test_make_targets_exist(target: str) -> None:
    assert f"make {target}" in README
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
