"""The typical size of a domain's images, and what preset `best` makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pictures import encoded, picture, write, zip_files

from ssdg.cli import call
from ssdg.data.image_side import NUM_SAMPLED, typical_side
from ssdg.data.sources.benchmark import list_images, read_benchmark
from ssdg.engine.setup import open_benchmark, resolve_roles

CLASSES = ("bar", "disc")


def folder_of(root: Path, *sizes: tuple[int, int], classes: tuple[str, ...] = CLASSES) -> Path:
    """Images of these widths and heights, in every class."""
    for name in classes:
        for number, (width, height) in enumerate(sizes):
            write(root / name / f"{number:03}.png", encoded(picture(number, width, height)))
    return root


def side_of(folder: Path) -> int | None:
    return typical_side(list_images(folder))


def test_the_longer_side_counts(tmp_path: Path) -> None:
    assert side_of(folder_of(tmp_path / "wide", (70, 20))) == 70
    assert side_of(folder_of(tmp_path / "high", (20, 90))) == 90


def test_a_few_images_of_another_size_do_not_count(tmp_path: Path) -> None:
    assert side_of(folder_of(tmp_path, (500, 400), (60, 50), (62, 50), (61, 50), (8, 8))) == 61


def test_the_side_is_that_of_an_image(tmp_path: Path) -> None:
    """Of two sizes it is the smaller one, not a mean that no image has."""
    assert side_of(folder_of(tmp_path, (100, 10), (20, 10))) == 20


def test_images_are_spread_over_the_domain(tmp_path: Path) -> None:
    """The first class alone would be sampled otherwise, and classes may differ in size."""
    folder_of(tmp_path, *[(20, 20)] * NUM_SAMPLED, classes=("a",))
    folder_of(tmp_path, *[(50, 50)] * (2 * NUM_SAMPLED), classes=("b",))
    assert side_of(tmp_path) == 50


def test_unreadable_images_are_ignored(tmp_path: Path) -> None:
    folder_of(tmp_path, (50, 40))
    for number in range(9):
        write(tmp_path / "bar" / f"broken{number}.png", b"not an image")
    (tmp_path / "disc" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert side_of(tmp_path) == 50


def test_nothing_readable_has_no_side(tmp_path: Path) -> None:
    assert typical_side([]) is None
    write(tmp_path / "bar" / "broken.png", b"")
    assert side_of(tmp_path) is None


def test_images_in_an_archive(tmp_path: Path) -> None:
    files = {f"bar/{number}.png": encoded(picture(number, 55, 30)) for number in range(3)}
    assert side_of(zip_files(tmp_path / "images.zip", files)) == 55


def resolved(labeled: Path, **more: Any) -> Any:
    settings = {"labeled": str(labeled), "unlabeled": [str(labeled)], "preset": "best", **more}
    return resolve_roles(settings, None)[0]


@pytest.mark.parametrize("side", [28, 32, 40])
def test_small_images_are_trained_as_characters(side: int, tmp_path: Path) -> None:
    config = resolved(folder_of(tmp_path, (side, side)))
    assert (config.backbone, config.weights, config.size) == ("character-cnn", "none", 32)
    assert (config.augment, config.freeze) == ("character-views", "none")


@pytest.mark.parametrize("side", [41, 96, 300])
def test_larger_images_are_trained_as_photographs(side: int, tmp_path: Path) -> None:
    config = resolved(folder_of(tmp_path, (side, side)))
    assert (config.backbone, config.weights, config.size) == ("efficientnet-lite0", "imagenet", 192)
    assert (config.augment, config.freeze) == ("photo-views", "stage5")


def test_explicit_settings_beat_the_size_of_the_images(tmp_path: Path) -> None:
    small, large = folder_of(tmp_path / "small", (32, 32)), folder_of(tmp_path / "large", (300, 300))
    assert resolved(small, size=48, augment="photo").size == 48
    assert resolved(small, size=48, augment="photo").augment == "photo"
    assert resolved(large, size=64, backbone="resnet18").size == 64
    assert resolved(large, backbone="resnet18").backbone == "resnet18"


@pytest.mark.parametrize(("preset", "size"), [("paper", 224), ("quick", 96)])
def test_other_presets_do_not_depend_on_the_size_of_the_images(preset: str, size: int, tmp_path: Path) -> None:
    for side in (28, 300):
        assert resolved(folder_of(tmp_path / str(side), (side, side)), preset=preset).size == size


def test_the_labeled_domain_of_a_benchmark_decides(tmp_path: Path) -> None:
    for name, side in (("one", 30), ("two", 100), ("three", 300)):
        folder_of(tmp_path / name, (side, side))
    benchmark = read_benchmark(tmp_path)
    for labeled, size in (("one", 32), ("two", 192), ("three", 192)):
        target = "two" if labeled == "one" else "one"
        settings = {"data": str(tmp_path), "labeled": labeled, "target": target, "preset": "best"}
        assert resolve_roles(settings, benchmark)[0].size == size


def test_embedded_digits_are_characters_without_a_look_at_them(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ssdg.engine.setup.typical_side", lambda *_: pytest.fail("looked"))
    settings = {"data": "digits", "labeled": "syn", "target": "mnist", "preset": "best"}
    config, _ = resolve_roles(settings, open_benchmark(settings, cache))
    assert (config.backbone, config.size, config.augment) == ("character-cnn", 32, "character-views")


def folder_with(content: str, root: Path) -> Path:
    folder = root / "labeled"
    if content == "nothing":
        folder.mkdir()
    elif content == "unsorted":
        write(folder / "0.png", encoded(picture(0)))
    elif content == "broken":
        for name in CLASSES:
            write(folder / name / "0.png", b"not an image")
    elif content == "file":
        write(folder, b"text")
    return folder


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("missing", "does not exist"),
        ("nothing", "no class subfolders"),
        ("unsorted", "no class subfolders"),
        ("broken", "can be read"),
        ("file", "neither a folder nor a .zip archive"),
    ],
)
def test_folders_without_images_are_reported_as_with_any_preset(
    content: str, message: str, tmp_path: Path, complaint: Any
) -> None:
    folder = folder_with(content, tmp_path)
    words = ["train", "--labeled", folder, "--out", tmp_path / "run", "--cache", tmp_path / "cache"]
    network = ["backbone=character-cnn", "weights=none", "size=32"]  # no download
    error = complaint(*words, *network)
    assert message in error
    assert error == complaint(*words, "--preset", "quick", "--method", "source-only", *network)
    assert not (tmp_path / "run").exists()


def test_a_run_of_small_images_says_what_was_chosen(
    world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--labeled", world / "photo", "--unlabeled", world / "neon", "--cache", cache, "--out", tmp_path / "run"]
    assert call([str(word) for word in ("train", *where, "--dry-run", "--device", "cpu", "precision=fp32")]) == 0
    out = capsys.readouterr().out
    assert "character-cnn, weights none, 32 px" in out
    assert "recipe     small images, so a small network; random weights; randomized views (never mirrored)" in out
