"""Damaged files of a run folder are reported in one sentence by every command that reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runs import train_here
from ssdg.cli import call
from ssdg.errors import UserError
from ssdg.models.weights import read_state

DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def finished(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Read only: write to a copy."""
    folder = tmp_path_factory.mktemp("finished")
    train_here(world, cache, folder, "source-only")
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file; NaN is written as Python writes it."""
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"seconds": NaN}', DEEP, "\x00", ""])
@pytest.mark.parametrize("command", ["resume", "report", "select"])
def test_a_damaged_result(command: str, text: str, folder: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    (folder / "result.json").write_text(text)
    out = ["-o", tmp_path / "page.html"] if command == "report" else []
    assert "result.json' is damaged" in complaint(command, folder, *out)


@pytest.mark.parametrize("part", ["config", "target", "machine"])
def test_nan_anywhere_in_a_result(part: str, folder: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    edit(folder / "result.json", lambda values: values[part].update(x=float("nan")))
    assert "NaN is not a JSON value" in complaint("report", folder, "-o", tmp_path / "page.html")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("threads", 10**9),
        ("threads", 0),
        ("threads", "many"),
        ("save_seconds", "long"),
        ("save_seconds", float("inf")),
        ("cache", 5),
        ("cache", "a\0b"),
        ("device", [1]),
        ("chosen", 3),
        ("minutes", "long"),
        ("wandb", {}),
    ],
)
def test_invalid_options_of_a_run(key: str, value: object, folder: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    edit(folder / "run.json", lambda values: values.setdefault("options", {}).update({key: value}))
    assert "run.json' is damaged" in complaint("resume", folder)


def test_unknown_options_of_a_run_are_ignored(folder: Path, cache: Path) -> None:
    edit(
        folder / "run.json", lambda values: values.update(options={"later": 1, "cache": str(cache), "device": "cpu"})
    )
    assert call(["resume", str(folder)]) == 0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("later", 1, "unknown setting"),
        ("epochs", "many", "epochs='many'"),
        ("labeled", [], "labeled"),
        ("method", None, "unknown method 'None'"),
        ("seed", 10**30, "another configuration"),
        ("unlabeled", 7, "unlabeled=7"),
        ("data", "a\0b", "does not exist"),
        ("preset", {}, "unknown preset"),
    ],
)
def test_invalid_settings_of_a_run(key: str, value: object, message: str, folder: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    edit(folder / "run.json", lambda values: values["config"].update({key: value}))
    assert message in complaint("resume", folder, "--device", "cpu")


@pytest.mark.parametrize("name", ["run.json", "events.jsonl", "samples/index.json"])
def test_a_file_that_is_nested_too_deeply(name: str, folder: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    (folder / name).write_text(f"{DEEP}\n")
    assert "is damaged" in complaint("report", folder, "-o", tmp_path / "page.html")


@pytest.mark.parametrize("text", ["root:x:0:0:root\n", "", "hello", "(lp0\n", "\x80\x02."])
def test_weights_that_are_text(text: str, tmp_path: Path) -> None:
    for name in ("weights.pth", "weights.safetensors", "weights"):
        (tmp_path / name).write_text(text, encoding="latin-1")
        with pytest.raises(UserError, match="weights file") as refusal:
            read_state(tmp_path / name)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "1000000000", "0"])
@pytest.mark.parametrize(
    "command", [["resume", "x"], ["bench", "digits", "--out", "x"], ["demo"]], ids=lambda c: c[0]
)
def test_a_number_of_threads_out_of_range(command: list[str], number: str, complaint) -> None:  # type: ignore[no-untyped-def]
    message = complaint(*command, "--threads", number)
    assert "--threads" in message
    assert len(message) < 300


def test_an_infinite_time_between_checkpoints(world: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    command = ["train", "--data", world, "--labeled", "photo", "--save-seconds", "inf"]
    assert "--save-seconds" in complaint(*command)
