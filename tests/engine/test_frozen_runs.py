"""Runs from the stored maps of a frozen trunk: the same weights from a full, an empty and a torn cache."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from runs import environment, same_weights, short_settings, train_here, weights_of
from ssdg.artifact.load import load_model
from ssdg.artifact.tensors import read_meta
from ssdg.cli import call
from ssdg.data.sets import ImageTable
from ssdg.data.sources.tree import read_tree
from ssdg.data.views import UNMIRRORED
from ssdg.engine.events import read_event_dicts
from ssdg.engine.pipelines import TrunkEncoder
from ssdg.errors import UserError
from ssdg.models.backbones import build_backbone
from ssdg.models.frozen import freeze

FROZEN: dict[str, Any] = {"warm_epochs": 1, "views": 2, "inference": "fp32"}
ROUNDS: dict[str, Any] = {"rates": (0.5,), "epochs": 1}  # of self-training
KINDS: dict[str, dict[str, Any]] = {
    "source-only": {"freeze": "stage2"},
    "mcd": {"freeze": "all"},
    "self-training": {"freeze": "all", **ROUNDS},
}
EVOLVING: dict[str, Any] = {"apl": "self-training", "labeler": ROUNDS, "epochs": 1, **FROZEN}


def trunk_event(folder: Path) -> dict[str, Any]:
    """The last announcement of the maps that a run needs."""
    events = [event for event in read_event_dicts(folder / "events.jsonl") if event["event"] == "trunk"]
    return events[-1]


@pytest.fixture(scope="module", params=KINDS)
def finished(
    request: pytest.FixtureRequest, world: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path, Path]:
    """A method, the folder of a finished run, and its cache. Read only: write to copies."""
    root = tmp_path_factory.mktemp("finished")
    train_here(world, root / "cache", root / "run", request.param, **FROZEN, **KINDS[request.param])
    return request.param, root / "run", root / "cache"


def train_again(finished: tuple[str, Path, Path], world: Path, cache: Path, folder: Path, **more: Any) -> None:
    method = finished[0]
    train_here(world, cache, folder, method, **{**FROZEN, **KINDS[method], **more})


def test_a_second_run_computes_no_map(finished: tuple[str, Path, Path], world: Path, tmp_path: Path) -> None:
    method, folder, cache = finished
    first = trunk_event(folder)
    assert first["missing"] > 0
    assert (first["boundary"], first["views"]) == (KINDS[method]["freeze"], 2)
    assert first["precision"] == "fp32"
    train_again(finished, world, cache, tmp_path / "run")
    assert trunk_event(tmp_path / "run") == {**first, "missing": 0, "time": trunk_event(tmp_path / "run")["time"]}
    assert same_weights(folder, tmp_path / "run")


def test_a_run_without_its_maps_computes_them_again(
    finished: tuple[str, Path, Path], world: Path, tmp_path: Path
) -> None:
    _, folder, cache = finished
    copied = Path(shutil.copytree(cache, tmp_path / "cache"))
    shutil.rmtree(copied / "maps")
    train_again(finished, world, copied, tmp_path / "run")
    assert same_weights(folder, tmp_path / "run")
    names = [{path.name for path in (root / "maps").iterdir()} for root in (cache, copied)]
    assert names[0] == names[1]
    for name in names[0]:
        assert (cache / "maps" / name).read_bytes() == (copied / "maps" / name).read_bytes()


@pytest.mark.filterwarnings("ignore::ssdg.errors.Note")
def test_a_run_from_damaged_maps_repairs_them(finished: tuple[str, Path, Path], world: Path, tmp_path: Path) -> None:
    _, folder, cache = finished
    copied = Path(shutil.copytree(cache, tmp_path / "cache"))
    for path in (copied / "maps").glob("*.f16"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    train_again(finished, world, copied, tmp_path / "run")
    assert same_weights(folder, tmp_path / "run")


def predictions_of(folder: Path) -> dict[str, tuple[str, float]]:
    """Label and confidence by the last parts of the path."""
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {short_path(row["path"]): (row["class"], float(row["confidence"])) for row in rows}


def short_path(path: str) -> str:
    return "/".join(Path(path).parts[-2:])


def test_the_shipped_model_predicts_from_images_what_the_run_predicted_from_maps(
    finished: tuple[str, Path, Path], world: Path
) -> None:
    method, folder, _ = finished
    model, expected = load_model(folder, "cpu"), predictions_of(folder)
    rows = list(model.predict(read_tree(world / "night").images))
    assert len(rows) == len(expected) == 24
    for row in rows:
        label, confidence = expected[short_path(str(row.path))]
        assert row.label == label
        assert row.confidence == pytest.approx(confidence, abs=5e-3)  # maps are stored in half precision
    assert json.loads((folder / "model" / "model.json").read_text())["learner"] == method
    trained = {name for name, value in weights_of(folder).items() if value.any()}
    assert trained == set(weights_of(folder))


def test_a_frozen_run_is_exported_to_onnx(
    finished: tuple[str, Path, Path], world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    method, folder, _ = finished
    if method != "self-training":
        pytest.skip("one is enough: a model folder does not say what was frozen")
    out = tmp_path / "model.onnx"
    assert (
        call([str(word) for word in ("export", folder, "--format", "onnx", "--images", world / "night", "-o", out)])
        == 0
    )
    assert "same class for 24 of 24" in capsys.readouterr().out


def test_the_report_of_a_frozen_run(
    finished: tuple[str, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert call(["report", str(finished[1]), "-o", str(page)]) == 0, capsys.readouterr().err
    assert page.exists()


DIE = """
import os, signal, sys
import ssdg.artifact.tensors as state
import ssdg.data.map_cache as maps
from ssdg.cli import main

def dying(function, at):
    calls = iter(range(100000))
    def call(*args, **more):
        if next(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **more)
    return call

if sys.argv[1] == "extraction":
    maps.write_at = dying(maps.write_at, 101)
else:
    state.save_file = dying(state.save_file, 9)
main(sys.argv[2:])
"""


def test_a_run_that_is_killed_twice_ends_with_the_same_weights(world: Path, tmp_path: Path) -> None:
    """Kill it while it stores maps, and after the warm start while it trains; then finish."""
    frozen = {**FROZEN, "freeze": "stage2"}
    train_here(world, tmp_path / "other cache", tmp_path / "whole", "source-only", **frozen)
    settings, folder, cache = short_settings("source-only", **frozen), tmp_path / "killed", tmp_path / "cache"
    words = [f"{key}={value}" for key, value in settings.items() if key not in ("labeled", "target")]
    where = ["--data", world, "--labeled", settings["labeled"], "--target", settings["target"], "--out", folder]
    command = [
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
    for phase in ("extraction", "training"):
        died = subprocess.run(
            [sys.executable, "-c", DIE, phase, *command], env=environment(), capture_output=True, check=False
        )
        assert died.returncode == -signal.SIGKILL, died.stderr.decode()
        main = read_meta(folder / "stages" / "1-main.safetensors")
        assert (main is not None) == (phase == "training")
    assert main is not None
    assert 0 < main["step"] < main["steps"]
    assert call(command) == 0
    assert same_weights(tmp_path / "whole", folder)
    announced = [event for event in read_event_dicts(folder / "events.jsonl") if event["event"] == "trunk"]
    missing = [event["missing"] for event in announced]
    # Write 101 is the checksum of row 50, so 50 rows were complete; the third process finds all of them.
    assert missing == [missing[0], missing[0] - 50, 0]


def test_hidden_labels_cannot_reach_the_weights_through_a_frozen_labeler(
    world: Path, cache: Path, tmp_path: Path
) -> None:
    """Move the files of unlabeled and target domains to other class folders: the weights stay bit-identical."""
    other = Path(shutil.copytree(world, tmp_path / "other"))
    rng = np.random.default_rng(0)
    for domain in ("sketch", "neon", "night"):
        files = sorted((other / domain).rglob("*.png"))
        targets = [files[i].with_stem(f"moved{n}") for n, i in enumerate(rng.permutation(len(files)))]
        for file, target in zip(files, targets, strict=True):
            file.rename(target)
    for root, name in ((world, "true"), (other, "permuted")):
        train_here(root, cache, tmp_path / name, "eid", freeze="stage2", **EVOLVING)
    assert same_weights(tmp_path / "true", tmp_path / "permuted")


LABELINGS = ("{}-apl-{}", "{}-probe-{}-round1")  # by cycle and domain: in the end, and in the labeler's only round


@pytest.mark.parametrize("boundary", ["none", "all"])
def test_eid_with_a_frozen_labeler(boundary: str, world: Path, cache: Path, tmp_path: Path) -> None:
    train_here(world, cache, tmp_path, "eid", freeze=boundary, **EVOLVING)
    assert all(torch.isfinite(value).all() for value in weights_of(tmp_path).values())
    labels = {path.stem for path in (tmp_path / "labels").glob("*.npz")}
    domains = ("sketch", "neon")
    rounds = {labeling.format(cycle, name) for cycle in (1, 2) for name in domains for labeling in LABELINGS}
    assert labels == rounds | {"1-eid", "2-eid"}
    assert load_model(tmp_path, "cpu").classes == ("bar", "disc", "ring")


def test_in_domain_adaptation_the_frozen_labeler_is_the_product(world: Path, cache: Path, tmp_path: Path) -> None:
    result = train_here(world, cache, tmp_path, "eid", setting="uda", **EVOLVING)
    card = json.loads((tmp_path / "model" / "model.json").read_text())
    assert (card["method"], card["learner"]) == ("eid", "self-training")
    assert card["settings"]["rates"] == [0.5]
    assert set(result["target"]["final"]) == {"mean", "network_1"}
    expected = predictions_of(tmp_path)
    rows = list(load_model(tmp_path, "cpu").predict(read_tree(world / "night").images))
    assert [row.label for row in rows] == [expected[short_path(str(row.path))][0] for row in rows]


@pytest.mark.parametrize("unlabeled", [["sketch"], []], ids=["next to a domain", "alone"])
@pytest.mark.parametrize("strategy", ["ignored", "retained", "refined"])
def test_a_crawl_with_a_frozen_labeler(
    strategy: str, unlabeled: list[str], world: Path, cache: Path, tmp_path: Path
) -> None:
    settings = {"unlabeled": unlabeled, "web": ["neon"], "web_label": strategy, **EVOLVING}
    train_here(world, cache, tmp_path, "eid", **settings)
    assert all(torch.isfinite(value).all() for value in weights_of(tmp_path).values())
    labels = {path.stem for path in (tmp_path / "labels").glob("*.npz")}
    cycles = {"ignored": (1, 2), "retained": (), "refined": (2,)}[strategy]  # in which the crawl is labeled
    assert {name for name in labels if "neon" in name} == {
        labeling.format(cycle, "neon") for cycle in cycles for labeling in LABELINGS
    }
    assert {name for name in labels if "sketch" in name} == {
        labeling.format(cycle, name) for name in unlabeled for cycle in (1, 2) for labeling in LABELINGS
    }


def test_a_frozen_labeler_of_a_pair(world: Path, cache: Path, tmp_path: Path) -> None:
    settings = {"labeler": ROUNDS, "epochs": 1, **FROZEN}
    train_here(world, cache, tmp_path, "self-training+mixstyle", **settings)
    card = json.loads((tmp_path / "model" / "model.json").read_text())
    assert (card["method"], card["learner"]) == ("self-training+mixstyle", "mixstyle")


def test_too_little_space_for_maps_stops_a_run_with_one_sentence(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, full = {**FROZEN, "freeze": "stage2"}, shutil.disk_usage(tmp_path)._replace(free=1000)
    with monkeypatch.context() as patch:
        patch.setattr("ssdg.data.map_cache.shutil.disk_usage", lambda folder: full)
        with pytest.raises(UserError, match=r"need .* GB in '.*maps' and 0\.00 GB are free") as refusal:
            train_here(world, tmp_path / "cache", tmp_path / "run", "source-only", **settings)
    assert "\n" not in str(refusal.value)
    train_here(world, tmp_path / "cache", tmp_path / "run", "source-only", **settings)  # resumes


@pytest.fixture(scope="module")
def encoder() -> TrunkEncoder:
    torch.manual_seed(0)
    backbone = build_backbone("digits-cnn")
    freeze(backbone, "stage2")
    return TrunkEncoder(backbone.eval(), 32, torch.device("cpu"), "fp32")


@pytest.mark.parametrize("view", [0, 1, 2, 4])
def test_maps_of_an_image_have_the_same_bits_in_any_batch(view: int, encoder: TrunkEncoder) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (19, 32, 32, 3), np.uint8)
    maps = encoder(pixels, view, np.arange(19))
    assert maps.shape == (19, *encoder.shape) == (19, 8, 8, 64)
    assert maps.dtype == np.float16
    order = np.random.default_rng(1).permutation(19)[:11]
    assert np.array_equal(encoder(pixels, view, order), maps[order])
    assert np.array_equal(encoder(pixels, view, np.array([13])), maps[[13]])
    again = ImageTable.from_array(pixels[::-1].copy())  # other positions, same images
    assert np.array_equal(encoder(again.arrays[0], view, np.arange(19)), maps[::-1])


def test_views_of_an_image_differ_from_it_and_from_each_other(encoder: TrunkEncoder) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    maps = [encoder(pixels, view, np.arange(3)) for view in range(6)]
    assert all(not np.array_equal(a[i], b[i]) for k, a in enumerate(maps) for b in maps[:k] for i in range(3))


def test_everything_that_decides_maps_is_part_of_the_identity_of_a_trunk(encoder: TrunkEncoder) -> None:
    def identity(boundary: str = "stage2", seed: int = 0, size: int = 32, precision: str = "fp32") -> str:
        torch.manual_seed(seed)
        backbone = build_backbone("digits-cnn")
        freeze(backbone, boundary)
        return TrunkEncoder(backbone, size, torch.device("cpu"), precision, UNMIRRORED).identity

    assert identity() == encoder.identity  # mirroring concerns views: it is part of the names of their files
    others = [identity("stage1"), identity("all"), identity(seed=1), identity(size=64), identity(precision="bf16")]
    assert len({identity(), *others}) == 6


def test_maps_beyond_half_precision_are_clamped(encoder: TrunkEncoder) -> None:
    torch.manual_seed(0)
    backbone = build_backbone("digits-cnn")
    with torch.no_grad():
        backbone.stage1[0].weight.mul_(1e7)
    freeze(backbone, "stage1")
    huge = TrunkEncoder(backbone.eval(), 32, torch.device("cpu"), "fp32")
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    maps = huge(pixels, 0, np.arange(2))
    assert np.isfinite(maps).all()
    assert maps.max() == np.finfo(np.float16).max
