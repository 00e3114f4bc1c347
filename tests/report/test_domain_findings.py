"""Findings about the images of domains: sheets of noise of a known brightness, contrast and color."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_findings import advice_of, numbers
from PIL import Image

from ssdg.errors import UserError
from ssdg.report.domain_styles import Style, distances, statistics, styles
from ssdg.report.run_folder import Run
from ssdg.schema import Index, SampledDomain

SIDE, COLUMNS, COUNT = 16, 10, 60
Make = Callable[..., Run]


def sheet(path: Path, count: int, brightness: float, contrast: float, seed: int) -> None:
    """Write images of gray noise whose brightness varies by image."""
    rng = np.random.default_rng(seed)
    tiles = brightness + 20 * rng.normal(size=(count, 1, 1)) + contrast * rng.normal(size=(count, SIDE, SIDE))
    lines = -(-count // COLUMNS)
    tiles = np.concatenate([tiles, np.zeros((lines * COLUMNS - count, SIDE, SIDE))]).clip(0, 255).astype(np.uint8)
    pixels = tiles.reshape(lines, COLUMNS, SIDE, SIDE).swapaxes(1, 2).reshape(lines * SIDE, COLUMNS * SIDE)
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).convert("RGB").save(path, "WEBP", lossless=True)


@pytest.fixture
def made(healthy: Run, tmp_path: Path) -> Make:
    """Return a run with domains given as name=(role, brightness, contrast)."""

    def make(count: int = COUNT, **domains: tuple[str, float, float]) -> Run:
        sampled = {}
        for number, (name, (role, brightness, contrast)) in enumerate(domains.items()):
            sheet(tmp_path / "samples" / f"{number}.webp", count, brightness, contrast, number)
            values: dict[str, Any] = {
                "role": role,
                "images": count,
                "rows": list(range(count)),
                "paths": [""] * count,
            }
            sampled[name] = SampledDomain.model_validate({**values, "sprite": f"{number}.webp"})
        index = Index(tile=SIDE, columns=COLUMNS, classes=["dog"], domains=sampled)
        return replace(healthy, folder=tmp_path, samples=index)

    return make


ALIKE = "The unlabeled domains art and sketch look alike."
FAR = "The unseen domain night resembles no training domain."


def test_unlabeled_domains_that_look_alike(made: Make) -> None:
    run = made(photo=("labeled", 60, 10), art=("unlabeled", 150, 20), sketch=("unlabeled", 150, 20))
    findings = numbers(run)
    assert list(findings) == [ALIKE]
    assert findings[ALIKE].endswith("standard deviations in brightness, colorfulness, contrast and texture apart")
    assert float(findings[ALIKE].split()[0]) < 0.2
    assert advice_of(run).endswith("split the images by style instead (--discover-domains auto).")


def test_domains_of_a_different_contrast_do_not_look_alike(made: Make) -> None:
    assert numbers(made(art=("unlabeled", 150, 20), sketch=("unlabeled", 150, 35))) == {}


def test_a_labeled_domain_may_look_like_an_unlabeled_one(made: Make) -> None:
    assert numbers(made(photo=("labeled", 150, 20), sketch=("unlabeled", 150, 20))) == {}


def test_a_handful_of_images_is_not_compared(made: Make) -> None:
    domains = {"art": ("unlabeled", 150, 20), "sketch": ("unlabeled", 150, 20), "night": ("target", 40, 5)}
    assert ALIKE in numbers(made(**domains))
    assert numbers(made(count=29, **domains)) == {}


def test_a_target_that_resembles_no_training_domain(made: Make) -> None:
    run = made(photo=("labeled", 150, 20), art=("unlabeled", 150, 24), night=("target", 50, 4))
    findings = numbers(run)
    assert list(findings) == [FAR]
    assert "from the nearest, photo; for training domains, at most" in findings[FAR]
    assert "--unlabeled FOLDER" in advice_of(run)


def test_a_target_near_one_training_domain(made: Make) -> None:
    """The training domains are far from each other; the target is like the second."""
    assert numbers(made(photo=("labeled", 150, 30), art=("unlabeled", 50, 4), night=("target", 52, 4))) == {}


def test_a_target_no_farther_than_training_domains_from_each_other(made: Make) -> None:
    assert numbers(made(photo=("labeled", 150, 30), art=("unlabeled", 150, 8), night=("target", 150, 16))) == {}


def test_a_target_next_to_one_training_domain_only(made: Make) -> None:
    findings = numbers(made(photo=("labeled", 150, 20), night=("target", 50, 4)))
    assert findings[FAR].endswith("from the nearest, photo")
    assert numbers(made(photo=("labeled", 150, 20), night=("target", 150, 20))) == {}


def test_distances_by_hand() -> None:
    """Two statistics with variance 4, means 2 apart and equal: sqrt((1 + 0) / 2); a constant one does not count."""

    def style(*mean: float, images: int = 10**9) -> Style:
        return Style(np.array(mean, np.float32), np.array([4.0, 4.0, 0.0], np.float32), images)

    pair = frozenset(("a", "b"))
    assert distances({"a": style(0, 0, 1), "b": style(2, 0, 5)})[pair] == pytest.approx(0.5**0.5)
    # with 8 images each, the error of a difference adds 4 / 8 + 4 / 8 to each square: (4 - 1) / 4 and (0 - 1) / 4
    few = distances({"a": style(0, 0, 1, images=8), "b": style(2, 0, 5, images=8)})
    assert few[pair] == pytest.approx(0.25**0.5)
    assert distances({"a": style(0, 0, 1)}) == {}
    assert distances({}) == {}


def test_statistics_are_those_of_domain_discovery() -> None:
    torch = pytest.importorskip("torch")
    from ssdg.models.styles import plain_statistics

    images = np.random.default_rng(0).random((3, 33, 20, 3), np.float32)
    expected = plain_statistics(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(statistics(images), expected, rtol=1e-4, atol=1e-4)


def test_a_damaged_sheet(made: Make) -> None:
    run = made(art=("unlabeled", 150, 20))
    path = run.folder / "samples" / "0.webp"
    Image.new("RGB", (SIDE, SIDE)).save(path, "WEBP")
    with pytest.raises(UserError, match="it has 16 × 16 pixels"):
        styles(run)
    path.write_bytes(b"RIFF....WEBP")
    with pytest.raises(UserError, match="it is not a WebP image"):
        styles(run)


def test_a_run_without_thumbnails(made: Make) -> None:
    run = made(art=("unlabeled", 150, 20), sketch=("unlabeled", 150, 20))
    assert numbers(replace(run, samples=None)) == {}
    (run.folder / "samples" / "0.webp").unlink()
    assert numbers(run) == {}
