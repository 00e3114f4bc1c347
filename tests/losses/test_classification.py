import math

import pytest
import torch

from ssdg.losses.classification import cross_entropy, cross_entropy_per_sample

LOGITS = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
HARD = torch.tensor([0, 2, 1, 1, 0])
SOFT = torch.rand(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).softmax(1)


def by_loops(logits, soft):
    """-sum_k y_k log(exp z_k / sum_j exp z_j) of every sample."""
    losses = []
    for z, y in zip(logits.tolist(), soft.tolist(), strict=True):
        total = sum(math.exp(v) for v in z)
        losses.append(-sum(y_k * math.log(math.exp(z_k) / total) for z_k, y_k in zip(z, y, strict=True)))
    return losses


@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
def test_equals_the_equation(y):
    soft = y if y.ndim == 2 else torch.eye(3, dtype=torch.float64)[y]
    expected = by_loops(LOGITS, soft)
    assert cross_entropy_per_sample(LOGITS, y).tolist() == pytest.approx(expected, rel=1e-12)
    assert cross_entropy(LOGITS, y).item() == pytest.approx(sum(expected) / 5, rel=1e-12)


def test_by_hand():
    logits = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64)  # p = (1/4, 3/4)
    assert cross_entropy(logits, torch.tensor([1])).item() == pytest.approx(math.log(4 / 3))
    half = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    assert cross_entropy(logits, half).item() == pytest.approx((math.log(4) + math.log(4 / 3)) / 2)


@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
def test_a_shift_of_all_logits_changes_nothing(y):
    torch.testing.assert_close(cross_entropy_per_sample(LOGITS + 7, y), cross_entropy_per_sample(LOGITS, y))


def test_both_arguments_matter():
    assert cross_entropy(LOGITS, HARD) != cross_entropy(LOGITS, (HARD + 1) % 3)
    assert cross_entropy(LOGITS, HARD) != cross_entropy(2 * LOGITS, HARD)


@pytest.mark.parametrize("y", [torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [0.5, 0.5]])], ids=["hard", "soft"])
def test_extreme_logits(y):
    logits = torch.tensor([[-1e4, 1e4], [1e4, -1e4]], requires_grad=True)
    each = cross_entropy_per_sample(logits, y)
    assert each.tolist() == [2e4, 2e4 if y.ndim == 1 else 1e4]
    cross_entropy(logits, y).backward()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("loss", [cross_entropy, cross_entropy_per_sample])
def test_empty_batch_is_refused(loss):
    with pytest.raises(ValueError, match=f"{loss.__name__} needs at least one sample"):
        loss(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
