"""Batch norms folded into convolutions."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from ssdg.artifact.load import fold
from ssdg.machine import bf16_copy, copy_modules, gains_from_bf16
from ssdg.methods import METHODS
from ssdg.methods.api import Learner, Settings, Sizes
from ssdg.methods.source_only import SourceOnly
from ssdg.models.backbones import build_backbone
from ssdg.models.folding import fold_batch_norms
from ssdg.models.frozen import freeze


def with_statistics(net: nn.Module) -> nn.Module:
    """Give batch norms and heads statistics and weights as if they were trained."""
    torch.manual_seed(0)
    for module in net.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0, 0.1)
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.1)
    return net.eval()


def learner_of(name: str, backbone: str) -> Learner:
    torch.manual_seed(0)
    method = METHODS[name]
    settings = method.settings()

    def make() -> nn.Module:
        return settings.extend_backbone(build_backbone(backbone))  # type: ignore[return-value]

    learner = method.learner(make, Sizes(3, 2), settings)  # type: ignore[arg-type]
    with_statistics(learner.nets)
    return learner


@pytest.mark.parametrize("backbone", ["resnet18", "resnet50", "efficientnet-lite0"])
@pytest.mark.parametrize("size", [64, 97])
def test_folding_keeps_the_features_and_leaves_the_original_alone(backbone: str, size: int) -> None:
    net, x = with_statistics(build_backbone(backbone)), torch.rand(2, 3, size, size)
    twin = copy.deepcopy(net)
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.inference_mode():
        before = net(x)
        num_norms = sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())
        assert fold_batch_norms(twin) == num_norms
        assert not any(isinstance(module, nn.BatchNorm2d) for module in twin.modules())
        torch.testing.assert_close(twin(x), before, rtol=1e-4, atol=1e-4 * float(before.abs().max()))
        assert torch.equal(net(x), before)
    assert all(torch.equal(tensor, state[name]) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize("name", sorted(METHODS))
def test_copies_of_every_method_have_its_logits(name: str) -> None:
    learner, x = learner_of(name, "efficientnet-lite0"), torch.rand(4, 3, 64, 64)
    state = {key: tensor.clone() for key, tensor in learner.nets.state_dict().items()}
    twin = fold(learner, 64, torch.device("cpu"))
    assert twin is not learner
    half = bf16_copy(twin, "cpu")
    with torch.inference_mode():
        before = learner.logits(x)
        torch.testing.assert_close(twin.logits(x), before, rtol=0, atol=1e-4)
        rounded = half.logits(x)
        assert torch.equal(learner.logits(x), before)
    assert rounded.dtype == torch.float32
    assert not torch.equal(rounded, before)
    torch.testing.assert_close(rounded, before, rtol=0.2, atol=0.2)
    assert all(torch.equal(tensor, state[key]) for key, tensor in learner.nets.state_dict().items())


def test_a_copy_shares_tensors_and_optimizers() -> None:
    learner = learner_of("source-only", "resnet18")
    twin = copy_modules(learner)
    assert twin.nets is not learner.nets
    pairs = zip(learner.nets.state_dict().items(), twin.nets.state_dict().items(), strict=True)
    assert all(a == b and x.data_ptr() == y.data_ptr() for (a, x), (b, y) in pairs)
    assert twin.opts is learner.opts


class Twice(nn.Module):
    """Uses the output of its convolution in two ways: folding would change it."""

    num_features, min_size, prefers_bf16 = 4, 1, False

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)
        self.style_stages = ()

    def forward(self, x: Tensor) -> Tensor:
        maps = self.conv(x)
        return (maps + self.norm(maps)).mean((2, 3))


def test_a_network_that_folding_would_change_is_not_folded() -> None:
    learner = SourceOnly(Twice, Sizes(3), Settings())  # type: ignore[arg-type]
    with_statistics(learner.nets)
    assert fold(learner, 8, torch.device("cpu")) is learner


def test_hooks_between_the_two_prevent_folding() -> None:
    net = with_statistics(build_backbone("resnet18"))
    net.get_submodule("bn1").register_forward_pre_hook(lambda module, args: None)
    num_norms = sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    assert fold_batch_norms(net) == num_norms - 1


def test_only_what_a_backbone_computes_gains_from_bf16() -> None:
    net = build_backbone("resnet18")
    assert gains_from_bf16(net)
    freeze(net, "stage2")
    assert gains_from_bf16(net)
    freeze(net, "all")
    assert not gains_from_bf16(net)
    assert not gains_from_bf16(nn.Linear(2, 2))
