"""Curves for TensorBoard and W&B: each epoch once, also after a resume; a sink that fails stops nothing."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ssdg.cli import call
from ssdg.engine.events import Events, read_event_dicts
from ssdg.engine.sinks import open_sinks, point_of


def epoch(round: int, number: int, **more: Any) -> dict[str, Any]:
    return {"key": "dcg", "round": round, "epoch": number, "epochs": 2, "loss": 10.0 * round + number, **more}


LABELED = {"key": "apl/neon", "round": 1, "domains": {"neon": {"images": 8, "kept": 4, "accuracy": None}}}
JOINED = {"key": "eid", "round": 2, "domains": {"neon": {"kept_accuracy": 75.0}, "sea": {"kept": 3}}}


def points_in(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard reads: (step, value) by curve."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder / "tensorboard"))
    read.Reload()
    return {tag: [(s.step, s.value) for s in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def emit(folder: Path, payloads: list[tuple[str, dict[str, Any]]], **sinks: Any) -> list[str]:
    """Emit events as a process of a run does; return the warnings."""
    warnings: list[str] = []
    options = {"tensorboard": False, "wandb": None, **sinks}
    with open_sinks(folder, options["tensorboard"], options["wandb"], warnings.append) as listeners:
        events = Events(folder / "events.jsonl", listeners)
        events.emit("start", config={"seed": 1}, stages=[])
        for kind, values in payloads:
            events.emit(kind, **values)
    return warnings


FIRST = [("epoch", epoch(1, 1)), ("epoch", epoch(1, 2)), ("labeled", LABELED), ("epoch", epoch(2, 1))]
# The second process begins at a checkpoint before cycle 2, and finds the labels.
SECOND = [
    ("labeled", {**LABELED, "found": True}),
    ("epoch", epoch(2, 1)),
    ("epoch", epoch(2, 2)),
    ("labeled", JOINED),
]


def test_a_point_has_losses_scores_and_labels() -> None:
    event = epoch(3, 2, time=5.0, event="epoch", target=[1.0, 2.0, 3.0], validation=[4.0, 4.0], others={"x": [9.0]})
    point = point_of(event)
    assert point is not None
    assert (point.series, point.step, point.time) == ("dcg", 6, 5.0)
    assert point.values == {
        "dcg/loss": 32.0,
        "target/network_1": 1.0,
        "target/network_2": 2.0,
        "target/mean": 3.0,
        "validation/network_1": 4.0,
        "validation/mean": 4.0,
    }
    labels = [point_of({"event": "labeled", "time": 0.0, **event}) for event in (LABELED, JOINED)]
    assert [(p.step, p.values) for p in labels if p] == [
        (1, {"labels/apl/neon/images": 8.0, "labels/apl/neon/kept": 4.0}),
        (2, {"labels/eid/neon/kept_accuracy": 75.0, "labels/eid/sea/kept": 3.0}),
    ]
    assert point_of({"event": "trained", "time": 0.0, "key": "dcg"}) is None


def test_tensorboard_has_every_epoch_once_after_a_resume(tmp_path: Path) -> None:
    assert not emit(tmp_path, FIRST, tensorboard=True)
    assert points_in(tmp_path)["dcg/loss"] == [(1, 11.0), (2, 12.0), (3, 21.0)]
    assert not emit(tmp_path, SECOND, tensorboard=True)
    points = points_in(tmp_path)
    assert points["dcg/loss"] == [(1, 11.0), (2, 12.0), (3, 21.0), (4, 22.0)]
    assert points["labels/apl/neon/kept"] == [(1, 4.0)]
    assert points["labels/eid/neon/kept_accuracy"] == [(2, 75.0)]


def test_tensorboard_asked_for_late_gets_what_was_before(tmp_path: Path) -> None:
    emit(tmp_path, FIRST)
    assert not (tmp_path / "tensorboard").exists()
    emit(tmp_path, SECOND, tensorboard=True)
    assert [step for step, _ in points_in(tmp_path)["dcg/loss"]] == [1, 2, 3, 4]


def test_a_reader_that_saw_the_old_files_forgets_them(tmp_path: Path) -> None:
    """As one whose file was not deleted, because another system has it."""
    emit(tmp_path, FIRST, tensorboard=True)
    folder = tmp_path / "tensorboard"
    old = next(folder.iterdir())
    copy = shutil.copy(old, tmp_path / "old")
    emit(tmp_path, SECOND, tensorboard=True)
    shutil.copy(copy, folder / "events.out.tfevents.0000000000.before")
    assert [step for step, _ in points_in(tmp_path)["dcg/loss"]] == [1, 2, 3, 4]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the package: what it was asked, and rows by run as its server would keep them."""
    fake: Any = ModuleType("wandb")
    fake.begun, fake.rows, fake.ended = [], {}, 0

    def init(**arguments: Any) -> SimpleNamespace:
        fake.begun.append(arguments)
        rows = fake.rows.setdefault(arguments["id"], [])

        def log(row: dict[str, float], step: int) -> None:
            assert step == len(rows), "the server drops a step that it has"
            rows.append(row)

        def finish() -> None:
            fake.ended += 1

        return SimpleNamespace(step=len(rows), log=log, finish=finish)

    fake.init = init
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_wandb_resumes_its_run(tmp_path: Path, wandb: Any) -> None:
    assert not emit(tmp_path, FIRST, wandb="mine")
    assert not emit(tmp_path, SECOND, wandb="mine")
    first, second = wandb.begun
    assert first == second
    assert (first["project"], first["resume"], first["config"]) == ("mine", "allow", {"seed": 1})
    (rows,) = wandb.rows.values()
    assert [row["dcg/loss"] for row in rows if "dcg/loss" in row] == [11.0, 12.0, 21.0, 22.0]
    assert [(row["cycle"], row["dcg/step"]) for row in rows if "dcg/step" in row] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    assert wandb.ended == 2


def test_another_run_is_another_one_of_wandb(tmp_path: Path, wandb: Any) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        start = {"time": 1.0 if name == "one" else 2.0, "event": "start", "config": {"seed": 1}}
        (tmp_path / name / "events.jsonl").write_text(json.dumps(start) + "\n")
        emit(tmp_path / name, FIRST, wandb="mine")
    assert len(wandb.rows) == 2


@pytest.mark.parametrize("where", ["init", "log", "finish"])
def test_a_failing_sink_is_reported_once(tmp_path: Path, wandb: Any, where: str) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no way there\nand more")

    if where == "init":
        wandb.init = broken
    else:
        healthy: Callable[..., Any] = wandb.init
        wandb.init = lambda **arguments: SimpleNamespace(**{**vars(healthy(**arguments)), where: broken})
    warnings = emit(tmp_path, FIRST, wandb="mine")
    assert warnings == ["Weights & Biases failed (no way there); the run continues without it"]
    assert len(list(read_event_dicts(tmp_path / "events.jsonl"))) == 1 + len(FIRST)


def train_words(world: Path, cache: Path, out: Path, *more: object) -> list[str]:
    where = ["--data", world, "--labeled", "photo", "--target", "night", "--out", out, "--cache", cache]
    small = ["backbone=digits-cnn", "weights=none", "size=32", "batch=4", "epochs=2", "lr=0.01"]
    return [
        str(w)
        for w in ("train", "--preset", "paper", *where, "--device", "cpu", "--method", "source-only", *small, *more)
    ]


def test_the_command_writes_the_numbers_of_the_result(
    world: Path, cache: Path, tmp_path: Path, wandb: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A whole run; then its last stage is lost, its epochs are reported twice, and resuming uses the same sinks."""
    out = tmp_path / "run"
    assert call(train_words(world, cache, out, "--tensorboard", "--wandb", "mine")) == 0
    shutil.rmtree(out / "stages")
    (out / "result.json").unlink()
    assert call(["resume", str(out)]) == 0
    assert [event["event"] for event in read_event_dicts(out / "events.jsonl")].count("epoch") == 4
    epochs = json.loads((out / "result.json").read_text())["epochs"]
    points = points_in(out)
    for name, wanted in (
        ("target/mean", [row["target"][-1] for row in epochs]),
        ("main/loss", [row["loss"] for row in epochs]),
    ):
        assert [step for step, _ in points[name]] == [1, 2]
        assert [value for _, value in points[name]] == pytest.approx(wanted, rel=1e-6)
    (rows,) = wandb.rows.values()
    assert [row["target/mean"] for row in rows] == [row["target"][-1] for row in epochs]
    assert "failed" not in capsys.readouterr().out


def test_a_dry_run_writes_to_no_sink(world: Path, cache: Path, tmp_path: Path, wandb: Any) -> None:
    assert call(train_words(world, cache, tmp_path / "run", "--wandb", "mine", "--dry-run")) == 0
    assert not wandb.begun


@pytest.mark.parametrize("words", [["--tensorboard"], ["--wandb", "mine"]])
def test_a_sink_that_is_not_installed_is_refused_before_training(
    words: list[str], world: Path, cache: Path, tmp_path: Path, complaint, monkeypatch: pytest.MonkeyPatch
) -> None:  # type: ignore[no-untyped-def]
    package = words[0].removeprefix("--")
    monkeypatch.setitem(sys.modules, package, None)
    error = complaint(*train_words(world, cache, tmp_path / "run", *words))
    assert f"pip install 'ssdg[{package}]'" in error
    assert not (tmp_path / "run").exists()
