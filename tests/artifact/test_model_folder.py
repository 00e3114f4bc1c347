"""The model's folder: what a run writes into it, and what is made of it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from models_of_runs import card_of, edit
from runs import WORLD, short_settings, train_here
from ssdg import SSDG
from ssdg.artifact.card import ModelCard, escape_markdown, readme, weights_note
from ssdg.artifact.load import load_model
from ssdg.cli import call
from ssdg.config import resolve
from ssdg.engine.setup import open_run
from ssdg.errors import UserError


@pytest.fixture(scope="module")
def trained(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train_here(world, cache, folder, "eid", cycles=1)
    return folder


@pytest.fixture
def model(trained: Path, tmp_path: Path) -> Path:
    """A copy to be spoiled."""
    return shutil.copytree(trained / "model", tmp_path / "model")


def test_the_card_has_what_users_need_and_no_path(trained: Path, world: Path) -> None:
    text = (trained / "model" / "model.json").read_text()
    card = json.loads(text)
    assert str(world) not in text
    assert str(trained) not in text
    assert card["preprocessing"] == {
        "size": 32,
        "colour": "rgb",
        "resize": "squash-bilinear-antialias",
        "range": "0..1",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
    }
    run, result = (json.loads((trained / name).read_text()) for name in ("run.json", "result.json"))
    assert card["training"] == {
        "method": "eid",
        "preset": "paper",
        "seed": 0,
        "setting": "ssdg",
        "hash": run["hash"],
        "weights": "none",
        "labeled": {"name": "photo", "images": 21},
        "unlabeled": [{"name": "neon", "images": 22}, {"name": "sketch", "images": 22}],
        "target": {"name": "night", "images": 24},
        "held_out": 3,
        "accuracy": {name: result[name]["final"] for name in ("validation", "target")},
    }
    assert card["fingerprint"] == result["fingerprint"]
    assert card["versions"]["ssdg"]
    assert card["calibration"]["images"] == 3
    assert card["calibration"]["temperature"] is None  # three images are too few
    assert "Apache-2.0" in card["licence"][0]
    assert "random weights" in card["licence"][2]


def test_no_path_of_weight_files_is_recorded(world: Path, cache: Path, tmp_path: Path) -> None:
    first = tmp_path / "secret" / "first.safetensors"
    first.parent.mkdir()
    from ssdg.models.backbones import build_backbone

    save_file(build_backbone("digits-cnn").state_dict(), first)
    more = {"weights": str(first), "apl_backbone": "digits-cnn", "apl_weights": str(first)}
    train_here(world, cache, tmp_path / "run", "eid", cycles=1, epochs=1, **more)
    for path in (tmp_path / "run" / "model").iterdir():
        assert b"secret" not in path.read_bytes(), path.name
    card = card_of(tmp_path / "run" / "model")
    assert card["training"]["weights"] == "first.safetensors"
    assert "'first.safetensors', whose license is unknown to ssdg" in card["licence"][2]
    assert card["settings"]["apl_weights"] == "first.safetensors"
    assert load_model(tmp_path / "run", "cpu").classes


def test_what_is_known_of_first_weights() -> None:
    assert "BSD-3-Clause" in weights_note("resnet18", "imagenet")
    assert "non-commercial" in weights_note("resnet18", "imagenet")
    assert "'timm:vit'" in weights_note("timm:vit", "imagenet")


@pytest.mark.parametrize("old", [True, False])
def test_models_of_earlier_versions_load(old: bool, model: Path) -> None:
    new = ("preprocessing", "calibration", "training", "licence")
    card = {key: value for key, value in card_of(model).items() if not (old and key in new)}
    (model / "model.json").write_text(json.dumps(card))
    (model / "README.md").unlink()
    loaded = load_model(model, "cpu")
    assert loaded.temperature is None
    assert loaded.rejection is not None


@pytest.fixture(scope="module")
def warm(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained model with a temperature of 3."""
    folder = shutil.copytree(trained / "model", tmp_path_factory.mktemp("warm") / "model")
    edit(calibration__temperature=3.0)(folder)
    return folder


def test_confidence_is_calibrated_and_classes_are_not_changed(
    trained: Path, warm: Path, world: Path, tmp_path: Path
) -> None:
    rows = {}
    for name, folder in (("plain", trained), ("warm", warm)):
        out = tmp_path / f"{name}.csv"
        assert call(["predict", str(folder), str(world / "night"), "-o", str(out), "--device", "cpu"]) == 0
        rows[name] = [line.split(",") for line in out.read_text().splitlines()[1:]]
    for before, after in zip(rows["plain"], rows["warm"], strict=True):
        assert (before[0], before[1], before[3]) == (after[0], after[1], after[3])
        assert float(before[2]) > float(after[2]) >= float(after[4])
    probs = [SSDG.load(folder, device="cpu").predict_proba(world / "night") for folder in (trained, warm)]
    cubes = np.cbrt(probs[0])
    assert np.allclose(probs[1], cubes / cubes.sum(1, keepdims=True), atol=1e-9)
    confidences = [float(row[2]) for row in rows["warm"]]
    assert np.allclose(confidences, probs[1].max(1), atol=1e-6)


def test_a_run_calibrates_by_its_held_out_images_and_predicts_so(tmp_path: Path, cache: Path) -> None:
    """Images of noise: nothing can be learned, so a network that was trained on them is too sure of others."""
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(160):
        path = tmp_path / ("noise" if number % 4 else "other") / "ab"[number // 4 % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), np.uint8)).save(path)
    settings = short_settings(
        "source-only", labeled=str(tmp_path / "noise"), target=str(tmp_path / "other"), epochs=1
    )
    settings["precision"] = "fp32"  # a run in bf16 reports its own numbers
    from ssdg.engine.run import run
    from ssdg.machine import start_machine

    config, problem = open_run(settings, cache, device="cpu")
    run(config, problem, tmp_path / "run", start_machine("cpu", config.precision))
    model = load_model(tmp_path / "run", "cpu")
    calibration = card_of(tmp_path / "run" / "model")["calibration"]
    assert calibration["images"] == len(problem.validation or ()) >= 10
    assert calibration["temperature"] == model.temperature is not None
    assert calibration["nll"]["after"] <= calibration["nll"]["before"]
    assert problem.target is not None
    probs = model.probs(model.logits(problem.target.images[np.arange(40)]))
    lines = (tmp_path / "run" / "predictions.csv").read_text().splitlines()[1:]
    assert np.allclose([float(line.split(",")[2]) for line in lines], probs.max(1).values.numpy(), atol=2e-6)
    assert "T = " in (tmp_path / "run" / "model" / "README.md").read_text()


def test_the_readme_describes_the_run(trained: Path) -> None:
    page = (trained / "model" / "README.md").read_text()
    assert "image classifier with 3 classes" in page
    assert "bar, disc, ring." in page
    assert "| labeled | photo (21 images); 3 more held out |" in page
    assert "| unlabeled | neon (22 images), sketch (22 images) |" in page
    assert "3 held-out images are too few" in page
    assert "ssdg predict . images/" in page
    assert "Apache-2.0" in page


def test_names_cannot_steer_the_readme(trained: Path) -> None:
    evil = (
        "<script>x</script>",
        "a | b",
        "[click](javascript:x)",
        "# head\n# er",
        "`code`",
        "www.example.org",
        "*b*",
    )
    card = ModelCard.model_validate({**card_of(trained / "model"), "classes": evil})
    section = readme(card).split("## Classes\n\n")[1].split("\n\n## Training")[0]
    assert "\n" not in section
    assert not re.search(r"(?<!\\)[<>\[\]`#*|:]|www\.", section)
    assert escape_markdown("1. a") == "1\\. a"
    assert escape_markdown("- a") == "\\- a"
    assert escape_markdown("x\u202ey\x1b[2J") == "x y \\[2J"  # neither a change of direction nor of the screen
    assert readme(ModelCard.model_validate({**card_of(trained / "model"), "classes": [f"c{n}" for n in range(99)]}))


def test_save_and_load_keep_the_folder(trained: Path, tmp_path: Path, world: Path) -> None:
    loaded = SSDG.load(trained, device="cpu")
    (trained / "model" / "notes.txt").write_text("mine")
    try:
        loaded.save(tmp_path / "copy")
    finally:
        (trained / "model" / "notes.txt").unlink()
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == [
        "README.md",
        "model.json",
        "model.safetensors",
    ]
    again = SSDG.load(tmp_path / "copy", device="cpu")
    assert np.array_equal(again.predict_proba(world / "night"), loaded.predict_proba(world / "night"))


def test_a_link_is_not_copied(model: Path, tmp_path: Path) -> None:
    loaded = SSDG.load(model, device="cpu")
    (tmp_path / "secret").write_text("secret")
    (model / "README.md").unlink()
    (model / "README.md").symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="is a symbolic link that leaves its folder"):
        loaded.save(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_settings_of_a_run_are_resolved_without_paths() -> None:
    from ssdg.config import strip_folders

    config = resolve({**WORLD, "labeled": "/x/y/photo", "unlabeled": ["/x/y/a"]}, kind="photo", size=32)
    assert "/x/y" not in json.dumps(strip_folders(config.model_dump(mode="json"), config.settings.path_fields))
