"""A method of one's own from a file: the one that docs/add-a-method.md shows."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ssdg.cli import call
from ssdg.methods.api import METHODS

PAGE = Path(__file__).parent.parent / "docs" / "add-a-method.md"
SMALL = ["backbone=digits-cnn", "weights=none", "size=32", "batch=4", "epochs=1", "lr=0.01"]


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    """The file on the page; its method is forgotten afterwards."""
    known = dict(METHODS)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code) == 1, "the page shows one file"
    path = tmp_path / "my_method.py"
    path.write_text(code[0], encoding="utf-8")
    yield path
    METHODS.clear()
    METHODS.update(known)
    for name in [name for name in sys.modules if name.startswith("ssdg_plugin_")]:
        del sys.modules[name]


def train(world: Path, cache: Path, out: Path, *more: object) -> int:
    where = ["--data", world, "--labeled", "photo", "--target", "night", "--cache", cache, "--out", out]
    return call([str(word) for word in ("train", "--preset", "paper", *where, "--device", "cpu", *SMALL, *more)])


def test_the_page_shows_a_method_that_works_everywhere(
    plugin: Path, world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = ["--plugin", plugin]
    assert train(world, cache, tmp_path / "alone", "--method", "coral", *mine) == 0
    assert train(world, cache, tmp_path / "pair", "--method", "coral+mixstyle", *mine, "labeler.epochs=1") == 0
    inside = ["--method", "eid", "apl=coral", "cycles=1", "labeler.epochs=1", "labeler.batch=4"]
    assert train(world, cache, tmp_path / "inside", *inside, *mine) == 0
    assert train(world, cache, tmp_path / "uda", "--method", "coral", "--setting", "uda", *mine) == 0
    capsys.readouterr()
    assert call(["methods", "--plugin", str(plugin), "--json"]) == 0
    told = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert told["coral"]["family"] == "DA"
    assert call(["resume", str(tmp_path / "alone")]) == 0
    data = ["--data", str(world / "night"), "--cache", str(cache)]
    assert call(["evaluate", str(tmp_path / "alone"), *data, *map(str, mine)]) == 0


def test_a_run_goes_on_only_with_the_file_it_began_with(
    plugin: Path, world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--method", "coral", "--plugin", plugin]
    assert train(world, cache, tmp_path / "run", *words) == 0
    plugin.write_text(plugin.read_text(encoding="utf-8").replace('"coral"', '"other"'), encoding="utf-8")
    assert call(["resume", str(tmp_path / "run")]) == 2
    assert "has changed since the run began" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (None, "cannot be read"),
        ("x = 1", "registers no method"),
        ("import ssdg\n1 / 0", "on line 2: ZeroDivisionError"),
        ("def f(:", "on line 1: SyntaxError"),
        ("from ssdg.methods import METHODS, register\nregister(METHODS['mcd'])", "'mcd' is registered already"),
    ],
)
def test_a_broken_plugin_is_told_in_a_sentence(
    code: str | None, told: str, world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.py"
    if code is not None:
        path.write_text(code, encoding="utf-8")
    assert train(world, cache, tmp_path / "run", "--plugin", path) == 2
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_model_of_a_plugin_asks_for_it(
    plugin: Path, world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(world, cache, tmp_path / "run", "--method", "coral", "--plugin", plugin) == 0
    del METHODS["coral"]
    capsys.readouterr()
    assert call(["predict", str(tmp_path / "run"), str(world / "night"), "-o", str(tmp_path / "out.csv")]) == 2
    assert "--plugin" in capsys.readouterr().err
