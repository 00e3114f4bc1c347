"""The temperature against a plain grid, values by hand, what it must never change, and sets that have none."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ssdg.artifact.calibration import (
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    Calibration,
    calibrate,
    calibrated_probs,
    choose_temperature,
    ece,
    mean_log_probs,
    nll,
)


def plain_nll(probs: list[list[float]], y: list[int], temperature: float) -> float:
    """Mean of -log(p_y^(1/T) / sum_k p_k^(1/T)), image by image."""
    total = 0.0
    for row, label in zip(probs, y, strict=True):
        powers = [p ** (1 / temperature) for p in row]
        total -= math.log(powers[label] / sum(powers))
    return total / len(y)


def drawn(seed: int, n: int = 400, classes: int = 4, scale: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels are drawn from softmax(z) and the logits are scale z: too sure by the factor `scale`."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, classes))
    probs = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    y = np.array([rng.choice(classes, p=row) for row in probs])
    scaled = scale * z
    return scaled - np.log(np.exp(scaled).sum(1, keepdims=True)), y


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_the_temperature_is_that_of_a_plain_grid(scale: float) -> None:
    log_probs, y = drawn(0, n=120, scale=scale)
    grid = np.exp(np.linspace(math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE), 2001))
    losses = [plain_nll(np.exp(log_probs).tolist(), y.tolist(), t) for t in grid]
    temperature = choose_temperature(log_probs, y)
    assert temperature is not None
    assert plain_nll(np.exp(log_probs).tolist(), y.tolist(), temperature) <= min(losses) + 1e-12
    assert math.log(temperature) == pytest.approx(math.log(grid[int(np.argmin(losses))]), abs=0.004)


def test_by_hand() -> None:
    """Odds of 9 : 1, right three times of four. q is right with 3/4 where 9^(1/T) = 3, so T = 2."""
    log_probs = np.log(np.array([[0.9, 0.1]] * 12))
    y = np.array([0, 0, 0, 1] * 3)
    assert choose_temperature(log_probs, y) == pytest.approx(2.0, abs=1e-4)
    assert nll(log_probs, y, 2.0) == pytest.approx(-(3 * math.log(0.75) + math.log(0.25)) / 4)
    assert ece(log_probs, y) == pytest.approx(0.9 - 0.75)
    assert ece(log_probs, y, 2.0) == pytest.approx(0.0, abs=1e-12)
    two = ece(np.log(np.array([[0.9, 0.1], [0.6, 0.4]])), np.array([0, 1]))
    assert two == pytest.approx((0.1 + 0.6) / 2)  # a bin each: |1 - 0.9| and |0 - 0.6|


def test_a_calibrated_set_needs_no_temperature() -> None:
    assert choose_temperature(*drawn(1, n=20_000, scale=1.0)) == pytest.approx(1.0, abs=0.03)
    assert choose_temperature(*drawn(1, n=20_000, scale=3.0)) == pytest.approx(3.0, rel=0.03)


def test_the_likeliest_class_never_changes() -> None:
    logits = torch.randn(2, 500, 7, generator=torch.Generator().manual_seed(0)) * 4
    plain = logits.softmax(-1).mean(0)
    for temperature in (MIN_TEMPERATURE, 0.7, 1.0, MAX_TEMPERATURE, None):
        probs = calibrated_probs(logits, temperature)
        assert torch.equal(probs.argmax(1), plain.argmax(1))
        assert torch.allclose(probs.sum(1), torch.ones(500, dtype=torch.float64))
    assert torch.allclose(calibrated_probs(logits, None).float(), plain, atol=1e-6)
    assert torch.allclose(calibrated_probs(logits, 2.0), (plain.double().sqrt() / plain.double().sqrt().sum(1, True)))


def test_a_near_tie_keeps_its_order_at_the_highest_temperature() -> None:
    logits = torch.tensor([[[0.0, 1e-7, -3.0]]])
    assert calibrated_probs(logits, MAX_TEMPERATURE).argmax() == 1


def test_extremes_stay_finite() -> None:
    logits = torch.tensor([[[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0]]])
    assert torch.isfinite(mean_log_probs(logits)).all()
    calibration = calibrate(logits.repeat(1, 6, 1), np.array([1, 1] * 6))  # half are right, half as wrong as can be
    assert calibration is not None
    assert calibration.temperature == pytest.approx(MAX_TEMPERATURE, rel=1e-4)
    assert math.isfinite(calibration.nll.before)
    assert calibration.nll.after < calibration.nll.before


def test_a_model_that_says_nothing_keeps_its_temperature() -> None:
    uniform = np.log(np.full((10, 4), 0.25))
    assert choose_temperature(uniform, np.array([0, 1, 2, 3, 3] * 2)) == 1.0


def test_sets_that_ask_for_no_temperature() -> None:
    assert choose_temperature(np.zeros((0, 3)), np.zeros(0, np.int64)) is None
    assert calibrate(torch.zeros(2, 0, 3), np.zeros(0, np.int64)) is None
    assert calibrate(torch.full((1, 2, 3), math.nan), np.array([0, 1])) is None
    right = calibrate(torch.tensor([[[2.0, 0.0], [0.0, 1.0]]]).repeat(1, 50, 1), np.array([0, 1] * 50))
    assert right is not None
    assert right.temperature is None  # the likelihood would take it to the bound: sure of everything
    assert right.nll.before == right.nll.after
    assert right.images == 100
    few = calibrate(torch.tensor([[[2.0, 0.0], [0.0, 1.0]]]), np.array([0, 0]))
    assert few is not None
    assert few.temperature is None


def test_held_out_figures_get_better() -> None:
    log_probs, y = drawn(2, n=3000, scale=4.0)
    calibration = calibrate(torch.from_numpy(log_probs)[None], y)
    assert calibration is not None
    assert calibration.images == 3000
    assert calibration.nll.after < calibration.nll.before
    assert calibration.ece.after < 0.03 < 0.1 < calibration.ece.before


@pytest.mark.parametrize("wrong", [{"temperature": 0}, {"temperature": math.inf}, {"temperature": -1}, {"images": 0}])
def test_what_no_calibration_says(wrong: dict[str, float]) -> None:
    good = {"temperature": 1.5, "images": 3, "nll": {"before": 1, "after": 1}, "ece": {"before": 0, "after": 0}}
    assert Calibration.model_validate(good).temperature == 1.5
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Calibration.model_validate({**good, **wrong})
