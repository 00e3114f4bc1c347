"""Frozen trunks: the layers behind the boundary compute what the whole network would, and only they learn."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ssdg.errors import UserError
from ssdg.models.backbones import build_backbone
from ssdg.models.frozen import (
    BatchNormMode,
    boundary_names,
    check_boundary,
    freeze,
    trunk_digest,
    trunk_maps,
    trunk_modules,
)
from ssdg.models.layers import EMA, StyleConfusor, attach_style

NAMES = ("resnet18", "efficientnet-lite0", "digits-cnn", "character-cnn")
STAGES = {"resnet18": 4, "efficientnet-lite0": 7, "digits-cnn": 4, "character-cnn": 4}
BOUNDARIES = [(name, f"stage{i}") for name in NAMES for i in range(1, STAGES[name] + 1)]
BOUNDARIES += [(name, "all") for name in NAMES]
SOME = [(name, boundary) for name in NAMES for boundary in ("stage2", "all")]
WITH_NORMS = ("resnet18", "efficientnet-lite0")


def images(count: int = 3) -> Tensor:
    return torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(5))


@cache
def plain(name: str) -> Any:
    """A backbone whose running statistics are its own; read only."""
    torch.manual_seed(0)
    net = build_backbone(name)
    for key, buffer in net.named_buffers():
        if key.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif key.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    return net.eval()


def frozen(name: str, boundary: str | None, batch_norm: BatchNormMode = "train") -> Any:
    net = copy.deepcopy(plain(name))
    freeze(net, boundary, batch_norm)
    return net


def values(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def trunk_names(net: Any) -> set[str]:
    """Names of the tensors in the trunk."""
    pointers = {value.data_ptr() for part in trunk_modules(net) for value in part.state_dict().values()}
    return {name for name, value in net.state_dict().items() if value.data_ptr() in pointers}


def norms(net: nn.Module) -> Iterator[nn.Module]:
    return (module for module in net.modules() if isinstance(module, nn.BatchNorm2d))


def test_the_boundaries_are_the_stages_and_all() -> None:
    for name, count in STAGES.items():
        assert boundary_names(plain(name)) == (*(f"stage{i}" for i in range(1, count + 1)), "all")


@pytest.mark.parametrize(("name", "boundary"), BOUNDARIES)
def test_the_rest_of_the_network_completes_the_maps_of_the_trunk(name: str, boundary: str) -> None:
    net = frozen(name, boundary).eval()
    with torch.inference_mode():
        expected, maps = plain(name)(images()), trunk_maps(net, images())
        assert torch.equal(net(maps), expected)
        assert torch.equal(net(images()), expected)  # a frozen network takes images, too
        assert torch.equal(net.pool(net.maps(maps)), expected)
    assert maps.shape[1] > 3  # which tells maps from images
    if boundary == "all":
        assert maps.shape == (3, net.num_features, 1, 1)


@pytest.mark.parametrize(("name", "boundary"), SOME)
def test_trunk_maps_do_not_depend_on_the_mode_and_have_no_graph(name: str, boundary: str) -> None:
    net = frozen(name, boundary)
    expected = trunk_maps(net.eval(), images())
    maps = trunk_maps(net.train(), images())
    assert torch.equal(maps, expected)
    assert not maps.requires_grad


@pytest.mark.parametrize(("name", "boundary"), BOUNDARIES)
def test_frozen_layers_take_no_gradient_and_stay_in_evaluation_mode(name: str, boundary: str) -> None:
    net = frozen(name, boundary)
    assert net.train() is net
    trunk = {part for module in trunk_modules(net) for part in module.modules()}
    assert all(module.training != (module in trunk) for module in net.modules())
    held = trunk_names(net)
    weights = dict(net.named_parameters())
    assert {key for key, weight in weights.items() if not weight.requires_grad} == held & weights.keys()
    assert held
    assert boundary != "all" or held == net.state_dict().keys()
    if set(weights) - held:
        net(trunk_maps(net, images())).square().mean().backward()
        assert all((weight.grad is None) == (key in held) for key, weight in weights.items())


def test_a_frozen_part_of_a_network_keeps_its_mode_when_the_network_is_set_to_training() -> None:
    net = frozen("resnet18", "stage2")
    classifier = nn.Sequential(net, nn.Dropout())
    classifier.train()
    assert [net.layer2.training, net.layer3.training, classifier[1].training] == [False, True, True]
    classifier.eval()
    assert not any(module.training for module in classifier.modules())


@pytest.mark.parametrize("name", WITH_NORMS)
def test_statistics_change_only_behind_the_boundary(name: str) -> None:
    net = frozen(name, "stage2").train()
    before, held = values(net), trunk_names(net)
    net(images())
    changed = {key for key, value in net.state_dict().items() if not torch.equal(value, before[key])}
    statistics = {key for key in before if "running" in key or "num_batches" in key}
    assert changed == statistics - held
    assert changed


@pytest.mark.parametrize("boundary", [None, "stage2", "all"])
@pytest.mark.parametrize("name", WITH_NORMS)
def test_batch_norms_in_evaluation_mode_keep_their_statistics(name: str, boundary: str | None) -> None:
    net = frozen(name, boundary, "eval").train()
    before = values(net)
    features = net(images())
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert torch.equal(features, plain(name)(images()))  # no layer depends on the batch
    assert not any(norm.training for norm in norms(net))
    is_trained = {weight.requires_grad for norm in norms(net) for weight in norm.parameters()}
    assert is_trained == {None: {True}, "stage2": {False, True}, "all": {False}}[boundary]


def test_nothing_changes_if_nothing_is_frozen() -> None:
    net = frozen("resnet18", None).train()
    assert all(module.training for module in net.modules())
    assert all(weight.requires_grad for weight in net.parameters())
    assert net.style_stages == (net.layer1, net.layer2, net.layer3)


@pytest.mark.parametrize(("name", "boundary"), SOME)
def test_weights_move_between_frozen_and_unfrozen_networks(name: str, boundary: str) -> None:
    net = frozen(name, boundary, "eval")
    assert list(net.state_dict()) == list(plain(name).state_dict())
    assert [key for key, _ in net.named_parameters()] == [key for key, _ in plain(name).named_parameters()]
    build_backbone(name).load_state_dict(net.state_dict())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
@pytest.mark.parametrize(("name", "boundary"), SOME)
def test_a_copy_is_frozen_by_itself(name: str, boundary: str, duplicate: Any) -> None:
    net = frozen(name, boundary, "eval").train()
    twin = duplicate(net)
    modes = [module.training for module in net.modules()]
    assert [module.training for module in twin.modules()] == modes
    twin.eval()
    assert [module.training for module in net.modules()] == modes
    assert [module.training for module in twin.train().modules()] == modes
    assert torch.equal(twin(trunk_maps(twin, images())), net(images()))
    assert [p.requires_grad for p in twin.parameters()] == [p.requires_grad for p in net.parameters()]
    with torch.no_grad():
        next(iter(trunk_modules(twin))).requires_grad_(True)
        for weight in twin.parameters():
            weight.zero_()
    assert torch.equal(net.eval()(images()), plain(name)(images()))


@pytest.mark.parametrize(("name", "boundary"), SOME)
def test_the_moving_average_of_a_frozen_network_has_the_same_trunk(name: str, boundary: str) -> None:
    net = frozen(name, boundary)
    held, before = trunk_names(net), values(net)
    average = EMA(net, 0.5)
    with torch.no_grad():
        for weight in net.parameters():
            if weight.requires_grad:
                weight.add_(1)
    average.update(net)
    average.train()
    assert not any(module.training for module in average.average.modules())
    after = average.average.state_dict()
    assert {key for key in before if not torch.equal(after[key], before[key])} == {
        key for key, weight in net.named_parameters() if key not in held
    }


def test_styles_are_confused_at_the_boundary_and_behind_it() -> None:
    net = frozen("resnet18", "stage1")
    assert net.style_stages == (net.entry, net.layer2, net.layer3)
    net = frozen("resnet18", "stage3")
    assert net.style_stages == (net.entry,)
    net = frozen("efficientnet-lite0", "stage4")
    assert net.style_stages == (net.entry, net.sequence["stage5"][-1])
    net = frozen("digits-cnn", "stage2")
    assert net.style_stages == (net.entry, net.stage3)
    for name in NAMES:
        assert frozen(name, "all").style_stages == ()


def test_style_confusion_changes_maps_and_not_the_trunk() -> None:
    net = frozen("digits-cnn", "stage3")
    attach_style(net, lambda: StyleConfusor(probability=1.0))
    maps = trunk_maps(net, images())
    torch.manual_seed(1)
    confused = net.train()(maps)
    assert torch.equal(trunk_maps(net, images()), maps)
    assert not torch.equal(confused, net.eval()(maps))


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_stage_is_answered_with_the_list_of_stages(name: str) -> None:
    with pytest.raises(UserError) as refusal:
        check_boundary(plain(name), "stage9")
    stages = ", ".join(f"stage{i}" for i in range(1, STAGES[name] + 1))
    assert str(refusal.value).startswith(f"unknown stage of {name} in freeze 'stage9'")
    assert str(refusal.value).endswith(f"; choose from none, {stages}, all")
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="stem"):  # not a boundary: it is frozen with the first stage
        frozen(name, "stem")


@pytest.mark.parametrize(
    ("name", "boundary"), [("resnet18", "stage1"), ("digits-cnn", "stage2"), ("digits-cnn", "all")]
)
def test_the_digest_depends_on_every_frozen_tensor_and_on_nothing_else(name: str, boundary: str) -> None:
    net = frozen(name, boundary)
    digest, held = trunk_digest(net), trunk_names(net)
    assert trunk_digest(copy.deepcopy(net).train()) == digest
    for key, value in net.state_dict().items():
        before = value.clone()
        with torch.no_grad():
            value.view(-1)[-1] += 1
            assert (trunk_digest(net) != digest) == (key in held), key
            value.copy_(before)
    assert trunk_digest(net) == digest


def test_images_of_a_wrong_size_are_refused_and_maps_are_not() -> None:
    net = frozen("digits-cnn", "stage2")
    with pytest.raises(UserError, match="only 32x32 px, not 28x28"):
        net(torch.rand(1, 3, 28, 28))
    with pytest.raises(UserError, match="only 32x32 px, not 28x28"):
        trunk_maps(net, torch.rand(1, 3, 28, 28))
    assert net(torch.rand(1, 64, 8, 8)).shape == (1, 256)
