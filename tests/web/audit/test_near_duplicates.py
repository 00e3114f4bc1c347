"""Copies are found despite the usual changes of images on the web, and dissimilar images are not."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np
import pytest
from PIL import Image
from scenes import scene

from ssdg.web.audit.inspection import find_nearest, match_copies, signature

NUM = 40


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image.convert("RGB"))


def jpeg(image: Image.Image, quality: int) -> Image.Image:
    file = BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file)


def brighter(image: Image.Image, factor: float) -> Image.Image:
    return Image.fromarray(np.clip(np.asarray(image) * factor, 0, 255).astype(np.uint8))


def cropped(image: Image.Image, rate: float) -> Image.Image:
    cut = round(rate * image.width)
    return image.crop((cut, cut, image.width - cut, image.height - cut))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "smaller": lambda image: image.resize((40, 40), Image.Resampling.BILINEAR),
    "larger and squashed": lambda image: image.resize((224, 160), Image.Resampling.BICUBIC),
    "jpeg": lambda image: jpeg(image, 60),
    "brighter": lambda image: brighter(image, 1.1),
    "darker": lambda image: brighter(image, 0.9),
    "gray": lambda image: image.convert("L"),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "cropped": lambda image: cropped(image, 0.04),
    "all": lambda image: jpeg(brighter(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((64, 64)), 1.1), 60),
}


@pytest.fixture(scope="module")
def originals() -> np.ndarray:
    return np.stack([signature(pixels(scene(seed))) for seed in range(NUM)])


@pytest.mark.parametrize("change", CHANGES)
def test_changed_copies_are_found(change: str, originals: np.ndarray) -> None:
    changed = np.stack([signature(pixels(CHANGES[change](scene(seed)))) for seed in range(NUM)])
    matches = find_nearest(changed, originals)
    assert [match.index for match in matches] == list(range(NUM))
    assert min(match.similarity for match in matches) > 0.9
    assert {match.mirrored for match in matches} == {change in ("mirrored", "all")}


def test_unlike_images_are_far_apart(originals: np.ndarray) -> None:
    others = np.stack([signature(pixels(scene(seed))) for seed in range(NUM, 2 * NUM)])
    assert max(match.similarity for match in find_nearest(originals, others)) < 0.5
    assert match_copies(originals, range(NUM), 0.9) == {}


def test_images_of_one_color_are_copies_of_nothing() -> None:
    plain = np.stack([signature(np.full((20, 30, 3), value, np.uint8)) for value in (0, 7, 200, 255)])
    assert (plain == 0).all()
    assert match_copies(plain, range(4), 0.9) == {}


def test_a_wave_by_hand() -> None:
    """One cosine that runs once down the image: only its own frequency is there, number 16 less the mean."""
    wave = np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    image = np.repeat((128 + 100 * wave)[:, None, None], 64, 1).repeat(3, 2)
    values = signature(np.rint(image).astype(np.uint8))[0]
    assert values[15] > 0.95


def test_a_chain_of_small_changes_does_not_join_unlike_images() -> None:
    """0 is like 1 and 1 like 2, but 2 is not like 0: 2 stays, for 1 is gone."""
    angles = np.deg2rad([0, 20, 40])
    signatures = np.zeros((3, 3, 255), np.float32)
    signatures[:, :, 15], signatures[:, :, 31] = np.cos(angles)[:, None], np.sin(angles)[:, None]
    assert {number: match.index for number, match in match_copies(signatures, [0, 1, 2], 0.9).items()} == {1: 0}
    assert {number: match.index for number, match in match_copies(signatures, [1, 0, 2], 0.9).items()} == {0: 1, 2: 1}


def test_copies_across_chunks(monkeypatch: pytest.MonkeyPatch, originals: np.ndarray) -> None:
    twice = np.concatenate([originals, originals])
    whole = {number: match.index for number, match in match_copies(twice, range(2 * NUM), 0.9).items()}
    assert whole == {NUM + number: number for number in range(NUM)}
    monkeypatch.setattr("ssdg.web.audit.inspection._CHUNK", 7)
    assert {number: match.index for number, match in match_copies(twice, range(2 * NUM), 0.9).items()} == whole
    assert [match.index for match in find_nearest(originals, twice)] == list(range(NUM))


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (3, 2000)])
def test_odd_shapes(shape: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    assert np.isfinite(signature(image)).all()
