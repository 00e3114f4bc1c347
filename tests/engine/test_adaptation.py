"""The extension to domain adaptation: the target is the unlabeled domain, the labeler is the product."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from runs import short_settings, train_here, weights_of
from ssdg.artifact.load import load_model
from ssdg.engine.setup import open_run
from ssdg.errors import UserError
from ssdg.methods import METHODS

UDA = {"setting": "uda"}


def test_the_target_is_the_only_unlabeled_domain_whole_and_without_labels(world: Path, cache: Path) -> None:
    _, problem = open_run(short_settings("mcd", data=str(world), **UDA), cache, device="cpu")
    assert list(problem.task.unlabeled) == ["night"]
    assert problem.target is not None
    pool = problem.task.unlabeled["night"].images
    assert sorted(map(bytes, pool.digest)) == sorted(map(bytes, problem.target.images.digest))
    assert problem.task.setting == "uda"
    assert not hasattr(problem.task.unlabeled["night"], "y")


def test_a_target_with_splits_is_used_completely(world: Path, cache: Path, tmp_path: Path) -> None:
    """`train` and `val` folders hold images out of the labeled source only."""
    root = tmp_path / "split"
    for domain in ("photo", "night"):
        for number, path in enumerate(sorted((world / domain).rglob("*.png"))):
            part = "val" if number % 4 == 0 else "train"
            copy = root / domain / part / path.parent.name / path.name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    _, problem = open_run(short_settings("mcd", data=str(root), **UDA), cache, device="cpu")
    assert problem.target is not None
    assert len(problem.task.unlabeled["night"]) == len(problem.target.images) == 24
    assert problem.validation is not None
    assert len(problem.validation) == len(list((root / "photo" / "val").rglob("*.png")))


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].family in ("source", "DA")])
def test_every_adaptation_method_trains_and_is_scored_on_the_target(
    method: str, world: Path, cache: Path, tmp_path: Path
) -> None:
    result = train_here(world, cache, tmp_path / "run", method, epochs=1, **UDA)
    assert result["task"]["unlabeled"] == ["night"]
    assert result["task"]["setting"] == "uda"
    assert result["target"]["final"]["mean"] >= 0


def test_the_cycle_ships_its_labeler(world: Path, cache: Path, tmp_path: Path) -> None:
    """DCG is discarded: it is not trained in the last cycle, and never evaluated."""
    deeper = {"apl_backbone": "resnet18", "apl_weights": "none"}
    short = {"epochs": 1, "labeler": {"epochs": 1, "batch": 4, "iterations": 2, "lr": 0.01}}
    result = train_here(world, cache, tmp_path / "run", "eid", cycles=2, **short, **deeper, **UDA)
    assert list(result["phases"]) == ["1-apl-night", "1-dcg", "2-apl-night"]
    assert [row["round"] for row in result["epochs"]] == [1, 2]
    card = json.loads((tmp_path / "run" / "model" / "model.json").read_text())
    assert (card["learner"], card["backbone"]) == ("mcd", "resnet18")
    last = load_file(tmp_path / "run" / "stages" / "2-apl-night.safetensors")
    shipped = weights_of(tmp_path / "run")
    assert all(any(np.array_equal(value, other) for other in last.values()) for value in shipped.values())
    assert load_model(tmp_path / "run", "cpu").logits(np.zeros((1, 32, 32, 3), np.uint8)).shape == (2, 1, 3)


def test_custom_folders(world: Path, cache: Path) -> None:
    settings = short_settings("mcd", labeled=str(world / "photo"), target=str(world / "night"), **UDA)
    _, problem = open_run(settings, cache, device="cpu")
    assert len(problem.task.unlabeled["night"]) == 24


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"target": None}, "adapts to the target, but there is none; add --target"),
        ({"unlabeled": ["neon"]}, "'neon' is listed as another; remove --unlabeled"),
        ({"target": "photo"}, "both the labeled and the target domain"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, object], message: str, world: Path, cache: Path) -> None:
    with pytest.raises(UserError, match=message):
        open_run(short_settings("mcd", data=str(world), **UDA, **more), cache, device="cpu")
