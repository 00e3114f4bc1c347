"""`--reject`: a trained model that may answer 'unknown', from its run to the command line."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from runs import short_settings, train_here
from ssdg.artifact.calibration import known_scores
from ssdg.artifact.load import Model, load_model
from ssdg.cli import call
from ssdg.engine.run import run
from ssdg.engine.setup import open_run
from ssdg.machine import start_machine


@pytest.fixture(scope="module")
def trained(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns its tiny world."""
    folder = tmp_path_factory.mktemp("trained")
    train_here(world, cache, folder, "source-only", epochs=6, lr=0.02)
    return folder


@pytest.fixture(scope="module")
def model(trained: Path) -> Model:
    return load_model(trained, "cpu")


@pytest.fixture(scope="module")
def with_ood(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The labeled domain with images of no class: gray ones at the top and one inside a class."""
    folder = shutil.copytree(world / "photo", tmp_path_factory.mktemp("strange") / "photo")
    for number, name in enumerate(("OOD", "OOD", "ring/ood")):
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (70 + number,) * 3).save(folder / name / f"grey{number}.png")
    return folder


def args(*values: object) -> list[str]:
    return [str(value) for value in values]


def evaluated(trained: Path, data: Path, cache: Path, capsys: pytest.CaptureFixture[str], *more: object) -> Any:
    capsys.readouterr()
    where = args("evaluate", trained, "--data", data, "--cache", cache, "--device", "cpu", "--json")
    assert call([*where, *args(*more)]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_run_saves_thresholds_of_its_held_out_images(model: Model, world: Path, cache: Path) -> None:
    _, problem = open_run(short_settings("source-only", data=str(world)), cache)
    assert problem.validation is not None
    images = problem.validation.images[np.arange(len(problem.validation))]
    scores = known_scores(model.logits(images))
    assert model.rejection is not None
    assert model.rejection.images == len(scores) == 3
    assert model.rejection.threshold(0.01) == pytest.approx(scores.min(), abs=2e-5)
    assert model.rejection.threshold(0.99) == pytest.approx(scores.max(), abs=2e-5)


def test_other_truths_of_unlabeled_and_target_images_change_no_threshold(
    world: Path, cache: Path, trained: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(world, tmp_path / "world")
    for domain in ("night", "sketch"):
        (other / domain / "bar").rename(tmp_path / "aside")
        (other / domain / "ring").rename(other / domain / "bar")
        (tmp_path / "aside").rename(other / domain / "ring")
    train_here(other, cache, tmp_path / "run", "source-only", epochs=6, lr=0.02)
    cards = [json.loads((f / "model" / "model.json").read_text()) for f in (trained, tmp_path / "run")]
    assert cards[0]["reject"] == cards[1]["reject"]


def test_predict_answers_unknown_and_keeps_the_guess(
    trained: Path, model: Model, with_ood: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.png").write_text("no image")
    assert model.rejection is not None
    for share in (0.05, 0.99):
        out = tmp_path / f"{share}.csv"
        command = args("predict", trained, "--reject", *([share] if share != 0.05 else []))  # a path may follow
        assert call([*command, *args(with_ood, tmp_path / "broken.png", "-o", out, "--device", "cpu")]) == 0
        rows = list(csv.DictReader(out.open()))
        read = [row for row in rows if not row["error"]]
        assert len(read) == len(rows) - 1 == 27
        for row in read:
            is_unknown = float(row["score"]) < model.rejection.threshold(share)
            assert row["class"] == ("unknown" if is_unknown else row["guess"])
            assert row["guess"] in model.classes
        printed = capsys.readouterr().out
        num_unknown = sum(row["class"] == "unknown" for row in read)
        assert f"27 images classified into {out}, {num_unknown} of them unknown" in printed
        assert "1 could not be read" in printed
    assert sum(row["class"] == "unknown" for row in read) > 0


def test_predict_without_reject_is_as_it_was(trained: Path, with_ood: Path, tmp_path: Path) -> None:
    assert call(args("predict", trained, with_ood, "-o", tmp_path / "out.csv", "--device", "cpu")) == 0
    header = (tmp_path / "out.csv").read_text().splitlines()[0]
    assert header == "path,class,confidence,second,second_confidence,error"


def test_evaluate_reports_images_of_no_class(
    trained: Path, model: Model, world: Path, with_ood: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = evaluated(trained, world / "photo", cache, capsys)
    scores = evaluated(trained, with_ood, cache, capsys, "--reject", 0.5)
    report = scores.pop("reject")
    assert scores == plain  # images of no class count nowhere else
    assert report["held_out"] == 3
    assert report["curve"]["coverage"][-1] == 100
    assert report["curve"]["accuracy"][-1] == plain["accuracy"]["mean"]
    at = report["curve"]["coverage"].index(report["coverage"])
    assert report["curve"]["accuracy"][at] == report["accuracy"]
    assert report["accepted"] == round(24 * report["coverage"] / 100)
    ood = report["ood"]
    assert ood["images"] == 3
    assert ood["recall"] == pytest.approx(100 * ood["rejected"] / 3, abs=1e-4)
    assert evaluated(trained, with_ood, cache, capsys, "--reject")["reject"]["share"] == 0.05
    assert "ood" not in evaluated(trained, world / "photo", cache, capsys, "--reject")["reject"]


def test_evaluate_shows_a_table_and_draws_a_figure(
    trained: Path, with_ood: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = args("evaluate", trained, "--data", with_ood, "--cache", cache, "--device", "cpu", "--reject", 0.1)
    assert call([*command, "--curve", str(tmp_path / "curve.png")]) == 0
    printed = capsys.readouterr().out
    assert "the threshold that rejects at most 10 % of 3 held-out labeled images" in printed
    assert "of 24 images of a class" in printed
    assert "of 3 OOD images: recall" in printed
    assert "coverage" in printed
    with Image.open(tmp_path / "curve.png") as picture:
        assert picture.format == "PNG"


@pytest.mark.parametrize("share", ["0", "1", "-0.5", "nan", "17"])
def test_shares_that_are_none(share: str, trained: Path, world: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    message = f"--reject {share} is out of range; give the fraction of known images that may be rejected"
    assert message in complaint("evaluate", trained, "--data", world / "night", "--reject", share)
    command = ("predict", trained, world / "night", "-o", tmp_path / "out.csv", "--reject", share)
    assert message in complaint(*command)
    assert not (tmp_path / "out.csv").exists()


def test_mistakes(trained: Path, world: Path, with_ood: Path, cache: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    alone = shutil.copytree(with_ood / "OOD", tmp_path / "alone" / "ood").parent
    command = ("evaluate", trained, "--cache", cache, "--device", "cpu", "--data")
    assert "--reject" in complaint(*command, world / "night", "--reject=much")
    assert "much" in complaint(*command, world / "night", "--reject", "much")
    assert "has OOD images in a folder 'ood'; add --reject" in complaint(*command, with_ood)
    assert "contains no image of a class; give a folder whose" in complaint(*command, alone, "--reject")
    assert "add --reject" in complaint(*command, world / "night", "--curve", tmp_path / "a.png")
    assert "cannot draw a figure" in complaint(*command, world / "night", "--reject", "--curve", tmp_path / "a.txt")
    assert "has images in 'neon', which is not a class; give a folder whose" in complaint(*command, world, "--reject")


@pytest.mark.parametrize("change", [{"reject": None}, {}])
def test_a_model_without_thresholds_works_but_for_reject(
    change: dict[str, Any],
    trained: Path,
    world: Path,
    cache: Path,
    tmp_path: Path,
    complaint,  # type: ignore[no-untyped-def]
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = shutil.copytree(trained / "model", tmp_path / "old")
    card = json.loads((old / "model.json").read_text())
    card.pop("reject")
    (old / "model.json").write_text(json.dumps(card | change))
    plain = evaluated(old, world / "night", cache, capsys)
    assert plain == evaluated(trained, world / "night", cache, capsys)
    message = "this model has no thresholds for --reject"
    assert message in complaint("evaluate", old, "--data", world / "night", "--cache", cache, "--reject")
    assert message in complaint("predict", old, world / "night", "-o", tmp_path / "out.csv", "--reject")


def test_a_run_without_held_out_images_has_no_thresholds(world: Path, cache: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    for name in ("bar", "disc", "ring"):
        (few / name).mkdir(parents=True)
        for number in range(4):
            shutil.copy(world / "photo" / name / f"{number}.png", few / name)
    settings = short_settings("source-only", labeled=str(few), target=str(world / "night"), epochs=1)
    config, problem = open_run(settings, cache, device="cpu")
    run(config, problem, tmp_path / "run", start_machine("cpu", config.precision))
    assert load_model(tmp_path / "run", "cpu").rejection is None
