import math

import pytest
import torch
from torch.autograd import gradcheck

from ssdg.losses.information import gaussian_nll, mutual_information_upper_bound, supervised_contrastive_loss

MEAN, LOG_VAR, Z = torch.randn(3, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 0, 2, 1, 0])  # class 2 has one sample


def log_normal(z, mean, log_var):
    """The logarithm of the density of independent Gaussians."""
    return sum(
        -0.5 * math.log(2 * math.pi * math.exp(v)) - (a - m) ** 2 / (2 * math.exp(v))
        for a, m, v in zip(z.tolist(), mean.tolist(), log_var.tolist(), strict=True)
    )


def test_likelihood_equals_the_density():
    expected = -sum(log_normal(Z[i], MEAN[i], LOG_VAR[i]) for i in range(6)) / 6 / 4
    assert gaussian_nll(MEAN, LOG_VAR, Z).item() == pytest.approx(expected, rel=1e-12)


def test_the_bound_equals_the_equation_over_all_pairs():
    """Cheng et al. 2020: E of log q over matched pairs, minus E over all pairs."""
    matched = sum(log_normal(Z[i], MEAN[i], LOG_VAR[i]) for i in range(6)) / 6
    all_pairs = sum(log_normal(Z[j], MEAN[i], LOG_VAR[i]) for i in range(6) for j in range(6)) / 36
    assert mutual_information_upper_bound(MEAN, LOG_VAR, Z).item() == pytest.approx(matched - all_pairs, rel=1e-12)


def test_contrast_equals_the_equation():
    """Khosla et al. 2020, Eq. 2, for anchors that have positives."""
    unit = [[v / math.sqrt(sum(w * w for w in row)) for v in row] for row in Z.tolist()]

    def similar(i, j):
        return math.exp(sum(a * b for a, b in zip(unit[i], unit[j], strict=True)) / 0.5)

    losses = []
    for i in range(6):
        positives = [p for p in range(6) if p != i and Y[p] == Y[i]]
        others = sum(similar(i, a) for a in range(6) if a != i)
        if positives:
            losses.append(-sum(math.log(similar(i, p) / others) for p in positives) / len(positives))
    assert len(losses) == 5
    assert supervised_contrastive_loss(Z, Y, 0.5).item() == pytest.approx(sum(losses) / 5, rel=1e-12)


def test_by_hand():
    one = torch.tensor([[0.0], [2.0]])
    zero = torch.zeros(2, 1)
    # squares 0 and 4, halved and averaged, plus log 2π / 2
    assert gaussian_nll(zero, zero, one).item() == pytest.approx(1 + 0.5 * math.log(2 * math.pi))
    # q centered on its own sample: log q is 0 of its own pair and -2 of the other, so 0 - (0 - 2) / 2
    assert mutual_information_upper_bound(one, zero, one).item() == pytest.approx(1.0)
    # two classes at right angles: positives have cosine 1, the two others 0
    pairs = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    expected = -math.log(math.e / (math.e + 2))
    assert supervised_contrastive_loss(pairs, torch.tensor([0, 0, 1, 1]), 1.0).item() == pytest.approx(expected)


def test_a_conditional_that_knows_nothing_bounds_by_zero():
    same = MEAN[:1].expand(6, 4)
    assert mutual_information_upper_bound(same, torch.zeros(6, 4), Z).item() == pytest.approx(0, abs=1e-12)
    assert mutual_information_upper_bound(Z, torch.zeros(6, 4), Z) > 0


def test_the_bound_of_gaussians_is_above_their_information():
    """z' = z + noise of variance s²: I = D/2 log(1 + 1/s²)."""
    z = torch.randn(20000, 2, generator=torch.Generator().manual_seed(1))
    noisy = z + 0.5 * torch.randn(20000, 2, generator=torch.Generator().manual_seed(2))
    bound = mutual_information_upper_bound(z, torch.full_like(z, math.log(0.25)), noisy).item()
    assert math.log(1 + 4) < bound == pytest.approx(2 * 4.0, rel=0.05)  # per dimension Var z / s² = 4


def test_likelihood_is_least_at_the_samples_own_mean():
    assert gaussian_nll(Z, LOG_VAR, Z) < gaussian_nll(Z + 0.1, LOG_VAR, Z)


def test_contrast_ignores_lengths_order_and_names_of_classes():
    value = supervised_contrastive_loss(Z, Y, 0.3)
    torch.testing.assert_close(supervised_contrastive_loss(Z * torch.rand(6, 1).add(0.5), Y, 0.3), value)
    torch.testing.assert_close(supervised_contrastive_loss(Z.flip(0), 7 - Y.flip(0), 0.3), value)
    assert supervised_contrastive_loss(Z[:2], Y[:2], 0.3) == 0  # no sample has a positive
    assert supervised_contrastive_loss(Z[:1], Y[:1], 0.3) == 0


@pytest.mark.parametrize("loss", [gaussian_nll, mutual_information_upper_bound])
def test_every_argument_of_the_bounds_matters(loss):
    values = [loss(MEAN, LOG_VAR, Z), loss(2 * MEAN, LOG_VAR, Z), loss(MEAN, LOG_VAR + 1, Z), loss(MEAN, LOG_VAR, -Z)]
    assert len({v.item() for v in values}) == 4


def test_every_argument_of_the_contrast_matters():
    cases = [(Z, Y, 0.3), (Z.abs(), Y, 0.3), (Z, Y.roll(1), 0.3), (Z, Y, 0.6)]
    assert len({supervised_contrastive_loss(*args).item() for args in cases}) == 4


@pytest.mark.parametrize(
    "loss",
    [
        lambda z: gaussian_nll(z, z.tanh(), z.flip(0)),
        lambda z: mutual_information_upper_bound(z, z.tanh(), z.flip(0)),
        lambda z: supervised_contrastive_loss(z, torch.tensor([0, 1, 0]), 0.07),
    ],
    ids=["likelihood", "bound", "contrast"],
)
@pytest.mark.parametrize("size", [1e4, 0.0])
def test_extremes_give_finite_values_and_gradients(loss, size):
    z = torch.tensor([[size, -size], [-size, size], [size, size]], requires_grad=True)
    value = loss(z)
    value.backward()
    assert value.isfinite()
    assert z.grad.isfinite().all()
    assert z.grad.abs().max() < 1e6


def test_gradients():
    inputs = [t.clone().requires_grad_() for t in (MEAN, LOG_VAR, Z)]
    assert gradcheck(gaussian_nll, inputs)
    assert gradcheck(mutual_information_upper_bound, inputs)
    assert gradcheck(lambda z: supervised_contrastive_loss(z, Y, 0.3), inputs[2])


@pytest.mark.parametrize(
    "loss", [gaussian_nll, mutual_information_upper_bound, lambda z, *_: supervised_contrastive_loss(z, z, 1.0)]
)
def test_empty_batch_is_refused(loss):
    nothing = torch.zeros(0, 3)
    with pytest.raises(ValueError, match="needs at least one sample"):
        loss(nothing, nothing, nothing)
