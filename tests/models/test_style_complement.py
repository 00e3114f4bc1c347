"""The style-complement module of L2D against its branches, one by one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ssdg.errors import UserError
from ssdg.models.styles import KERNEL_SIZES, StyleComplement

X = torch.rand(2, 3, 20, 24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def module(**settings: float) -> StyleComplement:
    torch.manual_seed(0)
    return StyleComplement(**settings).double()


def test_equals_convolution_style_and_transposed_convolution() -> None:
    """With constant scales and shifts; one position of the smallest kernel is computed by hand."""
    style = module(strength=0.7)
    with torch.no_grad():
        style.scale.copy_(torch.tensor([0.5, 1.0, 2.0]).view(3, 1, 1))
        style.shift.copy_(torch.tensor([0.0, 0.3, -0.2]).view(3, 1, 1))
    filters = style.draw_filters()
    maps = F.conv2d(2 * X - 1, filters.down[0])
    assert maps[0, 1, 2, 3].item() == pytest.approx(((2 * X[0] - 1)[:, 2:7, 3:8] * filters.down[0][1]).sum().item())
    total = filters.weights[0] * torch.tanh(F.conv2d(2 * X - 1, filters.color))
    for branch in range(len(KERNEL_SIZES)):
        maps = F.conv2d(2 * X - 1, filters.down[branch])
        for i in range(2):
            for c in range(3):
                values = maps[i, c]
                values = (values - values.mean()) / (values.var(correction=0) + 1e-5).sqrt()
                maps[i, c] = values * (0.5, 1.0, 2.0)[c] + (0.0, 0.3, -0.2)[c]
        total = total + filters.weights[1 + branch] * torch.tanh(F.conv_transpose2d(maps, filters.up[branch]))
    expected = 0.7 / (1 + torch.exp(-total)) + 0.3 * X
    torch.testing.assert_close(style(X, filters), expected)


def test_images_stay_images_whatever_is_drawn() -> None:
    style = module()
    for seed in range(30):
        torch.manual_seed(seed)
        out = style(X, style.draw_filters())
        assert out.shape == X.shape
        assert out.min() >= 0
        assert out.max() <= 1


def test_own_filters_stay_and_drawn_ones_change() -> None:
    style = module()
    assert torch.equal(style(X, style.fixed_filters()), style(X, style.fixed_filters()))
    assert not torch.equal(style(X, style.draw_filters()), style(X, style.draw_filters()))
    assert style.fixed_filters().weights.tolist() == pytest.approx([0.2] * 5)
    drawn = [style.draw_filters().weights for _ in range(20)]
    assert any((w < 0).any() for w in drawn)
    assert sum(w.sum().item() == pytest.approx(1) for w in drawn) >= 15  # the others have a sum close to zero


def test_learned_styles_vary_over_the_image_and_get_gradients() -> None:
    style = module()
    style(X, style.fixed_filters()).square().sum().backward()
    for parameter in (style.scale, style.shift):
        assert parameter.shape == (4, 3, 8, 8)
        assert parameter.grad is not None
        assert parameter.grad.flatten(1).abs().amin(1).gt(0).all()
    assert {name for name, _ in style.named_parameters()} == {"scale", "shift"}


def test_strength_and_sizes_are_checked() -> None:
    assert not torch.equal(module(strength=0.3)(X, module().fixed_filters()), module()(X, module().fixed_filters()))
    with pytest.raises(UserError, match=r"must be in \(0, 1\], not 0"):
        StyleComplement(0)
    with pytest.raises(UserError, match="larger than its 17 px filters, not 17x30 px"):
        module()(torch.rand(1, 3, 17, 30).double(), module().fixed_filters())
