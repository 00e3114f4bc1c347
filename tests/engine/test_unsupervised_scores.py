"""Scores on unlabeled images: the formulas, which images they are of, and that looking changes nothing."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from builders import unlabeled_set
from runs import same_weights, short_settings, train_here
from ssdg.data.sets import Task, UnlabeledSet
from ssdg.engine import run as engine_run
from ssdg.engine import scores as unsupervised
from ssdg.engine import stages
from ssdg.engine.run import run
from ssdg.engine.scores import agreement, density, information, watched_images
from ssdg.engine.setup import open_run, with_other_targets
from ssdg.engine.sinks import epoch_values
from ssdg.machine import start_machine


def some_probs(n: int = 7, classes: int = 4, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (3 * torch.randn(n, classes, generator=generator, dtype=torch.float64)).softmax(1)


def plain_entropy(row: list[float]) -> float:
    return -sum(p * math.log(p) for p in row if p > 0)


def plain_information(rows: list[list[float]]) -> float:
    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    return plain_entropy(mean) - sum(map(plain_entropy, rows)) / len(rows)


def plain_density(rows: list[list[float]], temperature: float) -> float:
    """Neighbor by neighbor: the entropy of exp(cos / t) / sum over the others."""
    entropies = []
    for i, a in enumerate(rows):
        weights = []
        for j, b in enumerate(rows):
            if i != j:
                lengths = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(x * x for x in b))
                weights.append(math.exp(sum(x * y for x, y in zip(a, b, strict=True)) / lengths / temperature))
        entropies.append(plain_entropy([weight / sum(weights) for weight in weights]))
    return sum(entropies) / len(entropies)


def test_information_is_the_formula() -> None:
    probs = some_probs()
    assert information(probs) == pytest.approx(plain_information(probs.tolist()), abs=1e-12)


@pytest.mark.parametrize("temperature", [0.05, 0.5])
def test_density_is_the_formula(temperature: float) -> None:
    probs = some_probs()
    assert density(probs, temperature) == pytest.approx(plain_density(probs.tolist(), temperature), abs=1e-12)


def test_agreement_counts_images_where_all_networks_say_the_same() -> None:
    votes = torch.tensor([[0, 1, 2, 2], [0, 1, 2, 1], [0, 2, 2, 1]])
    logits = torch.nn.functional.one_hot(votes, 3).float()
    assert agreement(logits) == 50.0  # images 0 and 2 of four
    assert agreement(logits[:2]) == 75.0
    assert agreement(logits[:1]) is None


def test_information_by_hand() -> None:
    sure = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert information(sure) == pytest.approx(math.log(2))  # H(1/2, 1/2) - 0
    half = torch.tensor([[1.0, 0.0], [0.5, 0.5]])  # H(3/4, 1/4) - log(2) / 2
    assert information(half) == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4) - math.log(2) / 2)


def test_density_by_hand() -> None:
    """Three images, two alike and one at a right angle: cos 1 and 0, so weights e^(1/t) : 1 and 1 : 1."""
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    p = math.e / (math.e + 1)  # t = 1
    two = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    assert density(probs, 1.0) == pytest.approx((2 * two + math.log(2)) / 3)


def test_order_and_names_of_classes_do_not_matter_and_the_rows_do() -> None:
    probs = some_probs()
    images, classes = torch.tensor([3, 0, 6, 2, 5, 1, 4]), torch.tensor([2, 0, 3, 1])
    for score in (information, density):
        assert score(probs[images]) == pytest.approx(score(probs), abs=1e-12)
        assert score(probs[:, classes]) == pytest.approx(score(probs), abs=1e-12)
        assert score(probs[:5]) != pytest.approx(score(probs), abs=1e-3)
    assert density(probs, 0.05) != pytest.approx(density(probs, 0.1), abs=1e-3)


def test_bounds() -> None:
    """One answer for all has no information and the highest density; the docs warn of it."""
    alike = some_probs(1).expand(9, -1)
    assert information(alike) == pytest.approx(0, abs=1e-12)
    assert density(alike) == pytest.approx(math.log(8))
    for seed in range(20):
        probs = some_probs(9, 3, seed)
        assert 0 <= information(probs) <= math.log(3)
        assert 0 <= density(probs) <= math.log(8)


def test_extremes_are_finite() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0], [1e4, -1e4, 0.0]])
    probs = logits.softmax(1)
    assert information(probs) == pytest.approx(plain_entropy([2 / 3, 1 / 3]))
    assert math.isfinite(density(probs))
    assert agreement(torch.stack([logits, -logits])) == 0.0
    assert density(probs[:1]) is None


@pytest.mark.parametrize(
    "score", [information, density, lambda p: agreement(p[None])], ids=["information", "density", "agreement"]
)
def test_no_image_is_refused(score: Any) -> None:
    with pytest.raises(ValueError, match="at least one image"):
        score(torch.zeros(0, 3))


def test_logits_that_are_not_finite_score_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsupervised, "all_logits", lambda *_: torch.full((2, 3, 4), torch.nan))
    scores = unsupervised.unsupervised_scores(*[None] * 3)  # type: ignore[list-item]
    assert scores == {"agreement": None, "information": None, "density": None}


def test_which_images_depends_on_their_content_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsupervised, "MAX_IMAGES", 5)
    values = np.random.default_rng(0).permutation(200)[:20]
    whole = watched_images(Task(("a", "b"), None, {"all": unlabeled_set(values)}))  # type: ignore[arg-type]
    parts: dict[str, UnlabeledSet] = {"x": unlabeled_set(values[13:], 1), "y": unlabeled_set(values[:13][::-1], 2)}
    split = watched_images(Task(("a", "b"), None, parts))  # type: ignore[arg-type]
    assert whole is not None
    assert split is not None
    assert len(whole) == 5
    assert whole.fingerprint == split.fingerprint
    assert watched_images(Task(("a", "b"), None)) is None  # type: ignore[arg-type]


def test_epochs_and_the_end_are_scored(evolved: Path) -> None:
    result = json.loads((evolved / "result.json").read_text())
    assert [set(row["unsupervised"]) for row in result["epochs"]] == [{"agreement", "information", "density"}] * 4
    assert result["epochs"][-1]["unsupervised"] == result["unsupervised"]
    assert 0 <= result["unsupervised"]["agreement"] <= 100
    row = result["epochs"][0]
    figures = epoch_values({"event": "epoch", "key": "dcg", "time": 0.0, **row})
    assert figures["unsupervised/density"] == row["unsupervised"]["density"]


def test_scoring_changes_no_bit(world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_here(world, cache, tmp_path / "scored", "mcd")
    monkeypatch.setattr(engine_run, "watched_images", lambda task: None)
    result = train_here(world, cache, tmp_path / "blind", "mcd")
    assert "unsupervised" not in result
    assert "unsupervised" not in result["epochs"][0]
    assert same_weights(tmp_path / "scored", tmp_path / "blind")


def test_a_stage_scored_on_other_images_is_not_shared(world: Path, cache: Path, tmp_path: Path) -> None:
    """The labelers and what the product learns from may be equal; its recorded scores are not."""
    _, problem = open_run(short_settings("mcd", data=str(world)), cache, device="cpu")
    watched = watched_images(problem.task)
    assert watched is not None
    other = watched.take(np.arange(3))
    names = {stages.scored_data(problem, table) for table in (None, watched, other)}
    assert len(names) == 3


def test_methods_that_share_stages_over_targets_are_scored_in_the_end(
    world: Path, cache: Path, tmp_path: Path
) -> None:
    """A stage of source-only is one for all targets, whose unlabeled images differ: each run scores its own."""
    densities, targets = {}, ("sketch", "neon", "night")
    for target in targets:
        config, problem = open_run(short_settings("source-only", data=str(world), target=target), cache, device="cpu")
        problem = with_other_targets(config, problem, targets, cache)
        result = run(config, problem, tmp_path / target, start_machine("cpu"), stage_cache=tmp_path / "shelf")
        assert all("unsupervised" not in row for row in result["epochs"])
        assert result["unsupervised"]["agreement"] is None  # it has one network
        densities[target] = result["unsupervised"]["density"]
    assert len(list((tmp_path / "shelf").glob("*.safetensors"))) == 1
    assert len(set(densities.values())) == 3
    config, problem = open_run(short_settings("source-only", data=str(world), target="neon"), cache, device="cpu")
    alone = run(config, problem, tmp_path / "alone", start_machine("cpu"))
    assert alone["unsupervised"]["density"] == densities["neon"]


def test_other_truths_of_unlabeled_images_change_no_score(world: Path, cache: Path, tmp_path: Path) -> None:
    """The files of an unlabeled domain under other classes: the same images, the same scores."""
    moved = tmp_path / "world"
    shutil.copytree(world, moved)
    for name in ("sketch", "neon"):
        (moved / name / "bar").rename(moved / name / "kept")
        (moved / name / "disc").rename(moved / name / "bar")
        (moved / name / "kept").rename(moved / name / "disc")
    scores = [train_here(w, cache, tmp_path / str(n), "mcd")["unsupervised"] for n, w in enumerate((world, moved))]
    assert scores[0] == scores[1]
