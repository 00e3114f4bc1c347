"""ResNets and EfficientNet-Lites carry the names and shapes of published weight files."""

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


# per stage: depth, output; of the weight files' blocks
EFFICIENTNETS = [
    ("efficientnet-lite0", ((1, 16), (2, 24), (2, 40), (3, 80), (3, 112), (4, 192), (1, 320)), 296, 4_652_008),
    ("efficientnet-lite1", ((1, 16), (3, 24), (3, 40), (4, 80), (4, 112), (5, 192), (1, 320)), 386, 5_416_680),
    ("efficientnet-lite2", ((1, 16), (3, 24), (3, 48), (4, 88), (4, 120), (5, 208), (1, 352)), 386, 6_092_072),
]


@pytest.mark.parametrize(("name", "stages", "num_tensors", "num_weights"), EFFICIENTNETS)
def test_efficientnet_has_the_names_and_shapes_of_the_weight_file(
    name: str, stages: tuple[tuple[int, int], ...], num_tensors: int, num_weights: int
) -> None:
    blocks = []  # per block: input, output, expansion, kernel (Tan & Le, 2019, Table 1)
    channels = 32
    for (depth, out), expand, kernel in zip(stages, (1, 6, 6, 6, 6, 6, 6), (3, 3, 5, 3, 5, 5, 3), strict=True):
        blocks += [(channels if i == 0 else out, out, expand, kernel) for i in range(depth)]
        channels = out
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
    spec |= {"_conv_head.weight": (1280, channels, 1, 1)} | batch_norm_shapes("_bn1", 1280)
    net = build_backbone(name)
    assert {k: tuple(v.shape) for k, v in net.state_dict().items()} == spec
    assert len(spec) == num_tensors - 2  # the file's without _fc.weight and _fc.bias
    assert sum(p.numel() for p in net.parameters()) + 1281 * 1000 == num_weights
