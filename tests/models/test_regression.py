"""Softmax regression: the solution of scikit-learn, and of the equation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from ssdg.errors import UserError
from ssdg.models.regression import softmax_regression

NUM_CLASSES = 3
RNG = torch.Generator().manual_seed(0)
X = torch.randn(60, 5, dtype=torch.float64, generator=RNG)
Y = (X[:, :3] + torch.randn(60, 3, generator=RNG)).argmax(1)  # classes that overlap
SOFT = torch.randn(60, 3, dtype=torch.float64, generator=RNG).softmax(1)


def solved(x: Tensor, y: Tensor, *, c: float = 1.0, max_iter: int = 500, start: float = 0.0) -> tuple[Tensor, Tensor]:
    weight = torch.full((NUM_CLASSES, x.shape[1]), start, dtype=x.dtype)
    weight[0] += start  # not the same for all classes
    bias = torch.full((NUM_CLASSES,), start, dtype=x.dtype)
    w, b, _ = softmax_regression(x, y, weight, bias, c=c, max_iter=max_iter)
    return w, b


def plain_objective(x: Tensor, y: Tensor, w: Tensor, b: Tensor, c: float) -> float:
    """1/n sum_i -log p(y_i | x_i) + 1/(2 c n) sum_kj w_kj^2, term by term."""
    total = 0.0
    for i in range(len(x)):
        scores = [math.fsum((w[k] * x[i]).tolist()) + float(b[k]) for k in range(len(w))]
        log_sum = math.log(math.fsum(math.exp(score) for score in scores))
        total += log_sum - scores[int(y[i])]
    return total / len(x) + math.fsum(v * v for v in w.flatten().tolist()) / (2 * c * len(x))


@pytest.mark.parametrize("c", [0.1, 1.0, 10.0])
def test_the_coefficients_are_those_of_scikit_learn(c: float) -> None:
    reference = LogisticRegression(C=c, tol=1e-12, max_iter=100_000).fit(X.numpy(), Y.numpy())
    w, b = solved(X, Y, c=c)
    np.testing.assert_allclose(w.numpy(), reference.coef_, atol=3e-4)
    np.testing.assert_allclose(b.numpy(), reference.intercept_ - reference.intercept_.mean(), atol=3e-4)
    np.testing.assert_allclose((X @ w.T + b).softmax(1).numpy(), reference.predict_proba(X.numpy()), atol=1e-4)


@pytest.mark.parametrize("c", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("y", [Y, SOFT], ids=["hard", "soft"])
def test_the_gradient_vanishes_at_the_solution(c: float, y: Tensor) -> None:
    """dL/dw_k = 1/n sum_i (p_ik - y_ik) x_i + w_k / (c n), dL/db_k = 1/n sum_i (p_ik - y_ik)."""
    w, b = solved(X, y, c=c)
    by_w, by_b = torch.zeros_like(w), torch.zeros_like(b)
    for i in range(len(X)):
        powers = [math.exp(float(w[k] @ X[i] + b[k])) for k in range(NUM_CLASSES)]
        for k in range(NUM_CLASSES):
            target = float(y[i, k]) if y.ndim == 2 else float(y[i] == k)
            error = powers[k] / sum(powers) - target
            by_w[k] += error * X[i] / len(X)
            by_b[k] += error / len(X)
    by_w += w / (c * len(X))
    assert by_w.abs().max() < 1e-5
    assert by_b.abs().max() < 1e-5


def test_two_points_by_hand() -> None:
    """Points 1 and -1 of classes 0 and 1.

    By symmetry W = (w, -w) and b = 0, so the objective is log(1 + exp(-2w)) + w^2 / (2c). Its derivative
    w / c - 2 / (1 + exp(2w)) is 0 at w = ln(3) / 2 if c = ln 3.
    """
    x, y = torch.tensor([[1.0], [-1.0]], dtype=torch.float64), torch.tensor([0, 1])
    zeros = torch.zeros(2, 1, dtype=torch.float64)
    w, b, objective = softmax_regression(x, y, zeros, zeros[:, 0], c=math.log(3), max_iter=100)
    half = math.log(3) / 2
    torch.testing.assert_close(w.flatten(), torch.tensor([half, -half], dtype=torch.float64), atol=1e-5, rtol=0)
    torch.testing.assert_close(b, torch.zeros(2, dtype=torch.float64), atol=1e-6, rtol=0)
    assert objective == pytest.approx(math.log(4 / 3) + half / 4, abs=1e-9)  # w^2 / (2 ln 3) = w / 4


def test_the_objective_is_that_of_the_equation_and_no_neighbor_has_a_lower_one() -> None:
    zeros = torch.zeros(NUM_CLASSES, 5, dtype=torch.float64)
    w, b, objective = softmax_regression(X, Y, zeros, zeros[:, 0], c=2.0, max_iter=500)
    assert objective == pytest.approx(plain_objective(X, Y, w, b, 2.0), rel=1e-12)
    for seed in range(5):
        step = 0.01 * torch.randn(w.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        assert plain_objective(X, Y, w + step, b + step[:, 0], 2.0) > objective


def test_any_start_leads_to_the_same_solution() -> None:
    (w, b), (other_w, other_b) = solved(X, Y), solved(X, Y, start=1.5)
    torch.testing.assert_close(other_w, w, atol=3e-4, rtol=0)
    torch.testing.assert_close(other_b - other_b.mean(), b, atol=3e-4, rtol=0)


def test_the_solution_is_where_the_next_one_ends() -> None:
    w, b = solved(X, Y)
    again_w, again_b, _ = softmax_regression(X, Y, w, b, c=1.0, max_iter=500)
    torch.testing.assert_close(again_w, w, atol=3e-4, rtol=0)
    torch.testing.assert_close(again_b, b, atol=3e-4, rtol=0)


def test_a_common_shift_of_the_bias_has_no_effect() -> None:
    """It cancels in the softmax and is not penalized, so the solver keeps the one it started with."""
    zeros = torch.zeros(NUM_CLASSES, 5, dtype=torch.float64)
    w, b, objective = softmax_regression(X, Y, zeros, zeros[:, 0], c=1.0, max_iter=500)
    shifted_w, shifted_b, same = softmax_regression(X, Y, zeros, zeros[:, 0] + 7, c=1.0, max_iter=500)
    torch.testing.assert_close(shifted_w, w, atol=1e-6, rtol=0)
    torch.testing.assert_close(shifted_b, b + 7, atol=1e-6, rtol=0)
    assert same == pytest.approx(objective, abs=1e-12)


def test_hard_labels_are_soft_labels_of_one() -> None:
    hard, soft = solved(X, Y), solved(X, torch.nn.functional.one_hot(Y).double())
    for a, b in zip(hard, soft, strict=True):
        torch.testing.assert_close(a, b, atol=1e-8, rtol=0)


def test_twice_the_images_at_half_the_c_are_the_same_problem() -> None:
    once, twice = solved(X, Y, c=4.0), solved(torch.cat([X, X]), torch.cat([Y, Y]), c=2.0)
    for a, b in zip(once, twice, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=0)


def test_every_argument_has_an_effect() -> None:
    w, _ = solved(X, Y)
    assert not torch.allclose(solved(X, Y, c=2.0)[0], w, atol=1e-2)
    assert not torch.allclose(solved(X, Y, max_iter=1)[0], w, atol=1e-2)
    assert not torch.allclose(solved(X, Y.roll(1))[0], w, atol=1e-2)


def test_the_start_is_not_changed_and_the_solution_has_no_graph() -> None:
    weight = torch.nn.Parameter(torch.zeros(NUM_CLASSES, 5, dtype=torch.float64))
    bias = torch.nn.Parameter(torch.zeros(NUM_CLASSES, dtype=torch.float64))
    with torch.no_grad():  # as in a step of the probe
        w, b, _ = softmax_regression(X, Y, weight, bias, c=1.0, max_iter=5)
    assert not weight.any()
    assert weight.grad is None
    assert not any(value.requires_grad for value in (w, b))


def test_large_features_stay_finite() -> None:
    w, b = solved(1e4 * X, Y)
    assert w.isfinite().all()
    assert b.isfinite().all()


def test_no_image_at_all_is_an_error() -> None:
    with pytest.raises(UserError, match="at least one image"):
        solved(X[:0], Y[:0])
