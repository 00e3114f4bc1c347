"""The perturbation network of DDAIG."""

import pytest
import torch
import torch.nn.functional as F

from ssdg.models.styles import NORM_EPS, InstanceNorm, PerturbationNet


def net(width=8):
    torch.manual_seed(0)
    return PerturbationNet(width)


X = torch.rand(4, 3, 9, 7, generator=torch.Generator().manual_seed(1))


def test_instance_norm_is_torchs():
    maps = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(InstanceNorm()(maps), F.instance_norm(maps, eps=NORM_EPS))
    assert torch.autograd.gradcheck(InstanceNorm(), (maps,))


def test_shape_range_and_start_near_zero():
    out = net()(X)
    assert out.shape == X.shape
    assert 0 < out.abs().max() < 0.5
    perturbation = net()
    torch.nn.init.normal_(perturbation.last[-1].weight, std=100.0)
    assert perturbation(X).abs().max() <= 1


def test_every_weight_matters():
    perturbation = net()
    perturbation(X).square().sum().backward()
    assert all(p.grad.abs().max() > 0 for p in perturbation.parameters())


def test_images_are_treated_alone_and_alike_in_both_modes():
    perturbation = net()
    torch.testing.assert_close(perturbation(X)[1:2], perturbation(X[1:2]), atol=1e-6, rtol=1e-4)
    assert torch.equal(perturbation.train()(X), perturbation.eval()(X))
    assert not dict(perturbation.named_buffers())


@pytest.mark.parametrize("width", [4, 16])
def test_width_is_that_of_the_maps(width):
    """3x3: 27 w + 6 · 9 w²; 1x1: w² + 3 w + 3."""
    count = sum(p.numel() for p in net(width).parameters())
    assert count == 27 * width + 54 * width**2 + width**2 + 3 * width + 3


def test_flat_images_have_small_gradients():
    flat = torch.tensor([0.0, 0.3, 0.77]).view(3, 1, 1, 1).expand(3, 3, 32, 32)
    perturbation = net(32)
    (perturbation(flat) * torch.randn(3, 3, 32, 32)).mean((1, 2, 3)).sum().backward()
    assert all(p.grad.norm() < 1 for p in perturbation.parameters())
