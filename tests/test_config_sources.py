"""Presets, a YAML file, options and key=value settings, in this order; a hash that means something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ssdg.cli import train as cli
from ssdg.config import RunConfig, resolve
from ssdg.engine.setup import with_full_paths


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """What `ssdg train` makes of its words."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(cli, "check_training", lambda *_: None)  # the folders do not exist
    monkeypatch.setattr(cli, "start", lambda given, *_: seen.append(with_full_paths(given)) or 0)

    def parse(*words: object) -> dict[str, Any]:
        from ssdg.cli import call

        assert call(["train", *map(str, words)]) == 0
        return seen[-1]

    return parse


def test_settings_win_over_options_and_options_over_the_file(given, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "run.yaml"
    path.write_text("data: digits\nlabeled: mnist\nseed: 1\nepochs: 9\nlabeler:\n  epochs: 8\n  lr: 0.5\n")
    told = given(path, "--seed", 2, "labeler.epochs=3", "epochs=4")
    assert told == {
        "preset": "best",  # the default
        "data": "digits",
        "labeled": "mnist",
        "seed": 2,
        "epochs": 4,
        "labeler": {"epochs": 3, "lr": 0.5},
    }


def test_words_after_unlabeled_are_told_apart(given, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "run.yaml").write_text("epochs: 9\n")
    told = given("--data", "digits", "--unlabeled", "a", "b", "lr=1", tmp_path / "run.yaml", "labeler.lr=2")
    assert told["unlabeled"] == ["a", "b"]
    assert (told["lr"], told["epochs"], told["labeler"]) == (1, 9, {"lr": 2})


def test_own_folders_become_absolute(given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    assert given("--labeled", "l", "--unlabeled", "./a=b")["unlabeled"] == [str(tmp_path / "a=b")]
    assert given("--labeled", "l", "unlabeled=u")["unlabeled"] == [str(tmp_path / "u")]
    assert given("--labeled", "l", "unlabeled=[u, v]")["unlabeled"] == [str(tmp_path / n) for n in "uv"]


def config(**given: Any) -> RunConfig:
    return resolve({"labeled": "a", **given}, kind="photo", size=32)


def test_equal_runs_have_equal_hashes_wherever_their_files_lie() -> None:
    assert config(labeled="/here/a", weights="/x/w.pth").hash == config(labeled="/there/a", weights="w.pth").hash
    assert config(apl_weights="/x/w.pth").hash == config(apl_weights="/y/w.pth").hash
    assert config(**config(preset="release").flat()).hash == config(preset="release").hash  # as resume gives them


@pytest.mark.parametrize(
    ("method", "hash"),
    [("eid", "0c2bffb4b17380d3"), ("mcd+mixstyle", "c2b7530a2d9d8cbc"), ("source-only", "aa1a3240919a5ba7")],
)
def test_later_settings_do_not_change_the_hash_of_earlier_runs(method: str, hash: str) -> None:
    """Hashes of version 0.1: its runs can be resumed."""
    assert resolve({"labeled": "a", "method": method}, kind="photo", size=32).hash == hash
    assert resolve({"labeled": "a", "method": method, "trunk_rate": 0.5}, kind="photo", size=32).hash != hash


@pytest.mark.parametrize("other", [{"seed": 1}, {"lr": 0.5}, {"labeler": {"lr": 0.5}}, {"apl_weights": "w.pth"}])
def test_unlike_runs_have_unlike_hashes(other: dict[str, Any]) -> None:
    assert config(**other).hash != config().hash
