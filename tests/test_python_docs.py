"""The snippets of docs/python.md and the examples in docstrings run as they stand."""

from __future__ import annotations

import doctest
import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLACES = {"photos": "photo", "sketches": "sketch", "crawl": "neon", "kiosk": "night", "new-images": "night"}


def test_the_page_runs(
    world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="the page uses scikit-learn")
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(snippets) >= 4
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSDG_CACHE", str(cache))
    for place, domain in PLACES.items():
        shutil.copytree(world / domain, tmp_path / place)
    shutil.copy(next((world / "night").rglob("*.png")), tmp_path / "one.png")
    names: dict[str, object] = {}
    for number, snippet in enumerate(snippets):
        exec(compile(snippet, f"snippet {number} of docs/python.md", "exec"), names)
    said = capsys.readouterr().out.strip()
    assert f"# {said}\n" in page
    assert (tmp_path / "model" / "estimator.json").exists()


@pytest.mark.parametrize(
    "module", ["ssdg", "ssdg.estimator.estimator", "ssdg.estimator.parameters", "ssdg.estimator.input_folders"]
)
def test_examples_in_docstrings(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.attempted
    assert not found.failed
