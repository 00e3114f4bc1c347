"""Every switch of the method from end to end on the tiny world."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from runs import same_weights, short_settings, train_here, weights_of
from ssdg.artifact.load import load_model
from ssdg.artifact.tensors import read_meta
from ssdg.cli import call
from ssdg.config import PRESETS
from ssdg.engine.events import read_event_dicts
from ssdg.engine.setup import open_run
from ssdg.engine.stages import stage_name
from ssdg.errors import UserError
from worlds import write_world

SHORTEST = {"epochs": 1, "iterations": 2, "labeler": {"epochs": 1, "batch": 4, "iterations": 2, "lr": 0.01}}
VARIANTS: dict[str, dict[str, Any]] = {
    "release": {"preset": "release"},
    "cutmix": {"mix": "cutmix"},
    "x+u": {"mix": "x+u"},
    "reinit": {"reinit": True},
    "deeper labeler": {"apl_backbone": "resnet18", "apl_weights": "none", "cycles": 1},
    "one cycle": {"cycles": 1},
    "hump": {"lr_shape": "hump", "iterations": 4},
    "plain": {"dual": False, "style": False, "diversity": False},
    "bf16": {"precision": "bf16", "cycles": 1},
    "no target": {"target": None},
    "one unlabeled domain": {"unlabeled": ["neon"]},
}


@pytest.fixture(scope="module")
def paper(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paper")
    train_here(world, cache, folder, "eid", **SHORTEST)
    return folder


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_trains_stops_anywhere_and_can_be_used(
    name: str, world: Path, cache: Path, paper: Path, tmp_path: Path
) -> None:
    more = {**SHORTEST, **VARIANTS[name]}
    result = train_here(world, cache, tmp_path / "run", "eid", **more)
    assert all(torch.isfinite(value).all() for value in weights_of(tmp_path / "run").values())
    others = [unlike(stage, paper / "stages" / stage.name) for stage in (tmp_path / "run" / "stages").iterdir()]
    assert any(others) == (name != "one cycle")  # the first cycle knows nothing of a second
    assert len(result["epochs"]) == more.get("cycles", 2)
    assert load_model(tmp_path / "run", "cpu").logits(_picture(world)).shape == (2, 1, 3)
    # Lose the last stage and all after it, resume, and end with the same bits.
    last = sorted((tmp_path / "run" / "stages").glob("*-dcg.safetensors"))[-1]
    again = Path(shutil.copytree(tmp_path / "run", tmp_path / "again"))
    (again / "stages" / last.name).unlink()
    (again / "result.json").unlink()
    train_here(world, cache, again, "eid", **more)
    assert same_weights(tmp_path / "run", again)


def unlike(first: Path, second: Path) -> bool:
    """Whether two checkpoints hold other tensors."""
    if not second.exists():
        return True
    a, b = load_file(first), load_file(second)
    return a.keys() != b.keys() or not all(torch.equal(a[name], b[name]) for name in a)


def _picture(world: Path) -> Any:
    import numpy as np
    from PIL import Image

    return np.array(Image.open(world / "night" / "bar" / "0.png"))[None]


def images_per_step(folder: Path, stage: str) -> int:
    meta = read_meta(folder / "stages" / f"{stage}.safetensors")
    assert meta is not None
    return int(meta["images_per_step"])


@pytest.mark.parametrize(
    ("more", "labeler_1", "labeler_2", "dcg"),
    [({}, 8, 12, 8), ({"mix": "x+u"}, 8, 8, 8), ({"preset": "release"}, 12, 12, 4)],
)
def test_images_are_counted_as_they_are_drawn(
    more: dict[str, Any], labeler_1: int, labeler_2: int, dcg: int, world: Path, cache: Path, tmp_path: Path
) -> None:
    """Batches of 4: a mixed image takes two, a union is one batch in all."""
    train_here(world, cache, tmp_path, "eid", **SHORTEST, **more)
    drawn = [images_per_step(tmp_path, stage) for stage in ("1-apl-neon", "2-apl-neon", "1-dcg")]
    assert drawn == [labeler_1, labeler_2, dcg]


def test_two_classes_and_predictions(cache: Path, tmp_path: Path) -> None:
    two = write_world(tmp_path / "two", classes=("bar", "disc"))
    train_here(two, cache, tmp_path / "run", "eid", **SHORTEST, cycles=1)
    rows = (tmp_path / "run" / "predictions.csv").read_text().splitlines()
    assert len(rows) == 1 + 16


@pytest.mark.parametrize("preset", PRESETS)
def test_a_dry_run_of_every_preset(preset: str, world: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train",
        "--data",
        world,
        "--labeled",
        "photo",
        "--target",
        "night",
        "--preset",
        preset,
        "--cache",
        cache,
    ]
    small = ["--device", "cpu", "--dry-run", "backbone=digits-cnn", "weights=none", "size=32"]
    assert call([str(w) for w in (*words, *small)]) == 0
    out = capsys.readouterr().out
    assert "dry run passed" in out
    assert "all numbers in" not in out  # they are gone


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"apl_backbone": "resnet81"}, "did you mean 'resnet18'"),
        ({"apl_backbone": "resnet18", "apl_weights": "gone.pth"}, "gone.pth"),
        ({"apl_backbone": "digits-cnn", "backbone": "resnet18", "size": 64}, "32x32"),
        ({"size": 64}, "32x32"),
    ],
)
def test_a_backbone_that_cannot_work_is_refused_before_the_data(
    more: dict[str, Any], message: str, world: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        open_run(short_settings("eid", data=str(world), **more), tmp_path / "cache", device="cpu")
    assert not (tmp_path / "cache").exists()


def test_unlike_keys_have_unlike_file_names() -> None:
    keys = ["a/b", "a-b", "a b", "a/b/c", "a/b-c", "a-b/c", "apl/é", "apl/è", "x" * 300, "x" * 301, "main", "dcg"]
    names = [stage_name(key, 1) for key in keys]
    assert len(set(names)) == len(keys)
    assert max(map(len, names)) < 200
    assert stage_name("apl/neon", 2) == "2-apl-neon"


def test_domains_named_as_stages_are_or_at_great_length(world: Path, cache: Path, tmp_path: Path) -> None:
    long = "x" * 250
    for source, name in (("photo", "photo"), ("sketch", "dcg"), ("neon", long), ("night", "main")):
        shutil.copytree(world / source, tmp_path / "world" / name)
    train_here(tmp_path / "world", cache, tmp_path / "run", "eid", target="main", **SHORTEST, cycles=1)
    assert len(list((tmp_path / "run" / "stages").iterdir())) == 3


def test_seconds_add_up_and_events_report_finished_stages(world: Path, cache: Path, tmp_path: Path) -> None:
    train_here(world, cache, tmp_path, "eid", cycles=1)
    first = json.loads((tmp_path / "result.json").read_text())
    (tmp_path / "result.json").unlink()
    train_here(world, cache, tmp_path, "eid", cycles=1)
    again = json.loads((tmp_path / "result.json").read_text())
    assert again == first
    rows = [e for e in read_event_dicts(tmp_path / "events.jsonl") if e["event"] in ("trained", "labeled")]
    assert [e["found"] for e in rows] == [False] * 6 + [True] * 6
    assert [e["event"] for e in read_event_dicts(tmp_path / "events.jsonl")].count("epoch") == 6
