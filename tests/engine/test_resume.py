"""A run that is killed anywhere and started again ends with the same bits."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from leftovers import leave
from runs import environment, same_weights, short_settings, train_here, weights_of
from ssdg.artifact.tensors import read_meta
from ssdg.cli import call
from ssdg.engine.events import read_event_dicts
from ssdg.engine.stages import StageTrainer
from ssdg.errors import UserError
from ssdg.methods.generalization.ddaig import DdaigSettings
from ssdg.models.backbones import build_backbone
from ssdg.schema import read_run_file
from waiting import PATIENCE, wait_until

FEW_STEPS: dict[str, Any] = {"batch": 8, "labeler": {"epochs": 2, "batch": 8, "lr": 0.01}}  # 48 in all


def command(world: Path, cache: Path, out: Path, **more: object) -> list[str]:
    """`ssdg train` with the settings of `done`, saving after every step."""
    settings = short_settings("eid", **FEW_STEPS, **more)
    inner = settings.pop("labeler")
    words = [f"{k}={v}" for k, v in settings.items() if k not in ("method", "labeled", "target")]
    words += [f"labeler.{k}={v}" for k, v in inner.items()]
    where = ["--data", world, "--labeled", settings["labeled"], "--target", settings["target"], "--out", out]
    return [
        str(w)
        for w in (
            "train",
            "--preset",
            "paper",
            *where,
            "--cache",
            cache,
            "--device",
            "cpu",
            "--save-seconds",
            0,
            *words,
        )
    ]


@pytest.fixture(scope="module")
def done(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("done")
    train_here(world, cache, folder, "eid", **FEW_STEPS)
    return folder


def comparable(folder: Path) -> dict[str, object]:
    """The result without what the clock decides."""
    result = json.loads((folder / "result.json").read_text())
    for phase in result["phases"].values():
        phase.pop("seconds"), phase.pop("images_per_second")
    return {k: v for k, v in result.items() if k != "seconds"}


def test_sigkill_at_random_points(world: Path, cache: Path, done: Path, tmp_path: Path) -> None:
    """Kill a real process at random points, finish, compare weights and every number."""
    rng, folder, killed = random.Random(4), tmp_path / "killed", 0
    words = [sys.executable, "-m", "ssdg", *command(world, cache, folder)]
    while killed < 3:
        process = subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before = progress(folder)
        wait_until(lambda: progress(folder) > before or process.poll() is not None)  # noqa: B023
        time.sleep(rng.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        killed += 1
    assert killed >= 2
    assert call(command(world, cache, folder)) == 0
    assert same_weights(done, folder)
    assert comparable(done) == comparable(folder)
    card = "model/model.json"  # has thresholds of scores
    assert (done / card).read_text() == (folder / card).read_text()


def progress(folder: Path) -> int:
    """Steps on disk."""
    metas = [read_meta(path) for path in (folder / "stages").glob("[!.]*.safetensors")]
    return sum(meta["step"] for meta in metas if meta)


DIE_WHILE_SAVING = """
import os, signal, sys
import ssdg.artifact.tensors as state
from ssdg.cli import main
write, count = state.save_file, [0]
def save_half(tensors, path, metadata):
    write(tensors, path, metadata=metadata)
    count[0] += 1
    if count[0] == {at}:
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
state.save_file = save_half
main(sys.argv[1:])
"""


def test_sigkill_in_the_middle_of_a_checkpoint(world: Path, cache: Path, done: Path, tmp_path: Path) -> None:
    """Once in the very first one, once where an older one is there."""
    folder = tmp_path / "killed"
    words = command(world, cache, folder)
    for at in (1, 7):
        code = DIE_WHILE_SAVING.format(at=at)
        died = subprocess.run(
            [sys.executable, "-c", code, *words], env=environment(), capture_output=True, check=False
        )
        assert died.returncode == -signal.SIGKILL
        assert list((folder / "stages").glob(".*.tmp"))
    assert progress(folder) == 6
    assert call(words) == 0
    assert same_weights(done, folder)
    assert not list((folder / "stages").glob(".*.tmp"))


def test_ctrl_c_ends_cleanly_and_names_the_command_that_continues(
    world: Path, cache: Path, done: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "stopped"
    words = [sys.executable, "-m", "ssdg", *command(world, cache, folder)]
    process = subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: progress(folder) > 0)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert f"ssdg resume {folder}" in message
    assert "Traceback" not in message
    assert call(["resume", str(folder)]) == 0
    assert same_weights(done, folder)


def files_of(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_a_finished_run_is_left_as_it_is(world: Path, cache: Path, tmp_path: Path) -> None:
    first = train_here(world, cache, tmp_path, "source-only")
    before = files_of(tmp_path)
    assert train_here(world, cache, tmp_path, "source-only") == first
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("lost", ["result.json", "model/model.json", "labels/1-apl-neon.npz", "labels/2-eid.npz"])
def test_what_a_kill_left_out_is_made_again(lost: str, world: Path, cache: Path, done: Path, tmp_path: Path) -> None:
    """A process may die after any file is written: without the files that come later, the run is completed."""
    folder = Path(shutil.copytree(done, tmp_path / "run"))
    stamp = (folder / lost).stat().st_mtime_ns
    for path, written in files_of(folder).items():
        if written >= stamp and path.name not in ("run.json", "events.jsonl"):
            path.unlink()
    torn = leave(folder / "stages" / "1-dcg.safetensors")
    train_here(world, cache, folder, "eid", **FEW_STEPS)
    assert same_weights(done, folder)
    assert comparable(done) == comparable(folder)
    assert not torn.exists()


def test_a_moved_run_resumes_as_it_was_started(
    world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Relative paths of data and weights, a given cache, one thread: all as at the start, from another place."""
    weights = Path(shutil.copytree(world, tmp_path / "here" / "data")).parent / "start.pth"
    torch.save(build_backbone("digits-cnn").state_dict(), weights)
    monkeypatch.chdir(tmp_path / "here")
    words = [
        "train",
        "--preset",
        "paper",
        "--data",
        "data",
        "--labeled",
        "photo",
        "--target",
        "night",
        "--out",
        "run",
        "--device",
        "cpu",
    ]
    words += ["--cache", "decoded", "--threads", "1", "backbone=digits-cnn", "size=32", "batch=4", "epochs=1"]
    words += ["method=source-only", "weights=start.pth"]
    assert call(words) == 0
    before = weights_of(Path("run"))
    shutil.move("run", tmp_path / "there")
    for name in ("result.json", "stages/1-main.safetensors"):
        (tmp_path / "there" / name).unlink()
    monkeypatch.chdir(tmp_path)
    threads: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", threads.append)
    assert call(["resume", "there"]) == 0, capsys.readouterr().err
    after = weights_of(tmp_path / "there")
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert threads == [1]
    assert not (tmp_path / "decoded").exists()


def test_a_run_of_an_earlier_revision_of_the_method_is_refused(
    world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same settings give other numbers: a run must not mix the two."""
    with monkeypatch.context() as earlier:
        earlier.setattr(DdaigSettings, "revision", 1)
        train_here(world, cache, tmp_path, "ddaig", epochs=1)
    with pytest.raises(UserError, match="an earlier version of ddaig, which gives other numbers"):
        train_here(world, cache, tmp_path, "ddaig", epochs=1)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"config": 3, "hash": "", "fingerprint": ""}'])
def test_a_run_json_of_something_else_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match="damaged or from another version"):
        read_run_file(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(UserError, match="not a run folder"):
        read_run_file(tmp_path)


def test_a_folder_in_use_is_refused(
    world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "busy"
    words = command(world, cache, folder, epochs=50)
    process = subprocess.Popen(
        [sys.executable, "-m", "ssdg", *words],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: (folder / "run.json").exists())
        second = call(words)
    finally:
        process.kill()
        process.wait()
    assert second == 2
    assert "in use by another process" in capsys.readouterr().err


def test_events_survive_a_line_cut_short(world: Path, cache: Path, tmp_path: Path) -> None:
    train_here(world, cache, tmp_path, "source-only")
    path = tmp_path / "events.jsonl"
    whole = list(read_event_dicts(path))
    with path.open("a") as file:
        file.write('{"time": 1, "eve')
    assert list(read_event_dicts(path)) == whole
    (tmp_path / "result.json").unlink()
    train_here(world, cache, tmp_path, "source-only")
    assert [e["event"] for e in read_event_dicts(path)][len(whole) :][0] == "start"


def test_momentum_that_waits_in_a_file_is_as_it_was(
    world: Path, cache: Path, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learners that keep all their tensors between cycles end with the same bits; without momentum they do not."""
    monkeypatch.setattr(StageTrainer, "_rest", lambda *_: None)
    train_here(world, cache, tmp_path / "awake", "eid", **FEW_STEPS)
    assert same_weights(done, tmp_path / "awake")
    monkeypatch.undo()
    monkeypatch.setattr(StageTrainer, "_wake", lambda *_: None)
    train_here(world, cache, tmp_path / "forgetful", "eid", **FEW_STEPS)
    assert not same_weights(done, tmp_path / "forgetful")
