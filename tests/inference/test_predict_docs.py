"""The snippets of docs/predict.md run as written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from exported import CLASSES, write_colors
from runs import environment

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "predict.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, world: Path, evolved: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with all files that the page mentions."""
    shutil.copytree(world / "night", tmp_path / "photos")
    shutil.make_archive(str(tmp_path / "more"), "zip", world / "neon")
    shutil.copy(world / "photo" / "bar" / "0.png", tmp_path / "one.jpg")
    shutil.copy(world / "photo" / "bar" / "0.png", tmp_path / "photos" / "a.jpg")
    for name in CLASSES:
        shutil.copytree(world / "photo" / "bar", tmp_path / "scored" / name)
    shutil.copytree(evolved, tmp_path / "runs" / "mine")
    write_colors(tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands(folder: Path) -> None:
    snippets = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert len(snippets) >= 3
    script = f'set -euo pipefail\nssdg() {{ "{sys.executable}" -m ssdg "$@"; }}\n' + "".join(snippets)
    environ = environment({"SSDG_CACHE": str(folder / "cache")})
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    written = re.findall(r"-o (\S+)", "".join(snippets))
    assert len(written) == 8
    counts = {name: len((folder / name).read_text().splitlines()) for name in written}
    assert counts == {
        **{"predictions.csv": 26, "unknown.csv": 26, "mixed.csv": 51, "some.csv": 2, "listed.csv": 2},
        "listed.jsonl": 1,
    }
    assert not list(folder.glob("*.part*"))


def test_python(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(snippet, "snippet of docs/predict.md", "exec"), {})
    assert capsys.readouterr().out == "red\n"  # black: all classes are equally likely, and the first is predicted
