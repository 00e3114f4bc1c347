"""Where the time goes: every second counts once, and measuring changes no number."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from runs import same_weights
from ssdg.cli import call
from ssdg.profiling import PHASES, Profile, current_profile, timed, use_profile


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that a test sets by hand."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_an_inner_phase_is_taken_off_the_outer_one(clock: list[float]) -> None:
    profile = Profile()
    clock[0] += 1  # rest
    with use_profile(profile), timed("forward"):
        clock[0] += 2
        with timed("backward"):
            clock[0] += 4
        clock[0] += 8
    clock[0] += 16  # rest
    profile.images = 140
    record = profile.as_json()
    spent = {name: seconds for name, seconds in record["seconds"].items() if seconds}
    assert spent == {"forward": 10, "backward": 4, "rest": 17}
    assert (record["total"], record["images_per_second"]) == (31, 10)


def test_an_error_closes_its_phase(clock: list[float]) -> None:
    profile = Profile()

    def fail() -> None:
        with timed("labeling"):
            clock[0] += 1
            raise ValueError("stop")

    with use_profile(profile):
        with pytest.raises(ValueError, match="stop"):
            fail()
        clock[0] += 2
    assert profile.as_json()["seconds"]["labeling"] == 1
    assert current_profile() is None


def test_an_accelerator_is_waited_for_at_every_change() -> None:
    waits: list[int] = []
    with use_profile(Profile(lambda: waits.append(1))), timed("forward"), timed("step"):
        pass
    assert len(waits) == 4  # two begin, two end


def test_a_profiled_run_has_the_same_weights(
    world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ["--data", world, "--labeled", "photo", "--target", "night", "--cache", cache, "--device", "cpu"]
    small = ["backbone=digits-cnn", "weights=none", "size=32", "batch=4", "epochs=1", "iterations=2", "cycles=1"]
    args = [
        "train",
        "--preset",
        "paper",
        *task,
        *small,
        "labeler.batch=4",
        "labeler.epochs=1",
        "labeler.iterations=2",
    ]
    assert call([str(w) for w in (*args, "--out", tmp_path / "plain")]) == 0
    assert "time per phase" not in capsys.readouterr().out
    assert call([str(w) for w in (*args, "--out", tmp_path / "told", "--profile")]) == 0
    assert "time per phase" in capsys.readouterr().out
    assert same_weights(tmp_path / "plain", tmp_path / "told")
    plain, profiled = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("plain", "told"))
    assert "profile" not in plain
    seconds = profiled["profile"]["seconds"]
    assert tuple(seconds) == PHASES
    idle = {"trunk", "probe"}  # nothing is frozen, and there are no pretrained weights to probe
    assert {name for name, value in seconds.items() if value == 0} == idle
    assert sum(seconds.values()) == pytest.approx(profiled["profile"]["total"], abs=0.01)
    assert profiled["profile"]["images"] == profiled["images_seen"]
