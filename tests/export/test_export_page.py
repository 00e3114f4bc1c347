"""The commands and the snippet of docs/export.md run as written."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from ssdg.cli import call

PAGE = Path(__file__).parent.parent.parent / "docs" / "export.md"


def test_the_page_runs(
    evolved: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    commands = re.findall(r"^ssdg (export runs/mine [^#\n]*)", page, re.MULTILINE)
    assert len(commands) == 5
    monkeypatch.chdir(tmp_path)
    shutil.copytree(evolved, tmp_path / "runs" / "mine")
    shutil.copytree(world / "photo", tmp_path / "photos")
    shutil.copy(world / "night" / "disc" / "0.png", tmp_path / "photo.png")
    for command in commands:
        more = ["--tolerance", "1"] if "--quantize" in command else []  # these networks know nothing
        assert call([*shlex.split(command), *more]) == 0, command
    outputs = ("runs/mine/model.onnx", "kiosk.onnx", "runs/mine/model-int8.onnx", "runs/mine/model.pt2")
    assert all(Path(name).is_file() for name in outputs)
    assert Path("shipped/model.json").is_file()
    capsys.readouterr()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(snippet, "docs/export.md", "exec"), {})
    assert capsys.readouterr().out.strip() in ("unknown", "bar", "disc", "ring")
