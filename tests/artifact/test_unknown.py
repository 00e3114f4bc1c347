"""When a model answers 'unknown': the score, its thresholds and what rejecting does, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ssdg.artifact.calibration import known_scores
from ssdg.errors import UserError
from ssdg.inference.rejection import Rejection, choose_thresholds, coverage_curve, rejection_report

SCORES = st.lists(st.floats(0, 30), min_size=1, max_size=300)


def logits_of(*probs: list[float]) -> torch.Tensor:
    """One network whose softmax gives these rows, and a shift of each without information."""
    return torch.tensor(probs, dtype=torch.float64).log()[None] + torch.arange(len(probs))[:, None]


def test_the_score_is_the_divergence_of_uniform_from_the_probabilities() -> None:
    even, sure = known_scores(logits_of([0.5, 0.5], [0.8, 0.2]))
    assert even == pytest.approx(0, abs=1e-12)
    assert sure == pytest.approx(0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2))  # Σ u log(u / p)


def test_scores_of_networks_are_averaged() -> None:
    first, second = logits_of([0.7, 0.2, 0.1]), logits_of([0.1, 0.1, 0.8])
    alone = known_scores(first) + known_scores(second)
    assert known_scores(torch.cat([first, second])) == pytest.approx(alone / 2)


def test_the_score_is_finite_at_extreme_logits_and_takes_broken_ones_for_unknown() -> None:
    extreme = torch.tensor([[[1e4, -1e4, 0.0], [math.nan, 0, 0], [math.inf, 0, 0]]])
    assert known_scores(extreme).tolist() == pytest.approx([1e4 - math.log(3), 0, 0])


def test_thresholds_by_hand() -> None:
    """Of 40 images with the scores 0.5, 1.5, ..., 5 % are 2 and 12 % are 4.8."""
    chosen = choose_thresholds(np.random.default_rng(0).permutation(40) + 0.5)
    assert chosen.images == 40
    assert chosen.threshold(0.05) == 2.5  # 0.5 and 1.5 lie below
    assert chosen.threshold(0.12) == 4.5
    assert chosen.threshold(0.055) == 2.5  # rounded down
    assert chosen.threshold(0.001) == 0.5  # nothing lies below
    assert chosen.threshold(0.99) == chosen.threshold(0.9999999999999) == 39.5


def test_thresholds_are_rounded_down() -> None:
    assert choose_thresholds(np.array([1 / 3])).threshold(0.5) == 0.33333


@given(SCORES, st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_no_more_held_out_images_are_lost_than_was_said(scores: list[float], share: float) -> None:
    known = np.array(scores)
    chosen = choose_thresholds(known)
    assert (known < chosen.threshold(share)).mean() <= share + 1e-9
    assert Rejection.model_validate_json(chosen.model_dump_json()) == chosen


@pytest.mark.parametrize("share", [0, 1, -0.1, 5, math.nan, math.inf])
def test_what_is_no_share(share: float) -> None:
    with pytest.raises(UserError, match=r"is out of range; give .* such as --reject 0.05"):
        choose_thresholds(np.ones(3)).threshold(share)


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": "guess"},
        {"images": 0},
        {"thresholds": [0.0] * 99},
        {"thresholds": [math.inf] * 100},
        {"thresholds": [1.0, *[0.0] * 99]},
    ],
)
def test_damaged_thresholds_are_refused(wrong: dict[str, Any]) -> None:
    good = choose_thresholds(np.ones(3)).model_dump()
    with pytest.raises(ValidationError):
        Rejection.model_validate({**good, **wrong})


def test_the_curve_by_hand() -> None:
    curve = coverage_curve(np.array([1.0, 4.0, 2.0, 3.0]), np.array([False, True, True, False]))
    assert curve.coverage == [25, 50, 75, 100]
    assert curve.accuracy == pytest.approx([100, 50, 200 / 3, 50])  # right, wrong, right, wrong
    assert curve.area == pytest.approx((0 + 50 + 100 / 3 + 50) / 4)


def test_equal_scores_are_accepted_together() -> None:
    curve = coverage_curve(np.array([2.0, 1.0, 1.0, 1.0]), np.array([True, True, False, False]))
    assert (curve.coverage, curve.accuracy) == ([25, 100], [100, 50])
    assert curve.area == pytest.approx(0.25 * 0 + 0.75 * 50)


@given(SCORES, st.randoms(use_true_random=False))
def test_the_area_lies_between_that_of_an_oracle_and_of_its_opposite(scores: list[float], random: Any) -> None:
    right = np.array([random.random() < 0.6 for _ in scores])
    area = coverage_curve(np.array(scores), right).area
    count = np.arange(len(right))
    best = coverage_curve(-count.astype(float), np.sort(right)[::-1]).area
    assert best - 1e-9 <= area <= coverage_curve(-count.astype(float), np.sort(right)).area + 1e-9


REJECTION = Rejection(images=7, thresholds=(0.0, *[2.0] * 99))


def test_the_report_by_hand() -> None:
    known, right = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, True])
    report = rejection_report(known, right, np.array([0.5, 1.0, 2.5]), REJECTION, 0.05)
    assert report | {"curve": None} == {
        "score": "kl-from-uniform",
        "share": 0.05,
        "threshold": 2.0,
        "held_out": 7,
        "accepted": 3,
        "coverage": 75.0,
        "accuracy": pytest.approx(200 / 3, abs=1e-4),
        "area": pytest.approx((0 + 0 + 100 / 3 + 25) / 4, abs=1e-4),
        "curve": None,
        "ood": {
            "images": 3,
            "rejected": 2,
            "precision": pytest.approx(200 / 3, abs=1e-4),  # 0.5 and 1.0 of no class, 1.0 of a class
            "recall": pytest.approx(200 / 3, abs=1e-4),
            "auroc": pytest.approx(100 * (4 + 3.5 + 2) / 12, abs=1e-4),  # pairs in which the stranger is below
        },
    }
    assert report["curve"]["coverage"] == [25, 50, 75, 100]


def test_a_report_of_nothing_accepted_and_nothing_rejected() -> None:
    none, right = np.array([1.0]), np.array([True])
    strict = rejection_report(none, right, np.array([]), REJECTION, 0.5)
    assert (strict["accepted"], strict["coverage"], strict["accuracy"]) == (0, 0.0, None)
    assert "ood" not in strict
    lax = rejection_report(none, right, np.array([1.0]), REJECTION, 0.001)
    assert lax["ood"] == {"images": 1, "rejected": 0, "precision": None, "recall": 0.0, "auroc": 50.0}
