"""`ssdg train --minutes`: the settings that are chosen belong to the run, and mistakes are reported before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runs import same_weights
from ssdg import SSDG, UserError
from ssdg.cli import call
from ssdg.engine.budget import Speed
from ssdg.methods.source_only import SourceOnly

SLOW, FAST = Speed(step=1.0, image=1e-6), Speed(step=0.2, image=1e-6)
SHORT = ["batch=4", "lr=0.001", "precision=fp32"]


class Watch:
    """A replacement of `measure_speed` with a made-up speed; counts its calls."""

    def __init__(self) -> None:
        self.speed, self.calls = FAST, 0

    def __call__(self, *_: object) -> Speed:
        self.calls += 1
        return self.speed


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    replaced = Watch()
    monkeypatch.setattr("ssdg.engine.budget.measure_speed", replaced)
    return replaced


def command(world: Path, cache: Path, out: Path, *more: object) -> list[str]:
    where = ["--data", world, "--labeled", "photo", "--target", "night", "--cache", cache, "--out", out]
    return [str(word) for word in ("train", *where, "--device", "cpu", *SHORT, *more)]


def config_of(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "run.json").read_text())["config"]
    return config


def test_a_run_has_the_steps_that_fit(
    world: Path,
    cache: Path,
    tmp_path: Path,
    watch: Watch,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """18 seconds, less a tenth and 10 seconds for everything else: 31 steps of 0.2 s, shared by ten epochs."""
    monkeypatch.setattr("ssdg.methods.eid.settings.MIN_CYCLE_STEPS", 2)
    words = command(world, cache, tmp_path / "run", "--minutes", 0.3)
    assert call(words) == 0
    assert "0.3 minutes: 29 steps of 0.20 s; expected end " in capsys.readouterr().out
    config = config_of(tmp_path / "run")
    assert (config["method"], config["preset"], config["backbone"]) == ("eid", "best", "character-cnn")
    chosen = {"cycles": 6, "epochs": 1, "iterations": 2, "start_epochs": 4}
    assert {key: config[key] for key in chosen} == chosen
    # The same settings by hand give the same weights.
    assert (
        call(command(world, cache, tmp_path / "by-hand", *[f"{key}={value}" for key, value in chosen.items()])) == 0
    )
    assert same_weights(tmp_path / "run", tmp_path / "by-hand")
    # The same command finds the finished run and measures nothing.
    watch.speed = SLOW
    assert call(words) == 0
    assert watch.calls == 1


@pytest.mark.parametrize("resume", [False, True])
def test_a_stopped_run_resumes_with_the_settings_it_has(
    resume: bool, world: Path, cache: Path, tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the same command or `ssdg resume`, though the machine has become slower."""
    step = SourceOnly.step

    def stop(self: Any, batch: Any, at: Any) -> Any:
        if at.step == 5:
            raise KeyboardInterrupt
        return step(self, batch, at)

    folder, method = tmp_path / "run", ["--method", "source-only", "--save-seconds", 0]
    words = command(world, cache, folder, "--minutes", 0.3, *method)
    monkeypatch.setattr(SourceOnly, "step", stop)
    assert call(words) == 130
    monkeypatch.setattr(SourceOnly, "step", step)
    before, watch.speed = config_of(folder), SLOW
    assert call(["resume", str(folder)] if resume else words) == 0
    assert watch.calls == 1
    assert config_of(folder) == before
    assert (folder / "result.json").exists()


@pytest.mark.parametrize("method", ["eid", "mcd"])
def test_without_time_the_labeled_domain_is_learned_and_resumed(
    method: str, world: Path, cache: Path, tmp_path: Path, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings of the method have no meaning for its replacement."""
    watch.speed = SLOW
    folder, setting = tmp_path / "run", {"eid": "memory=0.25", "mcd": "inner_steps=2"}[method]
    words = command(world, cache, folder, "--minutes", 0.2, "--method", method, setting)
    for _ in range(2):
        assert call(words) == 0
    assert "0.2 minutes are too few for one cycle here: training source-only for 1 steps" in capsys.readouterr().out
    config = config_of(folder)
    assert (config["method"], config["epochs"], config["iterations"]) == ("source-only", 1, 1)
    assert call(["resume", str(folder)]) == 0
    assert watch.calls == 1


def test_a_dry_run_saves_nothing(
    world: Path, cache: Path, tmp_path: Path, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(command(world, cache, tmp_path / "run", "--minutes", 1, "--dry-run")) == 0
    assert "dry run passed" in capsys.readouterr().out
    assert watch.calls == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_keeps_its_minutes(world: Path, cache: Path, tmp_path: Path, watch: Watch, complaint: Any) -> None:
    timed, untimed = tmp_path / "timed", tmp_path / "untimed"
    method = ["--method", "source-only"]
    assert call(command(world, cache, timed, "--minutes", 0.5, *method)) == 0
    assert call(command(world, cache, untimed, "epochs=1", *method)) == 0
    before = [(folder / "result.json").read_bytes() for folder in (timed, untimed)]
    assert "was started with --minutes 0.5" in complaint(*command(world, cache, timed, "--minutes", 2, *method))
    assert "another configuration" in complaint(*command(world, cache, timed, *method))
    told = complaint(*command(world, cache, untimed, "epochs=1", "--minutes", 2, *method))
    assert "was started without --minutes" in told
    assert "another --out" in told
    assert [(folder / "result.json").read_bytes() for folder in (timed, untimed)] == before
    assert watch.calls == 1


@pytest.mark.parametrize("minutes", ["0", "-0.0", "-1", "nan", "inf", "-inf", "1e9"])
def test_minutes_that_are_no_time(
    minutes: str, world: Path, cache: Path, tmp_path: Path, watch: Watch, complaint: Any
) -> None:
    told = complaint(*command(world, cache, tmp_path / "run", f"--minutes={minutes}"))
    assert "give a number above 0" in told
    assert watch.calls == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "words",
    [["--method", "mcd+mixstyle"], ["apl=mcd"], ["--preset", "paper"], ["--method", "probe", "warm_epochs=1"]],
)
def test_methods_that_cannot_be_scaled(
    words: list[str], world: Path, cache: Path, tmp_path: Path, watch: Watch, complaint: Any
) -> None:
    network = ["backbone=digits-cnn", "weights=none", "size=32"]
    told = complaint(*command(world, cache, tmp_path / "run", "--minutes", 1, *words, *network))
    assert "--minutes cannot scale the stages" in told
    assert watch.calls == 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", ["epochs=3", "cycles=2", "iterations=5"])
def test_what_the_minutes_choose_cannot_be_given(
    setting: str, world: Path, cache: Path, tmp_path: Path, watch: Watch, complaint: Any
) -> None:
    message = complaint(*command(world, cache, tmp_path / "run", "--minutes", 1, setting))
    assert f"{setting} was given with --minutes" in message
    assert watch.calls == 0
    assert not (tmp_path / "run").exists()


def test_the_estimator_has_minutes(world: Path, cache: Path, tmp_path: Path, watch: Watch) -> None:
    """A fitted run is not measured again, and the command line continues it."""
    out = tmp_path / "run"
    model = SSDG("source-only", minutes=0.3, size=32, out=out, device="cpu", cache=cache, settings={"batch": 8})
    for _ in range(2):
        model.fit(world / "photo", unlabeled=[world / "night"])
    assert watch.calls == 1
    run = json.loads((out / "run.json").read_text())
    assert run["options"]["minutes"] == 0.3
    assert run["config"]["iterations"] == run["options"]["chosen"]["iterations"] > 1
    assert call(["resume", str(out)]) == 0
    with pytest.raises(UserError, match="was started with"):
        SSDG(**{**model.get_params(deep=False), "minutes": 5}).fit(world / "photo", unlabeled=[world / "night"])
    with pytest.raises(UserError, match="is not a number of minutes"):
        SSDG(minutes="ten").fit(world / "photo")
