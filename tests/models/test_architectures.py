"""ResNet and EfficientNet-Lite against their papers, computed from the state dict with plain functions."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ssdg.models.backbones import build_backbone

State = dict[str, Tensor]


def shaken(name: str) -> nn.Module:
    """An evaluation network in float64 whose batch norms are not the identity."""
    torch.manual_seed(11)
    net = build_backbone(name).double().eval()
    for key, value in net.state_dict().items():
        if key.endswith(("running_var", "bn1.weight", "bn2.weight", "bn3.weight")):
            value.uniform_(0.5, 1.5)
        elif key.endswith(("running_mean", "bias")):
            value.uniform_(-0.2, 0.2)
    return net


def norm(state: State, at: str, x: Tensor, eps: float) -> Tensor:
    mean, var, weight, bias = (
        state[f"{at}.{k}"].view(1, -1, 1, 1) for k in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) / torch.sqrt(var + eps) * weight + bias


def resnet_by_hand(state: State, x: Tensor, depths: tuple[int, ...], *, bottleneck: bool) -> Tensor:
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = (x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)

    def conv_norm(at: str, conv: str, bn: str, x: Tensor, stride: int, padding: int) -> Tensor:
        out = F.conv2d(x, state[f"{at}{conv}.weight"], stride=stride, padding=padding)
        return norm(state, f"{at}{bn}", out, 1e-5)

    x = conv_norm("", "conv1", "bn1", x, 2, 3).relu()
    x = F.max_pool2d(x, 3, 2, padding=1)
    for stage, depth in enumerate(depths, 1):
        for block in range(depth):
            at = f"layer{stage}.{block}."
            stride = 2 if stage > 1 and block == 0 else 1
            if bottleneck:
                out = conv_norm(at, "conv1", "bn1", x, 1, 0).relu()
                out = conv_norm(at, "conv2", "bn2", out, stride, 1).relu()
                out = conv_norm(at, "conv3", "bn3", out, 1, 0)
            else:
                out = conv_norm(at, "conv1", "bn1", x, stride, 1).relu()
                out = conv_norm(at, "conv2", "bn2", out, 1, 1)
            if f"{at}downsample.0.weight" in state:
                x = conv_norm(at, "downsample.0", "downsample.1", x, stride, 0)
            x = (out + x).relu()
    return x.mean((2, 3))


@pytest.mark.parametrize(
    ("name", "depths", "bottleneck"), [("resnet18", (2, 2, 2, 2), False), ("resnet50", (3, 4, 6, 3), True)]
)
@pytest.mark.parametrize("size", [33, 64])
def test_resnet_computes_what_the_paper_says(name: str, depths: tuple[int, ...], bottleneck: bool, size: int) -> None:
    net = shaken(name)
    x = torch.rand(2, 3, size, size, dtype=torch.float64)
    with torch.inference_mode():
        expected = resnet_by_hand(net.state_dict(), x, depths, bottleneck=bottleneck)
        torch.testing.assert_close(net(x), expected, rtol=1e-6, atol=1e-6)


def same_conv(x: Tensor, weight: Tensor, stride: int, groups: int = 1) -> Tensor:
    """TensorFlow's rule: ceil(n / stride) outputs, the smaller half of the zeros in front."""
    kernel = weight.shape[2]
    pads = []
    for size in (x.shape[3], x.shape[2]):
        total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
        pads += [math.floor(total / 2), math.ceil(total / 2)]
    return F.conv2d(F.pad(x, pads), weight, stride=stride, groups=groups)


def lite_by_hand(state: State, x: Tensor, halves: set[int], num_blocks: int) -> Tensor:
    """`halves` are the first blocks of the stages that halve the map."""

    def norm6(at: str, x: Tensor) -> Tensor:
        return norm(state, at, x, 1e-3).clamp(0, 6)

    mean, std = (torch.tensor(value / 255).double() for value in (127, 128))  # float32 in the network
    x = norm6("_bn0", same_conv((x - mean) / std, state["_conv_stem.weight"], 2))
    for i in range(num_blocks):
        at = f"_blocks.{i}"
        out = x
        if i > 0:
            out = norm6(f"{at}._bn0", F.conv2d(out, state[f"{at}._expand_conv.weight"]))
        stride = 2 if i in halves else 1
        out = same_conv(out, state[f"{at}._depthwise_conv.weight"], stride, groups=out.shape[1])
        out = F.conv2d(norm6(f"{at}._bn1", out), state[f"{at}._project_conv.weight"])
        out = norm(state, f"{at}._bn2", out, 1e-3)
        x = out + x if out.shape == x.shape else out
    return norm6("_bn1", F.conv2d(x, state["_conv_head.weight"])).mean((2, 3))


@pytest.mark.parametrize(
    ("name", "halves", "num_blocks"),
    [
        ("efficientnet-lite0", {1, 3, 5, 11}, 16),
        ("efficientnet-lite1", {1, 4, 7, 15}, 21),
        ("efficientnet-lite2", {1, 4, 7, 15}, 21),
    ],
)
@pytest.mark.parametrize("size", [33, 64])
def test_efficientnet_computes_what_the_paper_says(name: str, halves: set[int], num_blocks: int, size: int) -> None:
    net = shaken(name)
    x = torch.rand(2, 3, size, size, dtype=torch.float64)
    with torch.inference_mode():
        expected = lite_by_hand(net.state_dict(), x, halves, num_blocks)
        torch.testing.assert_close(net(x), expected, rtol=1e-9, atol=1e-9)
