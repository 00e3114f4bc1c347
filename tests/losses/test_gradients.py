"""Gradient surgery against loops over components."""

import pytest
import torch
from torch.autograd import gradcheck

from ssdg.losses.gradients import agreed_or_random, agreed_sum, signs_agree

GRADS = torch.randn(3, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
NOISE = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def agree(column):
    return all(v > 0 for v in column) or all(v < 0 for v in column)


def test_equal_the_two_strategies():
    """Mansilla et al. 2021: agreeing components are summed; others are zero, or noise of the same magnitude."""
    columns = GRADS.T.tolist()
    total = [sum(c) if agree(c) else 0.0 for c in columns]
    agreed = [abs(sum(c)) for c in columns if agree(c)]
    assert 3 < len(agreed) < 37
    assert signs_agree(GRADS).tolist() == [agree(c) for c in columns]
    assert agreed_sum(GRADS).tolist() == pytest.approx(total, rel=1e-12)
    scale = sum(agreed) / len(agreed)
    filled = [sum(c) if agree(c) else scale * n for c, n in zip(columns, NOISE.tolist(), strict=True)]
    assert agreed_or_random(GRADS, NOISE).tolist() == pytest.approx(filled, rel=1e-12)


def test_by_hand():
    grads = torch.tensor([[1.0, 2.0, -1.0, 0.0], [3.0, -2.0, -1.0, 5.0]])
    assert agreed_sum(grads).tolist() == [4.0, 0.0, -2.0, 0.0]  # zero agrees with nothing
    # mean of 4 and 2 is 3
    assert agreed_or_random(grads, torch.tensor([9.0, 1.0, 9.0, -2.0])).tolist() == [4.0, 3.0, -2.0, -6.0]


def test_one_group_or_equal_groups_keep_everything():
    assert torch.equal(agreed_sum(GRADS[:1]), GRADS[0])
    torch.testing.assert_close(agreed_sum(GRADS[:1].expand(4, -1)), 4 * GRADS[0])
    assert torch.equal(agreed_or_random(GRADS[:1], NOISE), GRADS[0])


def test_order_of_groups_and_positive_scaling():
    torch.testing.assert_close(agreed_sum(GRADS.flip(0)), agreed_sum(GRADS))
    torch.testing.assert_close(agreed_or_random(2 * GRADS, NOISE), 2 * agreed_or_random(GRADS, NOISE))
    assert torch.equal(agreed_sum(-GRADS), -agreed_sum(GRADS))


def test_full_conflict_stops_all():
    against = torch.stack([GRADS[0], -GRADS[0]])
    assert not agreed_sum(against).any()
    assert not agreed_or_random(against, NOISE).any()


def test_every_argument_matters():
    assert not torch.equal(agreed_or_random(GRADS, NOISE), agreed_or_random(GRADS, NOISE.flip(0)))
    assert not torch.equal(agreed_or_random(GRADS, NOISE), agreed_sum(GRADS))
    assert not torch.equal(agreed_sum(GRADS), agreed_sum(GRADS.abs()))


def test_extremes_and_derivatives():
    grads = torch.tensor([[1e4, -1e4, 1e-30], [1e4, 1e4, 1e-30]], requires_grad=True)
    value = agreed_or_random(grads, torch.ones(3))
    value.sum().backward()
    assert value.isfinite().all()
    assert grads.grad.isfinite().all()
    away = GRADS.clone().requires_grad_()
    assert gradcheck(agreed_sum, away)
    assert gradcheck(lambda g: agreed_or_random(g, NOISE), away)


@pytest.mark.parametrize("surgery", [signs_agree, agreed_sum, lambda g: agreed_or_random(g, torch.zeros(3))])
def test_no_groups_are_refused(surgery):
    with pytest.raises(ValueError, match="signs_agree needs at least one sample"):
        surgery(torch.zeros(0, 3))
