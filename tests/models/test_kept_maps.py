"""Tensors that the graph saves for the backward pass."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssdg.models.backbones import build_backbone
from ssdg.models.common import LeanInstanceNorm2d, LeanMaxPool2d


def saved_bytes(net: nn.Module, x: Tensor) -> int:
    """Bytes of the distinct tensors that the graph of net(x) saves, without parameters."""
    weights = {p.data_ptr() for p in net.parameters()}
    saved: dict[int, int] = {}

    def record(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in weights:
            saved[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        out = net(x)
    assert out.requires_grad
    return sum(saved.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_pooling_before_the_relu_is_pooling_after_it_bit_for_bit(
    dtype: torch.dtype, layout: torch.memory_format
) -> None:
    maps = torch.randn(3, 4, 13, 10).to(dtype).round(decimals=1).contiguous(memory_format=layout)  # with ties
    first, second = (maps.clone(memory_format=torch.preserve_format).requires_grad_() for _ in range(2))
    lean = LeanMaxPool2d(3, stride=2, padding=1)(first).relu()
    plain = F.max_pool2d(second.relu(), 3, 2, 1)
    assert torch.equal(lean, plain)
    weight = torch.randn_like(plain)
    (lean * weight).sum().backward()
    (plain * weight).sum().backward()
    assert first.grad is not None
    assert torch.equal(first.grad, second.grad)  # type: ignore[arg-type]
    assert first.grad.stride() == first.stride()


def test_the_pooling_layer_can_be_differentiated_twice() -> None:
    maps = torch.randn(1, 2, 6, 6, dtype=torch.float64, requires_grad=True)
    pool = LeanMaxPool2d(3, stride=2, padding=1)
    assert torch.autograd.gradcheck(pool, (maps,))
    assert torch.autograd.gradgradcheck(pool, (maps,))


def test_a_pooling_graph_keeps_places_and_not_maps() -> None:
    x = torch.rand(2, 8, 32, 32, requires_grad=True)
    indices = 2 * 8 * 16 * 16 * 8
    assert saved_bytes(LeanMaxPool2d(3, stride=2, padding=1), x) == indices
    assert saved_bytes(nn.MaxPool2d(3, stride=2, padding=1), x) == indices + 2 * 8 * 32 * 32 * 4


def test_a_resnet_keeps_the_widest_maps_once() -> None:
    net = build_backbone("resnet18").train()
    before = saved_bytes(net, torch.rand(2, 3, 96, 96))
    net.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
    assert saved_bytes(net, torch.rand(2, 3, 96, 96)) - before == 2 * 64 * 48 * 48 * 4


def test_lean_instance_norm_has_the_numbers_of_pytorchs() -> None:
    torch.manual_seed(0)
    lean, usual = (kind(5, affine=True).double() for kind in (LeanInstanceNorm2d, nn.InstanceNorm2d))
    for parameter in lean.parameters():
        nn.init.uniform_(parameter, -2, 2)
    usual.load_state_dict(lean.state_dict())
    x, weight = torch.rand(3, 5, 4, 6, dtype=torch.float64) * 9, torch.rand(3, 5, 4, 6)
    gradients = []
    for norm in (lean, usual):
        maps = x.contiguous(memory_format=torch.channels_last).requires_grad_()
        out = norm(maps)
        torch.testing.assert_close(out, usual(x))
        gradients.append(torch.autograd.grad((out * weight).sum(), [maps, *norm.parameters()]))
    torch.testing.assert_close(*gradients)
    assert lean(maps).is_contiguous(memory_format=torch.channels_last)
    assert lean.float()(x.bfloat16()).dtype == torch.bfloat16


def test_lean_instance_norm_of_a_constant_map_is_its_bias() -> None:
    norm = LeanInstanceNorm2d(2, affine=True)
    nn.init.constant_(norm.bias, 0.5)
    assert torch.equal(norm(torch.full((1, 2, 3, 3), 7.0)), torch.full((1, 2, 3, 3), 0.5))
