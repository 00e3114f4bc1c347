import math

import pytest
import torch
from torch.autograd import gradcheck

from ssdg.losses.adversarial import (
    boundary_loss,
    domain_loss,
    entropy_weights,
    multilinear,
    ramp,
    random_multilinear,
    unknown_logit,
)

RNG = torch.Generator().manual_seed(0)
L, U = torch.randn(4, dtype=torch.float64, generator=RNG), torch.randn(3, dtype=torch.float64, generator=RNG)
W_L, W_U = (
    1 + torch.rand(4, dtype=torch.float64, generator=RNG),
    1 + torch.rand(3, dtype=torch.float64, generator=RNG),
)
F = torch.randn(5, 4, dtype=torch.float64, generator=RNG)
LOGITS = torch.randn(5, 3, dtype=torch.float64, generator=RNG)
G = LOGITS.softmax(1)
R_F, R_G = (torch.randn(n, 6, dtype=torch.float64, generator=RNG) for n in (4, 3))
LOG_2 = math.log(2)


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def test_ramp_by_hand():
    assert ramp(0.0) == 0
    assert ramp(math.log(3) / 10) == pytest.approx(0.5)  # 2 / (1 + 1/3) - 1
    assert ramp(0.5, gamma=2 * math.log(3)) == pytest.approx(0.5)
    assert ramp(1.0) == pytest.approx(1, abs=1e-4)


def test_ramp_equals_the_form_of_cdan_and_grows():
    """Long et al. 2018 write (1 - exp(-δp)) / (1 + exp(-δp))."""
    values = [ramp(i / 10) for i in range(11)]
    assert values == pytest.approx([(1 - math.exp(-i)) / (1 + math.exp(-i)) for i in range(11)])
    assert values == sorted(values)
    assert ramp(0.5, 5.0) != ramp(0.5, 10.0)
    assert ramp(1.0, 1e4) == 1


def test_domain_loss_equals_the_equation():
    """Ganin et al. 2016: the mean logistic loss of one domain plus that of the other; Long et al. 2018: weights."""
    plain = (
        sum(-math.log(sigmoid(z)) for z in L.tolist()) / 4 + sum(-math.log(1 - sigmoid(z)) for z in U.tolist()) / 3
    )
    weighted = 0.0
    for z, w in zip(L.tolist(), W_L.tolist(), strict=True):
        weighted -= w * math.log(sigmoid(z)) / 4
    for z, w in zip(U.tolist(), W_U.tolist(), strict=True):
        weighted -= w * math.log(1 - sigmoid(z)) / 3
    assert domain_loss(L, U).item() == pytest.approx(plain, rel=1e-12)
    assert domain_loss(L, U, W_L, W_U).item() == pytest.approx(weighted, rel=1e-12)


def test_domain_loss_by_hand():
    log_3 = torch.tensor([math.log(3)])  # D = 3/4
    assert domain_loss(log_3, log_3).item() == pytest.approx(math.log(4 / 3) + math.log(4))
    two = torch.tensor([2.0])
    assert domain_loss(log_3, log_3, two, None).item() == pytest.approx(2 * math.log(4 / 3) + math.log(4))
    assert domain_loss(log_3, log_3, None, two).item() == pytest.approx(math.log(4 / 3) + 2 * math.log(4))


def test_domain_loss_treats_domains_alike_whatever_their_sizes():
    assert domain_loss(torch.zeros(5), torch.zeros(2)).item() == pytest.approx(2 * LOG_2)
    torch.testing.assert_close(domain_loss(-U, -L), domain_loss(L, U))
    torch.testing.assert_close(domain_loss(L.repeat(3), U), domain_loss(L, U))
    torch.testing.assert_close(domain_loss(L, U, torch.ones(4), torch.ones(3)), domain_loss(L, U))


def test_all_arguments_of_domain_loss_matter():
    cases = [(L, U), (L + 1, U), (L, U + 1), (L, U, W_L), (L, U, None, W_U), (L, U, W_L, W_U)]
    assert len({domain_loss(*args).item() for args in cases}) == 6


def test_multilinear_equals_the_equation():
    """All products of an entry of f and an entry of g, in a fixed order."""
    expected = [[g * f for g in G[i].tolist() for f in F[i].tolist()] for i in range(5)]
    torch.testing.assert_close(multilinear(F, G), torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0)


def test_multilinear_by_hand():
    out = multilinear(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.25, 0.75]]))
    assert out.tolist() == [[0.25, 0.5, 0.75, 1.5]]


def test_inner_products_of_multilinear_are_products_of_inner_products():
    torch.testing.assert_close(multilinear(F, G) @ multilinear(F, G).T, (F @ F.T) * (G @ G.T))


def test_random_multilinear_equals_the_equation():
    """T(f, g) = (R_f f ⊙ R_g g) / sqrt(d)."""
    for i in range(5):
        for j in range(6):
            f = sum(R_F[k, j].item() * F[i, k].item() for k in range(4))
            g = sum(R_G[k, j].item() * G[i, k].item() for k in range(3))
            got = random_multilinear(F, G, R_F, R_G)[i, j].item()
            assert got == pytest.approx(f * g / math.sqrt(6), rel=1e-12)


def test_random_multilinear_by_hand():
    map_f, map_g = torch.tensor([[1.0, -1.0, 1.0, 1.0]]), torch.tensor([[1.0, 1.0, 1.0, -1.0], [1.0, 0, -1.0, 0]])
    out = random_multilinear(torch.tensor([[4.0]]), torch.tensor([[0.75, 0.25]]), map_f, map_g)
    assert out.tolist() == [[2.0, -1.5, 1.0, -1.5]]  # 4 (1, -1, 1, 1) ⊙ (1, 3/4, 1/2, -3/4) / 2


def test_random_multilinear_keeps_inner_products_in_expectation():
    rng = torch.Generator().manual_seed(3)
    maps = (torch.randn(n, 200_000, dtype=torch.float64, generator=rng) for n in (4, 3))
    out = random_multilinear(F, G, *maps)
    torch.testing.assert_close(out @ out.T, (F @ F.T) * (G @ G.T), rtol=0.05, atol=0.05)


def test_all_arguments_of_the_maps_matter():
    cases = [
        (F, G, R_F, R_G),
        (F + 1, G, R_F, R_G),
        (F, G.flip(1), R_F, R_G),
        (F, G, -R_F, R_G),
        (F, G, R_F, R_G + 1),
    ]
    assert len({random_multilinear(*args).sum().item() for args in cases}) == 5
    assert len({multilinear(*args)[0, 0].item() for args in ((F, G), (F + 1, G), (F, G.flip(1)))}) == 3


def plain_weights(rows):
    """1 + exp(-H), then divided by the mean."""
    weights = [1 + math.exp(sum(p * math.log(p) for p in row)) for row in rows]
    return [w * len(weights) / sum(weights) for w in weights]


def test_entropy_weights_equal_the_equation():
    assert entropy_weights(G).tolist() == pytest.approx(plain_weights(G.tolist()), rel=1e-12)


def test_entropy_weights_by_hand():
    probs = torch.tensor([[1.0, 0.0], [0.5, 0.5]])  # 1 + exp(0) = 2, 1 + exp(-log 2) = 3/2; their mean is 7/4
    assert entropy_weights(probs).tolist() == pytest.approx([8 / 7, 6 / 7])


def test_entropy_weights_have_mean_one_and_ignore_the_order_of_classes():
    assert entropy_weights(G).mean().item() == pytest.approx(1)
    torch.testing.assert_close(entropy_weights(G.flip(1)), entropy_weights(G))
    torch.testing.assert_close(entropy_weights(G[:1].expand(4, 3)), torch.ones(4, dtype=torch.float64))
    assert not torch.equal(entropy_weights((2 * LOGITS).softmax(1)), entropy_weights(G))


def test_entropy_weights_pull_towards_certainty():
    """Through the weights alone, a sample's gradient is that of its own 1 + exp(-H), divided by a constant."""
    logits = LOGITS.clone().requires_grad_()
    probs = logits.softmax(1)
    raw = 1 + (probs * probs.log()).sum(1).exp()
    (expected,) = torch.autograd.grad((raw / raw.mean().item()).sum(), logits, retain_graph=True)
    (got,) = torch.autograd.grad(entropy_weights(probs).sum(), logits)
    torch.testing.assert_close(got, expected)
    assert got.abs().sum() > 0


def test_boundary_loss_equals_the_equation():
    """Saito et al. 2018: -t log p - (1 - t) log(1 - p), p the probability of the last class."""
    for t in (0.5, 0.2):
        losses = []
        for z in LOGITS.tolist():
            p = math.exp(z[2]) / sum(math.exp(v) for v in z)
            losses.append(-t * math.log(p) - (1 - t) * math.log(1 - p))
        assert boundary_loss(LOGITS, t).item() == pytest.approx(sum(losses) / 5, rel=1e-12)


def test_boundary_loss_by_hand():
    logits = torch.tensor([[1.0, 1.0, 6.0]]).log()  # p = 3/4
    assert boundary_loss(logits).item() == pytest.approx((math.log(4 / 3) + math.log(4)) / 2)
    assert boundary_loss(logits, 0.75).item() == pytest.approx(0.75 * math.log(4 / 3) + 0.25 * math.log(4))
    assert unknown_logit(logits).sigmoid().item() == pytest.approx(0.75)


def test_unknown_logit_is_that_of_the_last_probability():
    torch.testing.assert_close(unknown_logit(LOGITS).sigmoid(), G[:, -1])


def test_boundary_loss_is_least_at_the_boundary_and_ignores_shifts_and_the_order_of_known_classes():
    logits = torch.tensor([[0.0, 0.0, math.log(2)]], dtype=torch.float64, requires_grad=True)  # p = 1/2
    value = boundary_loss(logits)
    (gradient,) = torch.autograd.grad(value, logits)
    assert value.item() == pytest.approx(LOG_2)
    assert gradient.abs().max() < 1e-12
    torch.testing.assert_close(boundary_loss(LOGITS[:, [1, 0, 2]] + 9), boundary_loss(LOGITS))
    assert boundary_loss(LOGITS) > LOG_2


def test_all_arguments_of_boundary_loss_matter():
    assert len({boundary_loss(*args).item() for args in ((LOGITS, 0.5), (LOGITS, 0.6), (2 * LOGITS, 0.5))}) == 3


EXTREME = torch.tensor([[1e4, -1e4, 0.0], [-1e4, 1e4, -1e4], [-1e4, -1e4, 1e4], [1e4, 1e4, 1e4]])


@pytest.mark.parametrize(
    "loss",
    [
        boundary_loss,
        lambda z: domain_loss(z[:, 0], z[:, 1]),
        lambda z: domain_loss(z[:, 0], z[:, 1], z[:, 2].sigmoid(), z[:, 2].sigmoid()),
        lambda z: (entropy_weights(z.softmax(1)) * z[:, 0]).sum(),
        lambda z: multilinear(z, z.softmax(1)).sum(),
        lambda z: random_multilinear(z, z.softmax(1), torch.ones(3, 2), torch.ones(3, 2)).sum(),
    ],
    ids=["boundary", "domain", "weighted domain", "weights", "multilinear", "random"],
)
def test_extreme_logits_give_finite_values_and_gradients(loss):
    logits = EXTREME.clone().requires_grad_()
    value = loss(logits)
    value.backward()
    assert value.isfinite()
    assert logits.grad.isfinite().all()


def test_extreme_logits_by_hand():
    assert domain_loss(torch.tensor([-1e4]), torch.tensor([1e4])) == 2e4
    assert boundary_loss(torch.tensor([[-1e4, 1e4]])) == 1e4  # -(log 1 + log exp(-2e4)) / 2


def test_gradients():
    logits, features = LOGITS.clone().requires_grad_(), F.clone().requires_grad_()
    assert gradcheck(boundary_loss, logits)
    assert gradcheck(domain_loss, (L.clone().requires_grad_(), U.clone().requires_grad_(), W_L, W_U))
    assert gradcheck(lambda f, z: multilinear(f, z.softmax(1)), (features, logits))
    assert gradcheck(lambda f, z: random_multilinear(f, z.softmax(1), R_F, R_G), (features, logits))


NONE, NO_ROWS = torch.zeros(0), torch.zeros(0, 3)


@pytest.mark.parametrize(
    ("loss", "args"),
    [
        (domain_loss, (NONE, L)),
        (domain_loss, (L, NONE)),
        (multilinear, (NO_ROWS, NO_ROWS)),
        (random_multilinear, (NO_ROWS, NO_ROWS, torch.ones(3, 2), torch.ones(3, 2))),
        (entropy_weights, (NO_ROWS,)),
        (boundary_loss, (NO_ROWS,)),
    ],
)
def test_empty_batch_is_refused(loss, args):
    with pytest.raises(ValueError, match=f"{loss.__name__} needs at least one sample"):
        loss(*args)
