"""What makes training cheaper leaves its numbers alone: bit for bit, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from ssdg.data.sets import Batch, LabeledBatch, UnlabeledBatch
from ssdg.losses.classification import cross_entropy
from ssdg.losses.discrepancy import l1_discrepancy
from ssdg.methods.adaptation.mcd import Mcd, McdSettings
from ssdg.methods.api import Progress, Sizes, sgd
from ssdg.models.backbones import build_backbone

SETTINGS = McdSettings(lr=0.05, inner_steps=2)
NOW = Progress(round=1, epoch=0, epochs=1, step=0, steps=1)
NETWORKS = (("digits-cnn", 32), ("resnet18", 48))


def bits(net: nn.Module) -> dict[str, Tensor]:
    """Copies of all parameters."""
    return {name: p.detach().clone(memory_format=torch.contiguous_format) for name, p in net.named_parameters()}


def statistics(net: nn.Module) -> dict[str, Tensor]:
    """What batch norms have gathered; how many batches it took is read by none of them."""
    return {name: buffer for name, buffer in net.named_buffers() if buffer.is_floating_point()}


def mcd_and_batch(name: str, size: int) -> tuple[Mcd, Batch]:
    """A labeler and eight images of each kind, channels last."""
    torch.manual_seed(0)
    learner = Mcd(lambda: build_backbone(name), Sizes(3), SETTINGS)
    x, u = (torch.rand(8, 3, size, size).contiguous(memory_format=torch.channels_last) for _ in range(2))
    y, zeros = torch.arange(8) % 3, torch.zeros(8, dtype=torch.int64)
    return learner, Batch(LabeledBatch(x, y, zeros, zeros.bool()), unlabeled=UnlabeledBatch(u, zeros))


def every_pass_afresh(learner: Mcd, batch: Batch) -> None:
    """MCD's steps with F(u) of step B computed again in step C."""
    assert batch.unlabeled is not None
    x, y, u = batch.labeled.x, batch.labeled.y, batch.unlabeled.x
    features, (first, second) = learner.features, learner.heads

    def descend(loss: Tensor, *names: str) -> None:
        for name in names:
            learner.opts[name].zero_grad()
        torch.autograd.backward(loss)
        for name in names:
            learner.opts[name].step()

    def classified(f: Tensor) -> Tensor:
        return cross_entropy(first(f), y) + cross_entropy(second(f), y)

    def parted(f: Tensor) -> Tensor:
        return l1_discrepancy(first(f).softmax(-1), second(f).softmax(-1))

    descend(classified(features(x)), "features", "heads")
    with torch.no_grad():
        of_x, of_u = features(x), features(u)
    descend(classified(of_x) - parted(of_u), "heads")
    for _ in range(SETTINGS.inner_steps):
        descend(parted(features(u)), "features")


@pytest.mark.parametrize(("name", "size"), NETWORKS)
def test_the_pass_that_steps_b_and_c_share(name: str, size: int) -> None:
    learner, batch = mcd_and_batch(name, size)
    plain, _ = mcd_and_batch(name, size)
    before = bits(learner.nets)
    learner.step(batch, NOW)
    every_pass_afresh(plain, batch)
    torch.testing.assert_close(bits(learner.nets), bits(plain.nets), rtol=0, atol=0)
    assert not torch.equal(before["heads.0.weight"], bits(learner.nets)["heads.0.weight"])
    # Running statistics take one pass for two: equal but for rounding.
    torch.testing.assert_close(statistics(learner.nets), statistics(plain.nets))


def test_fused_sgd() -> None:
    torch.manual_seed(0)
    fused = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten(), nn.Linear(16 * 36, 5))
    plain = deepcopy(fused)
    given = {"lr": SETTINGS.lr, "momentum": SETTINGS.momentum, "weight_decay": SETTINGS.weight_decay}
    pairs = ((fused, sgd([fused], SETTINGS)), (plain, SGD(plain.parameters(), fused=False, **given)))
    for _ in range(4):
        x = torch.randn(6, 3, 8, 8)
        for net, optimizer in pairs:
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(bits(fused), bits(plain), rtol=0, atol=0)


def test_relu_behind_the_pool_of_the_digits_cnn() -> None:
    torch.manual_seed(0)
    ours: nn.Module = build_backbone("digits-cnn")
    published = deepcopy(ours)
    for stage in ("stage1", "stage2", "stage3", "stage4"):
        conv, pool, relu = published.get_submodule(stage).children()
        setattr(published, stage, nn.Sequential(conv, relu, pool))
    x = torch.rand(8, 3, 32, 32)
    outputs = [net(x) for net in (ours, published)]
    assert torch.equal(*outputs)
    for out in outputs:
        out.square().sum().backward()
    for mine, theirs in zip(ours.parameters(), published.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad)


def laid_out(layout: torch.memory_format) -> Callable[[str, int], dict[str, Tensor]]:
    """Weights after a step with weights that lie so."""

    def after(name: str, size: int) -> dict[str, Tensor]:
        learner, batch = mcd_and_batch(name, size)
        learner.nets.to(memory_format=layout)  # type: ignore[call-overload]
        learner.step(batch, NOW)
        return bits(learner.nets)

    return after


@pytest.mark.parametrize(("name", "size"), NETWORKS)
def test_the_layout_of_weights_but_for_rounding(name: str, size: int) -> None:
    last, plain = laid_out(torch.channels_last)(name, size), laid_out(torch.contiguous_format)(name, size)
    torch.testing.assert_close(last, plain, rtol=1e-3, atol=1e-5)
