"""The style-complement module, branch by branch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ssdg.errors import UserError
from ssdg.models.styles import KERNELS, StyleComplement

X = torch.rand(2, 3, 20, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def module(**given: float) -> StyleComplement:
    torch.manual_seed(0)
    return StyleComplement(**given).double()


def test_equals_convolution_style_and_transposed_convolution() -> None:
    """With scales and shifts equal over the image; positions filtered one by one for the smallest kernel."""
    made = module(strength=0.7)
    with torch.no_grad():
        made.scale.copy_(torch.tensor([0.5, 1.0, 2.0]).view(3, 1, 1))
        made.shift.copy_(torch.tensor([0.0, 0.3, -0.2]).view(3, 1, 1))
    filters = made.draw()
    maps = F.conv2d(2 * X - 1, filters.down[0])
    assert maps[0, 1, 2, 3].item() == pytest.approx(((2 * X[0] - 1)[:, 2:7, 3:8] * filters.down[0][1]).sum().item())
    total = filters.weights[0] * torch.tanh(F.conv2d(2 * X - 1, filters.colour))
    for number in range(len(KERNELS)):
        maps = F.conv2d(2 * X - 1, filters.down[number])
        for i in range(2):
            for c in range(3):
                values = maps[i, c]
                values = (values - values.mean()) / (values.var(correction=0) + 1e-5).sqrt()
                maps[i, c] = values * (0.5, 1.0, 2.0)[c] + (0.0, 0.3, -0.2)[c]
        total = total + filters.weights[1 + number] * torch.tanh(F.conv_transpose2d(maps, filters.up[number]))
    expected = 0.7 / (1 + torch.exp(-total)) + 0.3 * X
    torch.testing.assert_close(made(X, filters), expected)


def test_images_stay_images_whatever_is_drawn() -> None:
    made = module()
    for seed in range(30):
        torch.manual_seed(seed)
        out = made(X, made.draw())
        assert out.shape == X.shape
        assert out.min() >= 0
        assert out.max() <= 1


def test_own_filters_stay_and_drawn_ones_change() -> None:
    made = module()
    assert torch.equal(made(X, made.own()), made(X, made.own()))
    assert not torch.equal(made(X, made.draw()), made(X, made.draw()))
    assert made.own().weights.tolist() == pytest.approx([0.2] * 5)
    drawn = [made.draw().weights for _ in range(20)]
    assert any((w < 0).any() for w in drawn)
    assert sum(w.sum().item() == pytest.approx(1) for w in drawn) >= 15  # but where the sum was close to zero


def test_learned_styles_vary_over_the_image_and_get_gradients() -> None:
    made = module()
    made(X, made.own()).square().sum().backward()
    for parameter in (made.scale, made.shift):
        assert parameter.shape == (4, 3, 8, 8)
        assert parameter.grad is not None
        assert parameter.grad.flatten(1).abs().amin(1).gt(0).all()
    assert {name for name, _ in made.named_parameters()} == {"scale", "shift"}


def test_strength_and_sizes_are_checked() -> None:
    assert not torch.equal(module(strength=0.3)(X, module().own()), module()(X, module().own()))
    with pytest.raises(UserError, match=r"lies in \(0, 1\], not 0"):
        StyleComplement(0)
    with pytest.raises(UserError, match="cannot take images of 17x30 px"):
        module()(torch.rand(1, 3, 17, 30).double(), module().own())
