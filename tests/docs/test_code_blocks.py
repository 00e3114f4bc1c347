"""Code in the pages fits the package: commands and options exist, settings are allowed, imports resolve."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import ssdg
from command_lines import commands, wrong_commands
from pages import PAGES, code_blocks, page_name

SHELL = [page for page in PAGES if code_blocks(page, "sh")]
PYTHON = [page for page in PAGES if code_blocks(page, "python")]


@pytest.mark.parametrize("page", SHELL, ids=page_name)
def test_commands_exist_with_their_options(page: Path) -> None:
    assert not [line for _, script in code_blocks(page, "sh") for line in wrong_commands(script)]


def test_most_pages_have_commands_to_check() -> None:
    scripts = [script for page in SHELL for _, script in code_blocks(page, "sh")]
    assert sum(1 for script in scripts for _ in commands(script)) > 100


@pytest.mark.parametrize(
    "command",
    [
        "ssdg trane --labeled x",
        "ssdg train --labeled x --no-such-option 3",
        "cat list | ssdg predict model.onnx - --nul",
        "ssdg train --labeled x cycels=3",
        "ssdg train --labeled x --method fixmatch \\\n  threshold=7",
        "ssdg web crawl --classes a,b --per-class many --out crawl/",
        "torchrun --nproc-per-node 2 -m ssdg train --lebeled x",
    ],
)
def test_a_wrong_command_is_noticed(command: str) -> None:
    assert len(wrong_commands(command)) == 1


def unresolved_names(code: str) -> list[str]:
    """The names of `ssdg` that code imports or uses and that do not exist."""
    missing = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ssdg":
            module = import_module(node.module or "")
            missing += [f"{node.module}.{alias.name}" for alias in node.names if not hasattr(module, alias.name)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ssdg":
            missing += [] if node.attr in ssdg.__all__ else [f"ssdg.{node.attr}"]
    return missing


@pytest.mark.parametrize("page", PYTHON, ids=page_name)
def test_python_compiles_and_its_imports_resolve(page: Path) -> None:
    for line, code in code_blocks(page, "python"):
        compile(code, f"{page_name(page)}:{line}", "exec")
        assert not unresolved_names(code)


def test_a_wrong_import_is_noticed() -> None:
    assert unresolved_names("import ssdg\nfrom ssdg.methods import Method, Metod\nssdg.load_modle(1)") == [
        "ssdg.methods.Metod",
        "ssdg.load_modle",
    ]
