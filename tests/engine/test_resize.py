"""The setting `resize`: images that are not square look the same to training, prediction and exported models."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ssdg import SSDG
from ssdg.artifact.card import ModelCard
from ssdg.artifact.load import load_model, read_card
from ssdg.cli import call
from ssdg.config import resolve
from ssdg.data.cache import load_images
from ssdg.data.sources.decode import ResizeMode, resize
from ssdg.data.sources.tree import read_tree
from ssdg.engine.run import run
from ssdg.engine.setup import open_run
from ssdg.machine import start_machine

MODES: tuple[ResizeMode, ...] = ("squash", "crop", "pad")
SIZES = ((48, 24), (20, 70), (33, 32), (40, 40))  # height, width


def write_images(folder: Path, seed: int, per_class: int = 8) -> Path:
    """Stripes of two directions in images of several shapes."""
    rng = np.random.default_rng(seed)
    for name in ("rows", "columns"):
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            height, width = SIZES[number % len(SIZES)]
            y, x = np.mgrid[:height, :width]
            wave = 100 + 80 * np.sin((y if name == "rows" else x) * rng.uniform(0.4, 1.2))
            pixels = np.clip(wave[..., None] + rng.normal(0, 20, (height, width, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shapes")
    write_images(root / "labeled", 0)
    write_images(root / "target", 1)
    return root


def train(folders: Path, cache: Path, out: Path, mode: ResizeMode) -> Path:
    settings: dict[str, Any] = {"labeled": str(folders / "labeled"), "target": str(folders / "target")}
    settings |= {"method": "source-only", "backbone": "digits-cnn", "weights": "none", "size": 32, "resize": mode}
    settings |= {"epochs": 3, "batch": 4, "lr": 0.05, "precision": "fp32", "inference": "fp32"}
    config, problem = open_run(settings, cache, device="cpu")
    run(config, problem, out, start_machine("cpu", config.precision), cache=cache)
    return out


@pytest.fixture(scope="module", params=MODES)
def trained(
    request: pytest.FixtureRequest, folders: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ResizeMode, Path]:
    return request.param, train(folders, cache, tmp_path_factory.mktemp(request.param) / "run", request.param)


def predicted(model: Path, images: Path, out: Path) -> dict[str, tuple[str, float]]:
    assert call(["predict", str(model), str(images), "-o", str(out), "--device", "cpu"]) == 0
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["path"]: (row["class"], float(row["confidence"])) for row in rows}


def test_files_arrays_and_onnx_agree(
    trained: tuple[ResizeMode, Path], folders: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mode, folder = trained
    target = folders / "target"
    from_files = predicted(folder, target, tmp_path / "files.csv")
    assert len(from_files) == 16
    # arrays, and PIL images of any size
    estimator = SSDG.load(folder)
    arrays = [np.asarray(Image.open(path)) for path in from_files]
    probs = estimator.predict_proba(arrays)
    labels = estimator.predict(arrays)
    for row, label, (name, confidence) in zip(probs, labels, from_files.values(), strict=True):
        assert (label, row.max()) == (name, pytest.approx(confidence, abs=2e-6))
    # ONNX, with and without the preprocessing inside
    for kind in ("inside", "beside"):
        path = tmp_path / f"{kind}.onnx"
        words = ["export", str(folder), "--format", "onnx", "-o", str(path), "--images", str(target)]
        assert call([*words, "--preprocessing", kind]) == 0
        exported = predicted(path, target, tmp_path / f"{kind}.csv")
        assert exported.keys() == from_files.keys()
        for key, (name, confidence) in exported.items():
            assert from_files[key] == (name, pytest.approx(confidence, abs=1e-4))
    # the run's own score, and `ssdg evaluate`
    result = json.loads((folder / "result.json").read_text())
    capsys.readouterr()
    words = ["evaluate", str(folder), "--data", str(target), "--cache", str(cache), "--device", "cpu", "--json"]
    assert call(words) == 0
    scores = json.loads(capsys.readouterr().out)["accuracy"]["mean"]
    assert scores == pytest.approx(result["target"]["final"]["mean"], abs=0.01)
    correct = [Path(path).parent.name == name for path, (name, _) in from_files.items()]
    assert scores == pytest.approx(100 * np.mean(correct), abs=0.01)
    # features
    assert call(["features", str(target), "--model", str(folder), "-o", str(tmp_path / "f.npz")]) == 0
    with np.load(tmp_path / "f.npz") as file:
        meta = json.loads(str(file["meta"]))
    assert meta["resize"] == mode


def test_the_card_has_the_mode(trained: tuple[ResizeMode, Path]) -> None:
    mode, folder = trained
    card = json.loads((folder / "model" / "model.json").read_text())
    assert card["preprocessing"]["resize"] == f"{mode}-bilinear-antialias"
    assert load_model(folder, "cpu").resize == mode
    text = (folder / "model" / "README.md").read_text()
    words = {"squash": "without keeping the aspect ratio", "crop": "central square", "pad": "mean color"}
    assert words[mode] in text


def test_modes_give_other_answers(folders: Path, cache: Path, tmp_path: Path) -> None:
    """Otherwise, the tests above would not see a mode that is ignored."""
    folder = train(folders, cache, tmp_path / "run", "crop")
    crop = predicted(folder, folders / "target", tmp_path / "crop.csv")
    path = folder / "model" / "model.json"
    path.write_text(path.read_text().replace("crop-bilinear", "squash-bilinear"))
    squash = predicted(folder, folders / "target", tmp_path / "squash.csv")
    assert any(abs(crop[key][1] - squash[key][1]) > 1e-3 for key in crop)


def test_models_without_the_key_squash(trained: tuple[ResizeMode, Path], tmp_path: Path) -> None:
    _, folder = trained
    card = read_card(folder / "model").model_dump(mode="json")
    assert ModelCard.model_validate({**card, "preprocessing": None}).resize == "squash"
    del card["preprocessing"]["resize"]
    assert ModelCard.model_validate(card).resize == "squash"
    card["preprocessing"]["resize"] = "stretch"
    with pytest.raises(ValueError, match="resize"):
        ModelCard.model_validate(card)


def test_an_estimator_trains_with_it(folders: Path, cache: Path) -> None:
    images = [np.asarray(Image.open(path)) for path in sorted((folders / "labeled").rglob("*.png"))]
    y = [path.parent.name for path in sorted((folders / "labeled").rglob("*.png"))]
    settings = {"resize": "pad", "epochs": 1, "batch": 4}
    model = SSDG("source-only", "digits-cnn", weights="none", size=32, cache=cache, device="cpu", settings=settings)
    model.fit((images, y))
    assert model.model_.resize == "pad"
    square = [resize(image, 32, "pad") for image in images]
    assert np.allclose(model.predict_proba(images), model.predict_proba(square), atol=1e-6)


def test_the_pixels() -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 200  # the central square
    assert (resize(wide, 4, "crop") == 200).all()
    padded = resize(wide, 12, "pad")
    assert (padded[4:8] == wide).all()
    assert (padded[:4] == 67).all()  # 200 / 3
    assert (padded[8:] == 67).all()
    assert (resize(wide.transpose(1, 0, 2), 12, "pad") == padded.transpose(1, 0, 2)).all()
    assert (resize(wide.transpose(1, 0, 2), 4, "crop") == 200).all()
    square = np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8)
    for mode in MODES:
        assert (resize(square, 6, mode) == resize(square, 6)).all()
        assert (resize(square, 9, mode) == square).all()
        assert resize(np.zeros((2, 60_000, 3), np.uint8), 32, mode).shape == (32, 32, 3)


def test_the_cache_keeps_modes_apart(folders: Path, tmp_path: Path) -> None:
    items = read_tree(folders / "target").images
    loaded = {mode: load_images(items, 32, tmp_path, resize=mode) for mode in MODES}
    rows = np.arange(len(items))
    pixels = {mode: cached.images[rows] for mode, cached in loaded.items()}
    assert not np.array_equal(pixels["crop"], pixels["pad"])
    assert not np.array_equal(pixels["crop"], pixels["squash"])
    assert len({cached.images.fingerprint for cached in loaded.values()}) == 3
    assert len(list(tmp_path.glob("*.u8"))) == 3
    load_images(items, 32, tmp_path)
    assert len(list(tmp_path.glob("*.u8"))) == 3, "squash is the default"


def test_runs_started_before_the_setting_resume() -> None:
    def hash_of(**settings: Any) -> str:
        return resolve({"labeled": "a", **settings}, kind="photo", size=32).hash

    assert hash_of() == hash_of(resize="squash")
    assert len({hash_of(resize=mode) for mode in MODES}) == 3
