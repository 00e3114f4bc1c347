"""Gradient reversal and the moving average of a network."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd.gradcheck import GradcheckError

from ssdg.errors import UserError
from ssdg.models.layers import EMA, reverse_gradient


@pytest.mark.parametrize("coefficient", [0.0, 0.3, 2.0])
def test_the_value_stays_and_the_gradient_turns(coefficient: float) -> None:
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    out = reverse_gradient(x, coefficient)
    assert torch.equal(out, x)
    (out * torch.tensor([1.0, 10.0, 100.0])).sum().backward()
    torch.testing.assert_close(x.grad, -coefficient * torch.tensor([1.0, 10.0, 100.0]))


def test_reversal_with_coefficient_minus_one_is_the_identity_to_gradcheck() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: reverse_gradient(v, -1.0).square(), x)
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(lambda v: reverse_gradient(v, 1.0).square(), x)


def test_reversal_turns_descent_of_the_features_only() -> None:
    """Features climb the loss that the discriminator descends."""
    features = torch.tensor([2.0], requires_grad=True)
    weight = torch.tensor([3.0], requires_grad=True)
    (weight * reverse_gradient(features, 0.5)).sum().backward()
    assert weight.grad is not None
    assert features.grad is not None
    assert weight.grad.item() == 2.0
    assert features.grad.item() == -1.5


def test_reversal_can_be_differentiated_twice() -> None:
    x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(reverse_gradient(x, 0.5) ** 3, x, create_graph=True)
    assert first.item() == -6.0  # -1/2 * 3 x²
    (second,) = torch.autograd.grad(first, x)
    # The derivative 3 y² is of y = reversed x: 6 y, turned by -1/2 once more.
    assert second.item() == 3.0


def small_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))


def test_the_average_starts_as_a_copy_that_takes_no_gradient() -> None:
    net = small_net()
    ema = EMA(net)
    assert all(torch.equal(a, b) for a, b in zip(ema.average.parameters(), net.parameters(), strict=True))
    assert not any(p.requires_grad for p in ema.parameters())
    assert all(p.requires_grad for p in net.parameters())
    with torch.no_grad():
        net[0].weight.add_(1)
    assert not torch.equal(ema.average[0].weight, net[0].weight)


def test_parameters_and_buffers_follow_by_hand() -> None:
    net = small_net()
    with torch.no_grad():
        net[0].weight.fill_(0.0)
    ema = EMA(net, decay=0.9)
    with torch.no_grad():
        net[0].weight.fill_(1.0)
        net[1].running_mean.fill_(10.0)
        net[1].num_batches_tracked.fill_(7)
    ema.update(net)
    torch.testing.assert_close(ema.average[0].weight, torch.full_like(net[0].weight, 0.1))
    torch.testing.assert_close(ema.average[1].running_mean, torch.full((2,), 1.0))
    assert ema.average[1].num_batches_tracked.item() == 7
    ema.update(net)
    torch.testing.assert_close(ema.average[0].weight, torch.full_like(net[0].weight, 0.19))


def test_a_decay_passed_to_update_counts_once() -> None:
    net = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(net.weight)
    ema = EMA(net, decay=1.0)
    nn.init.ones_(net.weight)
    ema.update(net)
    assert ema.average.weight.item() == 0.0
    ema.update(net, decay=0.75)
    assert ema.average.weight.item() == 0.25


def test_the_average_stays_in_evaluation_mode() -> None:
    ema = EMA(small_net())
    holder = nn.ModuleDict({"teacher": ema}).train()
    assert holder["teacher"].training
    assert not any(module.training for module in ema.average.modules())
    before = ema.average[1].running_mean.clone()
    ema(torch.randn(8, 1, 4, 4) + 5)
    assert torch.equal(ema.average[1].running_mean, before)


def test_the_average_is_saved_and_loaded() -> None:
    net = small_net()
    ema, other = EMA(net), EMA(small_net())
    other.load_state_dict(ema.state_dict())
    x = torch.randn(2, 1, 3, 3)
    assert torch.equal(other(x), ema(x))


def test_a_decay_out_of_range_is_refused() -> None:
    with pytest.raises(UserError, match=r"must be in \[0, 1\], not 1.5"):
        EMA(small_net(), decay=1.5)
