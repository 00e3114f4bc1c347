"""ResNets and EfficientNet-Lite0 carry the names and shapes of published weight files."""

from __future__ import annotations

import pytest
import torch

from ssdg.models.backbones import build_backbone


def batch_norm_shapes(prefix: str, channels: int) -> dict[str, tuple[int, ...]]:
    per_channel = ("weight", "bias", "running_mean", "running_var")
    return {f"{prefix}.{k}": (channels,) for k in per_channel} | {f"{prefix}.num_batches_tracked": ()}


def torchvision_resnet(depths: tuple[int, ...], *, bottleneck: bool) -> dict[str, tuple[int, ...]]:
    """The state dict of torchvision's ResNet without fc, as published: every name with its shape."""
    spec: dict[str, tuple[int, ...]] = {"conv1.weight": (64, 3, 7, 7)} | batch_norm_shapes("bn1", 64)
    in_channels = 64
    for number, depth in enumerate(depths, 1):
        width = 32 * 2**number
        out_channels = 4 * width if bottleneck else width
        for block in range(depth):
            at = f"layer{number}.{block}"
            if bottleneck:
                convs = [(width, in_channels, 1, 1), (width, width, 3, 3), (out_channels, width, 1, 1)]
            else:
                convs = [(width, in_channels, 3, 3), (width, width, 3, 3)]
            for i, shape in enumerate(convs, 1):
                spec |= {f"{at}.conv{i}.weight": shape} | batch_norm_shapes(f"{at}.bn{i}", shape[0])
            if block == 0 and in_channels != out_channels:
                spec |= {f"{at}.downsample.0.weight": (out_channels, in_channels, 1, 1)}
                spec |= batch_norm_shapes(f"{at}.downsample.1", out_channels)
            in_channels = out_channels
    return spec


RESNETS = [
    ("resnet18", (2, 2, 2, 2), False, 11_689_512),
    ("resnet34", (3, 4, 6, 3), False, 21_797_672),
    ("resnet50", (3, 4, 6, 3), True, 25_557_032),
    ("resnet101", (3, 4, 23, 3), True, 44_549_160),
]


@pytest.mark.parametrize(("name", "depths", "bottleneck", "published"), RESNETS)
def test_a_resnet_has_torchvisions_names_shapes_and_count(
    name: str, depths: tuple[int, ...], bottleneck: bool, published: int
) -> None:
    with torch.device("meta"):
        net = build_backbone(name)
    assert {k: tuple(v.shape) for k, v in net.state_dict().items()} == torchvision_resnet(
        depths, bottleneck=bottleneck
    )
    classifier = 1000 * net.num_features + 1000
    assert sum(p.numel() for p in net.parameters()) + classifier == published


def test_a_few_torchvision_names_by_hand() -> None:
    shapes = {k: tuple(v.shape) for k, v in build_backbone("resnet18").state_dict().items()}
    assert shapes["conv1.weight"] == (64, 3, 7, 7)
    assert shapes["layer1.0.conv1.weight"] == (64, 64, 3, 3)
    assert shapes["layer2.0.downsample.0.weight"] == (128, 64, 1, 1)
    assert shapes["layer4.1.bn2.running_var"] == (512,)
    assert "layer1.0.downsample.0.weight" not in shapes
    assert len(shapes) == 120  # torchvision's 122 without fc.weight and fc.bias


def test_efficientnet_has_the_names_and_shapes_of_the_weight_file() -> None:
    # per block: input, output, expansion, kernel (Tan & Le, 2019, Table 1)
    blocks = [(32, 16, 1, 3), (16, 24, 6, 3), (24, 24, 6, 3), (24, 40, 6, 5), (40, 40, 6, 5)]
    blocks += [(40, 80, 6, 3), (80, 80, 6, 3), (80, 80, 6, 3), (80, 112, 6, 5), (112, 112, 6, 5)]
    blocks += [(112, 112, 6, 5), (112, 192, 6, 5), (192, 192, 6, 5), (192, 192, 6, 5), (192, 192, 6, 5)]
    blocks += [(192, 320, 6, 3)]
    spec: dict[str, tuple[int, ...]] = {"_conv_stem.weight": (32, 3, 3, 3)} | batch_norm_shapes("_bn0", 32)
    for i, (in_channels, out_channels, expand, kernel) in enumerate(blocks):
        at, inner = f"_blocks.{i}", in_channels * expand
        if expand > 1:
            spec |= {f"{at}._expand_conv.weight": (inner, in_channels, 1, 1)}
            spec |= batch_norm_shapes(f"{at}._bn0", inner)
        spec |= {f"{at}._depthwise_conv.weight": (inner, 1, kernel, kernel)}
        spec |= batch_norm_shapes(f"{at}._bn1", inner)
        spec |= {f"{at}._project_conv.weight": (out_channels, inner, 1, 1)} | batch_norm_shapes(
            f"{at}._bn2", out_channels
        )
    spec |= {"_conv_head.weight": (1280, 320, 1, 1)} | batch_norm_shapes("_bn1", 1280)
    net = build_backbone("efficientnet-lite0")
    assert {k: tuple(v.shape) for k, v in net.state_dict().items()} == spec
    assert len(spec) == 294  # the file's 296 without _fc.weight and _fc.bias
    assert sum(p.numel() for p in net.parameters()) + 1281 * 1000 == 4_652_008
