"""The t-SNE figure: its points, its text, invalid input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benches import write_bench

from ssdg.bench.tables.tsne import Evolution, LabelerView, TargetView, draw_evolution, embed
from ssdg.cli import call
from ssdg.errors import UserError

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")


def blobs(num: int, apart: float = 50.0) -> np.ndarray:
    """Two clouds of `num` images each."""
    noise = np.random.default_rng(0).normal(size=(2 * num, 8)).astype(np.float32)
    noise[num:] += apart
    return noise


def made_up(classes: int = 3, *, known: bool = True) -> Evolution:
    """One cycle of a run that nobody trained."""
    features = blobs(10)
    y = np.arange(20) % classes if known else np.full(20, -1)
    return Evolution(
        method="eid",
        seed=0,
        labeled="a",
        unlabeled=("b", "c"),
        labeler_domain="b",
        target="d",
        product="two networks of DCG",
        classes=tuple(f"class{k}" for k in range(classes)),
        y=y,
        labelers=(LabelerView(1, {"labeled": features[:10], "unlabeled": features[10:]}, None),),
        targets=(TargetView(1, features, 62.5 if known else None),),
    )


def drawn(run: Evolution, tmp_path: Path) -> str:
    return draw_evolution(run, tmp_path / "x.svg").read_text(encoding="utf-8")


def test_the_same_features_give_the_same_points() -> None:
    features = blobs(40)
    points = embed(features)
    assert points.shape == (80, 2)
    assert np.array_equal(points, embed(features))
    nearest = np.linalg.norm(points[:, None] - points, axis=2) + np.eye(80) * 1e9
    assert (nearest.argmin(1) // 40 == np.arange(80) // 40).all()


def test_few_and_equal_images() -> None:
    assert np.isfinite(embed(blobs(2))).all()
    assert not embed(np.ones((9, 3), np.float32)).any()
    with pytest.raises(UserError, match="4 images or more, not 3"):
        embed(np.ones((3, 3), np.float32))


def test_the_figure_says_what_it_shows(tmp_path: Path) -> None:
    text = drawn(made_up(), tmp_path)
    for words in (
        "unlabeled b and c",
        "labeler of b",
        "two networks of DCG, network 1, on d",
        "62.5 % accuracy",
        "true classes",
        "class2",
    ):
        assert words in text
    assert "intermediate" not in text
    assert "axes have no unit" in text


def test_unknown_classes_and_no_target(tmp_path: Path) -> None:
    text = drawn(made_up(known=False), tmp_path)
    assert "unknown class" in text
    assert "true classes" not in text
    assert "% accuracy" not in text
    assert "cycle 1" in drawn(replace(made_up(), target=None, targets=(), y=np.zeros(0, np.int64)), tmp_path)


def test_many_classes_have_no_legend(tmp_path: Path) -> None:
    assert "class19" in drawn(made_up(20), tmp_path)
    assert "class19" not in drawn(made_up(21), tmp_path)


def test_the_command_on_a_run(evolved: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["figure", str(evolved), "tsne", "--cache", str(cache), "--device", "cpu", "--images", "24"]
    for name in ("one.svg", "two.svg", "one.png"):
        assert call([*words, "-o", str(tmp_path / name)]) == 0
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert "unlabeled: neon" in text
    assert "from cycle 2 on" in text
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert "figure: " in capsys.readouterr().out


def test_words_that_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "eid", "family": "ours"}, {"name": "mcd", "family": "DA"}]
    domains = {"art": {"images": 2, "kept": 2}}
    labeling = {"key": "scouts/art", "round": 1, "kind": "pseudo-labels", "title": "scouts", "domains": domains}
    scores = {("mcd", "P>A", 0): 50.0, ("eid", "P>A", 0): 50.0}
    bench = write_bench(tmp_path / "b", rows, ["P>A"], scores, audits={("eid", "P>A", 0): [labeling]})
    other = write_bench(tmp_path / "o", rows[1:], ["P>A"], {("mcd", "P>A", 0): 50.0})

    def refused(message: str, *args: object, out: str = "x.png") -> None:
        assert call(["figure", *map(str, args), "-o", str(tmp_path / out)]) == 2
        assert message in capsys.readouterr().err.replace("\n", " ")

    refused(f"such as {bench}/cells/eid-P-A-0 (P>A, seed 0)", bench, "tsne")
    refused("none of its finished cells has a labeler", other, "tsne")
    refused("not a run folder", tmp_path / "nowhere", "tsne")
    refused(".png or .svg", tmp_path / "nowhere", "tsne", out="x.bmp")
    refused("--paper does not apply to the figure 'tsne'", bench, "tsne", "--paper")
    refused("--images does not apply to the figure 'cycles'", bench, "cycles", "--images", "99")
    refused("images", bench, "tsne", "--images", "2")
    assert not list(tmp_path.glob("x.*"))
