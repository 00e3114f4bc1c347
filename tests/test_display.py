"""What is shown of a run: names as they are, whatever they look like."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ssdg.cli import call
from ssdg.config import resolve
from ssdg.data.sets import DataKind
from ssdg.display import Screen, describe_crawl, describe_recipe

STRANGE = "[red]night"
SMALL = ["backbone=digits-cnn", "weights=none", "size=32", "batch=4", "epochs=1", "labeler.batch=4"]


@pytest.fixture
def strange(world: Path, tmp_path: Path) -> Path:
    """A world with markup in the names of a domain that is unlabeled or unseen and of a class."""
    root = shutil.copytree(world, tmp_path / "world")
    for domain in ("photo", "sketch", "neon", "night"):
        (root / domain / "ring").rename(root / domain / "[bold]ring")
    (root / "night" / "bar" / "[i]broken.png").touch()
    return (root / "night").rename(root / STRANGE).parent


@pytest.mark.parametrize("target", ["sketch", STRANGE])
def test_names_that_look_like_markup(
    target: str, strange: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [
        "--data",
        strange,
        "--labeled",
        "photo",
        "--target",
        target,
        "--out",
        tmp_path / "[b]run",
        "--cache",
        cache,
    ]
    labeler = ["labeler.epochs=1", "cycles=1"]
    assert call([str(w) for w in ("train", "--preset", "paper", *where, "--device", "cpu", *SMALL, *labeler)]) == 0
    out = capsys.readouterr().out
    assert out.count(STRANGE) >= 2
    assert "[i]broken.png" in out
    assert str(tmp_path / "[b]run" / "result.json") in out  # on one line, to be copied
    assert f"accuracy (%) on unseen {target}" in out
    assert call(["data", "describe", str(strange)]) == 0
    described = capsys.readouterr().out
    assert "[red]" in described
    assert "[bold]ring" in described


def test_what_is_told_of_images_of_no_class() -> None:
    row = {"ood": 8, "ood_kept": 6, "ood_precision": 25.0}
    assert describe_crawl(row) == "; 2 of 8 OOD images discarded (25.00 % of all discarded)"
    assert describe_crawl(row | {"ood_kept": 8, "ood_precision": None}) == "; 0 of 8 OOD images discarded"


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_has_a_bar_if_it_can_draw_one(has_widgets: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("ssdg.display.find_spec", lambda name: object() if has_widgets else None)
    assert Screen().bar.disable == (not has_widgets)


def recipe(kind: DataKind, **values: Any) -> str:
    return describe_recipe(resolve({"labeled": "photo", "preset": "best", **values}, kind=kind, size=32))


def test_what_preset_best_chose_for_small_images() -> None:
    assert recipe("none") == "small images, so a small network; random weights; randomized views (never mirrored)"


def test_what_preset_best_chose_for_photographs() -> None:
    text = recipe("photo", views=3)
    assert text.startswith("photographs at 192 px; pretrained weights, layers up to stage5 frozen")
    assert text.endswith("computed once for 3 views; randomized views (mirrored too)")
    assert "all layers frozen" in recipe("photo", freeze="all")
    assert "photographs at 64 px" in recipe("photo", size=64)


def test_layers_that_are_trained_are_not_called_frozen() -> None:
    assert "pretrained weights, all layers trained; randomized views" in recipe("photo", freeze="none")
    assert recipe("photo", weights="none") == "photographs at 192 px; random weights; randomized views (mirrored too)"


@pytest.mark.parametrize("kind", ["photo", "none"])
@pytest.mark.parametrize("augment", ["photo", "none"])
def test_a_recipe_without_randomized_views_names_the_augmentation(kind: DataKind, augment: str) -> None:
    text = recipe(kind, augment=augment)
    assert text.endswith(f"; augment={augment}")
    assert "mirrored" not in text
