"""README.md is short, its quick start runs, and its lists of methods, presets and extras are those of the code."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from runs import environment
from ssdg.config import PRESETS
from ssdg.methods import METHODS
from worlds import write_world

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


def test_the_results_are_those_of_their_page() -> None:
    """Each row of the results table is a row of best-pacs.json, with one decimal."""
    stored = json.loads((ROOT / "docs" / "results" / "best-pacs.json").read_text(encoding="utf-8"))
    means = {row["name"]: [cell["mean"] for cell in row["cells"].values()] for row in stored["rows"]}
    table = README.split("## Results")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", table, re.MULTILINE)
    printed = {name: [float(cell.strip(" *")) for cell in cells.split("|")] for name, cells in rows}
    assert printed.keys() == means.keys()
    for name, values in printed.items():
        assert values == pytest.approx(means[name], abs=0.0501), name


FOLDERS = {"photo": "photos", "sketch": "sketches", "neon": "crawl", "night": "paintings"}


@pytest.fixture(scope="module")
def own_folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that the quick start names, with small images, and unlabeled ones without class folders."""
    root = write_world(tmp_path_factory.mktemp("quick-start"))
    for domain, name in FOLDERS.items():
        (root / domain).rename(root / name)
    (root / "new-images").mkdir()
    for name, is_copy in (("sketches", False), ("crawl", False), ("paintings", True)):
        for path in sorted((root / name).rglob("*.png")):
            other = root / ("new-images" if is_copy else name) / f"{path.parent.name}-{path.name}"
            other.write_bytes(path.read_bytes())
            if not is_copy:
                path.unlink()
    return root


def run_block(language: str, folder: Path) -> None:
    """Run the block of the quick start in this language, in seconds instead of minutes."""
    block = re.search(rf"^## Quick start.*?^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert block is not None
    script, num_replaced = re.subn(r"(minutes[ =])20\b", r"\g<1>0.2", block[1])
    assert num_replaced == 1
    if language == "sh":
        head = f'set -euo pipefail\nssdg() {{ "{sys.executable}" -m ssdg "$@"; }}\n'
        command = ["bash", "-c", head + script]
    else:
        command = [sys.executable, "-c", script + "assert len(labels) == 24, labels\n"]
    environ = environment({"SSDG_CACHE": str(folder / "cache")})
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_shell_commands_run(own_folders: Path) -> None:
    run_block("sh", own_folders)
    assert (own_folders / "report.html").stat().st_size > 500
    with (own_folders / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert not any(row["error"] for row in rows)


def test_the_python_code_runs(own_folders: Path) -> None:
    run_block("python", own_folders)
