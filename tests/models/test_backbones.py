"""Every backbone has the common interface."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from ssdg.config import SMALL_CNNS
from ssdg.errors import UserError
from ssdg.models.backbones import BUILT_IN, build_backbone
from ssdg.models.common import LeanInstanceNorm2d
from ssdg.models.frozen import boundary_names, freeze, trunk_maps
from ssdg.models.layers import StyleConfusor, attach_style
from ssdg.models.small_cnn import KINDS as SMALL_CNN_KINDS

SMALL = ("resnet18", "resnet50", "digits-cnn", "character-cnn", "efficientnet-lite0", "efficientnet-lite2")
LITES = ("efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2")
FEATURES = {
    "resnet18": 512,
    "resnet34": 512,
    "resnet50": 2048,
    "resnet101": 2048,
    "digits-cnn": 256,
    "character-cnn": 512,
    **dict.fromkeys(LITES, 1280),
}
IMAGENET = (torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225]))


@pytest.fixture(scope="module", params=SMALL)
def named(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    torch.manual_seed(0)
    return request.param, build_backbone(request.param).eval()


def images(count: int = 2, size: int = 32) -> torch.Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(3))


def test_digits_cnn_is_four_convolutions_and_no_batch_norm() -> None:
    net = build_backbone("digits-cnn")
    shapes = [tuple(p.shape) for p in net.parameters()]
    assert shapes == [(64, 3, 3, 3), (64,)] + 3 * [(64, 64, 3, 3), (64,)]
    assert not list(net.buffers()) or all(b.numel() == 3 for b in net.buffers())  # mean and std only


def test_digits_cnn_is_relu_then_max_pool_as_published() -> None:
    net = build_backbone("digits-cnn").double()
    x = images().double()
    out = (x - 0.5) / 0.5
    weights = list(net.parameters())
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        out = nn.functional.max_pool2d(nn.functional.conv2d(out, weight, bias, padding=1).relu(), 2)
    assert torch.equal(net(x), out.reshape(2, 256))


def test_character_cnn_has_instance_norm_first_and_batch_norm_later() -> None:
    net = build_backbone("character-cnn").double().train()
    assert [type(stage[2]) for stage in net.children() if isinstance(stage, nn.Sequential)] == [
        *[LeanInstanceNorm2d] * 2,
        *[nn.BatchNorm2d] * 2,
    ]
    x = images().double()
    out = (x - 0.5) / 0.5
    convolutions = [p for p in net.parameters() if p.ndim == 4]
    assert [tuple(p.shape[:2]) for p in convolutions] == [(32, 3), (64, 32), (128, 64), (128, 128)]
    for number, weight in enumerate(convolutions):
        out = nn.functional.max_pool2d(nn.functional.conv2d(out, weight, padding=1), 2)
        positions = (2, 3) if number < 2 else (0, 2, 3)  # of an image; of the batch
        variance, mean = torch.var_mean(out, positions, keepdim=True, unbiased=False)
        out = ((out - mean) / (variance + 1e-5).sqrt()).relu()
    torch.testing.assert_close(net(x), out.reshape(2, 512))


def test_names_of_small_cnns_agree() -> None:
    """The configuration and the report know them by name, without importing torch."""
    assert tuple(SMALL_CNN_KINDS) == SMALL_CNNS
    assert [name for name in BUILT_IN if name.endswith("-cnn")] == [*SMALL_CNNS]


def test_character_cnn_sees_the_same_first_maps_at_any_contrast() -> None:
    net = build_backbone("character-cnn").double().eval()
    x = images().double()
    inner = (..., slice(1, -1), slice(1, -1))  # padding is gray, whatever the contrast
    expected = net.stage1(net.normalize(x))[inner]
    torch.testing.assert_close(net.stage1(net.normalize(0.4 * x + 0.3))[inner], expected, atol=0.05, rtol=0)


@pytest.mark.parametrize("name", ["digits-cnn", "character-cnn"])
@pytest.mark.parametrize("size", [31, 28, 224])
def test_small_cnns_refuse_other_sizes(name: str, size: int) -> None:
    with pytest.raises(UserError, match=rf"'{name}' takes images of only 32x32 px, not {size}x{size}"):
        build_backbone(name)(images(size=size))


def test_an_image_below_the_smallest_size_is_refused(named: tuple[str, nn.Module]) -> None:
    name, net = named
    with pytest.raises(UserError, match=f"'{name}' takes images of .* 32x32 px, not 31x31"):
        net(images(size=31))


@pytest.mark.parametrize("shape", [(3, 32, 32), (2, 1, 32, 32), (2, 32, 32, 3)])
def test_what_is_no_batch_of_rgb_images_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"takes images of shape \(B, 3, H, W\)"):
        build_backbone("digits-cnn")(torch.zeros(shape))


@pytest.mark.parametrize("name", list(BUILT_IN))
def test_features_have_their_number_and_are_float32(name: str) -> None:
    net = build_backbone(name).eval()
    assert net.num_features == FEATURES[name]
    for autocast in (False, True):
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            features = net(images())
        assert features.shape == (2, FEATURES[name])
        assert features.dtype == torch.float32
        assert features.isfinite().all()


def test_depthwise_convolutions_train_in_float32() -> None:
    """In bfloat16 their backward pass on a CPU is up to 15 times slower; forward passes alone are faster."""
    block = build_backbone("efficientnet-lite0")._blocks[1]
    depthwise, pointwise = block._depthwise_conv, block._project_conv
    x, inner = torch.rand(2, depthwise.in_channels, 8, 8), torch.rand(2, pointwise.in_channels, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert (depthwise(x).dtype, pointwise(inner).dtype) == (torch.float32, torch.bfloat16)
        with torch.no_grad():
            assert depthwise(x).dtype == torch.bfloat16


def test_images_are_normalised_inside() -> None:
    """The first convolution sees what the published recipe would feed it."""
    x = images().double()
    mean, std = IMAGENET
    recipes = {
        "resnet18": ("conv1", (x - mean.view(1, 3, 1, 1)) / std.view(1, 3, 1, 1)),
        **dict.fromkeys(("digits-cnn", "character-cnn"), ("stage1", (x - 0.5) / 0.5)),
        **dict.fromkeys(LITES, ("_conv_stem", (x * 255 - 127) / 128)),
    }
    for name, (first, expected) in recipes.items():
        net = build_backbone(name).eval()
        seen: list[torch.Tensor] = []
        net.get_submodule(first).register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        net(x.float())
        torch.testing.assert_close(seen[0].double(), expected, atol=1e-5, rtol=0)


def test_efficientnet_pads_like_tensorflow() -> None:
    from ssdg.models.efficientnet import same_padding

    # size, kernel, stride: worked by hand; 224 -> 112 with kernel 3 needs (112 - 1) * 2 + 3 = 225, one more
    assert same_padding(224, 3, 2) == (0, 1)
    assert same_padding(224, 5, 2) == (1, 2)
    assert same_padding(7, 3, 2) == (1, 1)  # 4 outputs reach (4 - 1) * 2 + 3 = 9
    assert same_padding(7, 5, 1) == (2, 2)
    assert same_padding(4, 1, 2) == (0, 0)


@pytest.mark.parametrize("name", LITES)
def test_an_efficientnet_can_be_frozen_after_each_of_its_seven_stages(name: str) -> None:
    net = build_backbone(name).eval()
    assert net.name == name
    assert boundary_names(net) == (*(f"stage{number}" for number in range(1, 8)), "all")
    modules = [module for stage in net.sequence.values() for module in stage]
    assert [m for m in modules if m in {*net._blocks}] == list(net._blocks)  # each block once, in order
    with torch.inference_mode():
        expected = net(images())
        for boundary in boundary_names(net):
            frozen = copy.deepcopy(net)
            freeze(frozen, boundary)
            maps = trunk_maps(frozen, images())
            assert torch.equal(frozen(maps), expected), boundary


def test_style_stages_give_maps_of_three_sizes(named: tuple[str, nn.Module]) -> None:
    name, net = named
    shapes: list[tuple[int, ...]] = []
    stages = net.style_stages
    handles = [s.register_forward_hook(lambda _, __, out: shapes.append(tuple(out.shape))) for s in stages]
    net(images())
    for handle in handles:
        handle.remove()
    sides = [16, 8, 4] if name.endswith("-cnn") else [8, 4, 2]  # strides 2, 4, 8 or 4, 8, 16
    assert [s[2] for s in shapes] == [s[3] for s in shapes] == sides
    assert all(len(s) == 4 for s in shapes)


def test_style_hooks_add_no_key_and_no_parameter(named: tuple[str, nn.Module]) -> None:
    net = copy.deepcopy(named[1])
    before = list(net.state_dict()), len(list(net.parameters()))
    attach_style(net, StyleConfusor)
    assert (list(net.state_dict()), len(list(net.parameters()))) == before


def test_channels_last_gives_the_same_features(named: tuple[str, nn.Module]) -> None:
    _, net = named
    x = images(size=32)
    with torch.inference_mode():
        plain = net(x)
        last = copy.deepcopy(net).to(memory_format=torch.channels_last)
        same = last(x.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(same, plain, atol=1e-4, rtol=1e-4)


def test_a_training_step_in_bfloat16_and_channels_last_reaches_every_weight(
    named: tuple[str, nn.Module],
) -> None:
    net = copy.deepcopy(named[1]).train().to(memory_format=torch.channels_last)
    attach_style(net, StyleConfusor)
    x = images(4).contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(x).square().mean()
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert all(p.grad.abs().sum() > 0 for p in net.parameters() if p.ndim == 4)


def test_a_backbone_with_styles_survives_copy_and_pickle(named: tuple[str, nn.Module]) -> None:
    net = copy.deepcopy(named[1])
    attach_style(net, StyleConfusor)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(twin.eval()(images()), net.eval()(images()))
        assert all(s in set(twin.modules()) for s in twin.style_stages)


def test_convolutions_start_with_a_variance_of_two_over_fan_out() -> None:
    weights = build_backbone("efficientnet-lite0").state_dict()
    # 3x3 to 32 channels; 1x1 to 1280 channels; depthwise 5x5, where a channel fans out to one
    for key, fan_out in (
        ("_conv_stem", 9 * 32),
        ("_conv_head", 1280),
        ("_blocks.13._depthwise_conv", 25),
    ):
        assert float(weights[f"{key}.weight"].var()) == pytest.approx(2 / fan_out, rel=0.2)
    conv1 = build_backbone("resnet18").state_dict()["conv1.weight"]
    assert float(conv1.var()) == pytest.approx(2 / (49 * 64), rel=0.1)


def test_an_untrained_backbone_passes_a_signal(named: tuple[str, nn.Module]) -> None:
    with torch.inference_mode():
        features = named[1](images())
    assert 1e-3 < float(features.abs().mean()) < 1e3


def test_the_seed_decides_the_initial_weights() -> None:
    def build(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return build_backbone("digits-cnn").state_dict()["stage2.0.weight"]

    assert torch.equal(build(1), build(1))
    assert not torch.equal(build(1), build(2))


def test_a_typo_in_the_name_is_answered_with_a_suggestion() -> None:
    with pytest.raises(UserError, match=r"unknown backbone 'resnet81' \(did you mean 'resnet18'\?\)"):
        build_backbone("resnet81")
    with pytest.raises(UserError, match="timm:NAME, hf:NAME"):
        build_backbone("tim:resnet18")


def test_maps_and_pool_are_the_forward_pass(named: tuple[str, nn.Module]) -> None:
    name, net = named
    x = images(size=32 if name.endswith("-cnn") else 64)
    maps = net.maps(x)  # type: ignore[operator]
    assert maps.ndim == 4
    assert maps.shape[2] == maps.shape[3] == 2
    assert torch.equal(net.pool(maps), net(x))  # type: ignore[operator]
    dropped = maps.clone()
    dropped[:, :, 0, 0] = 0
    assert not torch.equal(net.pool(dropped), net(x))  # type: ignore[operator]
