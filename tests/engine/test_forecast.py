"""What a run takes: a dry run reports it, and the progress bar starts with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from runs import same_weights, short_settings
from ssdg.cli import call
from ssdg.display import Display, TimeLeft
from ssdg.engine.plan import plan, plan_run
from ssdg.engine.setup import open_run
from ssdg.engine.timing.dry_run import describe_steps, human_bytes, human_time
from ssdg.engine.timing.forecast import Forecast, Maps, count_maps, folder_bytes, forecast_run, output_names
from ssdg.engine.timing.speed import FIXED_SECONDS, Speed, Work, measure_speed
from ssdg.machine import start_machine

SMALL = ["backbone=digits-cnn", "size=32", "batch=4", "epochs=2", "precision=fp32"]
STAGES: list[dict[str, Any]] = [
    {"key": "apl/a", "round": 1, "steps": 10, "epochs": 2, "product": False},
    {"key": "apl/b", "round": 1, "steps": 20, "epochs": 2, "product": False},
    {"key": "dcg", "round": 1, "steps": 8, "epochs": 4, "product": True},
]
SPEED = Speed(step=2.0, image=0.1, map=0.01, stages={"apl": 3.0, "dcg": 2.0})
FORECAST = Forecast(SPEED, Work(trained=100, scored=50, unlabeled=60, num_trunks=1), 120, Maps(700, 300, 64))


def test_the_time_of_every_phase_by_hand() -> None:
    assert FORECAST.parts(STAGES) == {
        "frozen layers": pytest.approx(300 * 0.01),
        "training": 30 * 3 + 8 * 2,
        "evaluation": pytest.approx(4 * 50 * 0.1),  # after every epoch of the product
        "labeling": pytest.approx(120 * 0.1),
        "final scoring": pytest.approx(50 * 0.1 + FIXED_SECONDS),
    }


def test_the_bar_starts_with_the_whole_run_and_ends_with_the_final_scoring() -> None:
    clock = TimeLeft()
    clock.expect(STAGES)
    assert clock.left is None
    clock.forecast = FORECAST
    assert clock.left == pytest.approx(FORECAST.total(STAGES))
    clock.finish(STAGES[0])
    before = FORECAST.total(STAGES) - FORECAST.frozen  # stored when the first step is done
    assert clock.left == pytest.approx(before - 10 * 3 - FORECAST.labeling * 10 / 38)
    for stage in STAGES[1:]:
        clock.finish(stage)
    assert clock.left == pytest.approx(FORECAST.final)


def test_evaluations_do_not_count_as_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("ssdg.display.time.monotonic", lambda: now[0])
    clock = TimeLeft()
    clock.forecast = FORECAST
    clock.expect(STAGES)
    for step in range(1, 9):
        now[0] += 1.0
        clock.tick({"key": "dcg", "round": 1, "step": step})
        if step % 2 == 0:  # an epoch of two steps, then an evaluation
            now[0] += 100.0
            clock.pause()
    assert clock.pace["dcg"] == pytest.approx(1.0)


def test_the_display_shows_the_estimate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Display(tmp_path) as display:
        display.expect(FORECAST)
        display.hear({"event": "start", "stages": STAGES})
        task = display.bar.tasks[0]
    assert task.fields["left"] == "2:36"  # 3 + 106 + 20 + 12 + 15
    assert "expected   about 2:36: 38 steps, evaluation and final scoring" in capsys.readouterr().out


def command(world: Path, cache: Path, out: Path, *more: str) -> list[str]:
    where = ["--data", str(world), "--labeled", "photo", "--target", "night", "--cache", str(cache)]
    return ["train", "--preset", "paper", *where, "--out", str(out), "--device", "cpu", *SMALL, *more]


def lines_of(out: str) -> dict[str, str]:
    report = out.partition("dry run passed")[2].splitlines()[1:]
    return {line.split()[0]: line.split(maxsplit=1)[1] for line in report if line.startswith("  ")}


def test_a_dry_run_says_what_the_run_takes(
    world: Path, cache: Path, tmp_path: Path, weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--method", "eid", "labeler.epochs=2", "labeler.batch=4", "cycles=2", f"weights={weights}", "--dry-run"]
    assert call(command(world, cache, tmp_path / "run", *words)) == 0
    out = capsys.readouterr().out
    assert "accuracy" not in out
    assert "0.00 %" not in out.partition("probe ")[0]
    lines = lines_of(out)
    assert list(lines) == ["steps", "time", "memory", "disk", "probe", "outputs"]
    settings = short_settings(
        "eid", data=str(world), batch=4, epochs=2, cycles=2, labeler={"epochs": 2, "batch": 4}, weights=weights
    )
    stages = plan(*_config_and_task(settings, cache))
    total = sum(stage.steps for stage in stages)
    assert lines["steps"].startswith(f"{total:,} in {len(stages)} stages: ")
    assert re.match(
        r"about \d+ (s|min) on this machine \(training .*final scoring", lines["time"]
    )  # short parts are left out
    assert "of main memory" in lines["memory"]
    assert str(tmp_path / "run") in lines["disk"]
    assert str(cache) in lines["disk"]
    assert re.match(r"\d+\.\d\d % on \d+ held-out labeled images", lines["probe"])
    assert lines["outputs"].startswith("model/, predictions.csv, result.json, probe.json, events.jsonl, stages/")
    assert not (tmp_path / "run").exists()


def _config_and_task(settings: dict[str, Any], cache: Path) -> tuple[Any, Any]:
    config, problem = open_run(settings, cache, device="cpu")
    return config, problem.task


def test_without_pretrained_weights_there_is_no_probe(
    world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(command(world, cache, tmp_path / "run", "--method", "source-only", "weights=none", "--dry-run")) == 0
    assert "probe" not in capsys.readouterr().out


def test_the_forecast_does_not_change_the_run(
    world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--method", "mcd", "weights=none"]
    assert call(command(world, cache, tmp_path / "plain", *words)) == 0
    assert "expected" not in capsys.readouterr().out
    monkeypatch.setattr("ssdg.display.is_watched", lambda: True)
    assert call(command(world, cache, tmp_path / "watched", *words)) == 0
    assert "expected   about" in capsys.readouterr().out
    assert same_weights(tmp_path / "plain", tmp_path / "watched")
    monkeypatch.setattr("ssdg.engine.timing.forecast.measure_speed", lambda *_: pytest.fail("measured"))
    assert call(command(world, cache, tmp_path / "watched", *words)) == 0  # a finished run


def test_every_kind_of_stage_is_timed(world: Path, cache: Path) -> None:
    config, problem = open_run(short_settings("eid", data=str(world)), cache, device="cpu")
    machine = start_machine("cpu")
    speed = measure_speed(config, problem, machine, cache)
    assert set(speed.stages) == {"apl", "dcg"}
    assert speed.step == speed.stages["dcg"]
    forecast = forecast_run(config, problem, machine, cache, speed)
    pools = sum(len(pool) for pool in problem.task.unlabeled.values())
    assert forecast.num_labeled == plan_run(config, problem.task).num_labeled >= 2 * pools
    assert forecast.maps == Maps()


def test_stored_maps_take_no_time(world: Path, cache: Path, weights: str, tmp_path: Path) -> None:
    settings = short_settings("source-only", data=str(world), weights=weights, freeze="stage2", views=1, epochs=1)
    config, problem = open_run(settings, cache, device="cpu")
    machine, own_cache = start_machine("cpu"), tmp_path / "cache"
    maps = count_maps(config, problem, machine, own_cache)
    labeled, scored = len(problem.task.labeled), len(problem.validation or ()) + len(problem.target.images)  # type: ignore[union-attr]
    assert maps.num_all == maps.num_missing == 2 * labeled + scored
    assert maps.bytes_each > 0
    from ssdg.engine.run import run

    run(config, problem, tmp_path / "run", machine, cache=own_cache)
    after = count_maps(config, problem, machine, own_cache)
    assert (after.num_all, after.num_missing) == (maps.num_all, 0)


def test_the_disk_of_a_run_has_a_checkpoint_per_stage(evolved: Path) -> None:
    checkpoints = {path.stem: path.stat().st_size for path in (evolved / "stages").glob("*.safetensors")}
    rest = sum(p.stat().st_size for p in evolved.rglob("*") if p.is_file() and p.parent.name != "stages")
    stages = [{"key": "dcg"}] * 5
    dcg = next(size for stem, size in checkpoints.items() if stem.endswith("dcg"))
    assert folder_bytes(evolved, stages) == rest + 5 * dcg
    assert output_names(evolved)[:3] == ["model/", "predictions.csv", "result.json"]


def test_units() -> None:
    assert [human_time(s) for s in (0.2, 89, 120, 5400, 200_000)] == ["1 s", "89 s", "2 min", "1.5 h", "2.3 days"]
    assert [human_bytes(b) for b in (999, 2.5e6, 3e9)] == ["1 kB", "2.5 MB", "3.0 GB"]
    one = [{"group": "", "title": "source-only", "steps": 1200}]
    assert describe_steps(one) == "1,200 in 1 stage"
