"""Mistakes that need no torch to see are reported before it is imported and before weights are read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runs import environment
from ssdg.cli import call
from ssdg.cli.methods import make_index, read_index
from ssdg.engine import setup
from ssdg.errors import UserError
from ssdg.methods import METHODS
from worlds import write_world

RUN = """
import contextlib, io, json, sys
from ssdg.cli import call
results = []
for args in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        code = call(args)
    results.append([code, errors.getvalue(), "torch" in sys.modules])
print(json.dumps(results))
"""
MISTAKES: dict[str, tuple[list[str], str]] = {
    "labeled": (["train", "--labeled", "no-such"], "the labeled folder"),
    "target": (["train", "--labeled", "photos", "--target", "no-such"], "the target folder"),
    "unlabeled": (["train", "--labeled", "photos", "--unlabeled", "no-such"], "the unlabeled folder"),
    "web": (["train", "--labeled", "photos", "--web", "no-such"], "does not exist"),
    "two roles": (["train", "--labeled", "photos", "--target", "photos"], "are the same"),
    "data": (["train", "--data", "no-such", "--labeled", "photo"], "does not exist"),
    "no labeled": (["train"], "no labeled domain was given"),
    "method": (["train", "--labeled", "photos", "--method", "mdc"], "did you mean 'mcd'?"),
    "first of a pair": (["train", "--labeled", "photos", "--method", "mdc+rsc"], "unknown labeling method 'mdc'"),
    "second of a pair": (["train", "--labeled", "photos", "--method", "mcd+rcs"], "unknown DG method 'rcs'"),
    "preset": (["train", "--labeled", "photos", "--preset", "bset"], "did you mean 'best'?"),
    "setting": (["train", "--labeled", "photos", "epohcs=3"], "did you mean 'epochs'?"),
    "setting of a pair": (["train", "--labeled", "photos", "--method", "dan+rsc", "epohcs=3"], "'epochs'?"),
    "device": (["train", "--labeled", "photos", "--device", "gpu"], "unknown device 'gpu'"),
    "resume": (["resume", "no-such"], "is not a run folder"),
    "evaluate": (["evaluate", "photos", "--data", "no-such"], "does not exist"),
    "evaluate no model": (["evaluate", "photos", "--data", "photos"], "contains no trained model"),
    "export": (["export", "photos", "--format", "onnx"], "contains no trained model"),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Exit code, message and whether torch was imported, for every mistake: all in one process."""
    folder = tmp_path_factory.mktemp("early")
    (folder / "photos").mkdir()
    args = json.dumps([args for args, _ in MISTAKES.values()])
    command = [sys.executable, "-c", RUN, args]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, cwd=folder)
    return dict(zip(MISTAKES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_reported_before_torch_is_imported(mistake: str, reports: dict[str, Any]) -> None:
    code, error, has_torch = reports[mistake]
    assert code == 2
    assert MISTAKES[mistake][1] in error
    assert error.count("\n") == 1
    assert not has_torch


@pytest.mark.parametrize(("backbone", "extra"), [("timm:resnet18", "timm"), ("hf:any/model", "hf")])
def test_a_missing_package_of_a_backbone_is_reported(
    backbone: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: Any
) -> None:
    monkeypatch.setattr("ssdg.cli.early_checks.find_spec", lambda name: None)
    for package in ("timm", "transformers"):
        monkeypatch.delitem(sys.modules, package, raising=False)
    error = complaint("train", "--labeled", tmp_path, f"backbone={backbone}")
    assert f"pip install 'ssdg[{extra}]'" in error


def test_folders_are_checked_before_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flat").mkdir()

    def try_backbone(*args: object) -> None:
        raise AssertionError("weights were touched")

    monkeypatch.setattr(setup, "try_backbone", try_backbone)
    for preset in ("best", "paper"):
        with pytest.raises(UserError, match="does not exist"):
            setup.open_settings({"labeled": str(tmp_path / "none"), "preset": preset}, tmp_path)
        with pytest.raises(UserError, match="no class subfolders"):
            setup.open_settings({"labeled": str(tmp_path / "flat"), "preset": preset}, tmp_path)
    world = write_world(tmp_path / "world")
    settings = {"data": str(world), "labeled": "photo", "method": "mcd", "web_label": "retained"}
    with pytest.raises(UserError, match="does not support web-labels"):
        setup.open_settings(settings, tmp_path)


def test_the_index_matches_the_registry() -> None:
    """After a change: python -m ssdg.cli.methods."""
    built_in = {record["name"] for record in read_index().methods}
    index = make_index()
    index.methods[:] = [record for record in index.methods if record["name"] in built_in]  # other tests add methods
    assert index == read_index()
    assert {name for name, method in METHODS.items() if method.learner.__module__.startswith("ssdg.")} <= built_in


def test_a_method_of_a_plugin_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text(
        "from dataclasses import replace\nfrom ssdg.methods import find_method, register\n"
        "register(replace(find_method('source-only'), name='mine-early'))\n"
    )
    args = ["train", "--plugin", str(plugin), "--method", "mine-early", "--labeled", str(tmp_path / "none")]
    try:
        assert call(args) == 2
    finally:
        METHODS.pop("mine-early", None)
    assert "does not exist" in capsys.readouterr().err


def test_the_list_of_methods_fits_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call(["methods"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    names = [line.split()[0] for line in lines if line.startswith(" ") and line[1] != " "]
    assert names[:3] == ["eid", "self-training", "source-only"]
    assert "--preset best" in " ".join(lines[1:4])
    assert sorted(names) == sorted(record["name"] for record in read_index().methods)
