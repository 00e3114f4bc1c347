"""JAN against Long et al. 2017: cross-entropy plus the discrepancy of (features, softmax) under a product kernel."""

from copy import deepcopy
from math import exp

import pytest
import torch

from builders import HARD, SOFT, PlainSGD, U, X, at_epoch, batch, built, plain_cross_entropy, state
from plain_mmd import plain_mmd
from ssdg.methods.adaptation.jan import Jan, JanSettings

FACTORS = (1 / 4, 1 / 2, 1, 2, 4)


def learner(norm=False, **changes):
    return built(Jan, JanSettings(lr=0.1, weight_decay=0.01, **changes), norm)


class PlainJan:
    """All images in one pass; `progress` is the share of training that is done."""

    def __init__(self, start, settings):
        self.nets = deepcopy(start)
        self.sgd = PlainSGD(self.nets.parameters(), settings)
        self.weight = settings.mmd_weight

    def step(self, y, progress):
        features = self.nets["features"](torch.cat([X, U]))
        logits = self.nets["head"](features)
        probs = logits.exp() / logits.exp().sum(1, keepdim=True)
        mmd = plain_mmd([(features[:6], features[6:]), (probs[:6], probs[6:])], FACTORS)
        loss = plain_cross_entropy(logits[:6], y) + self.weight * (2 / (1 + exp(-10 * progress)) - 1) * mmd
        self.sgd.descend(loss)
        return loss, mmd


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
def test_weights_and_losses_of_two_steps_equal_the_papers(norm, y):
    jan = learner(norm, mmd_weight=3.0)
    plain = PlainJan(jan.nets, jan.settings)
    for epoch in (1, 4):
        got, (loss, mmd) = jan.step(batch(y), at_epoch(epoch)), plain.step(y, epoch / 10)
        assert got["loss"].item() == pytest.approx(loss.item(), rel=1e-10)
        assert got["mmd"].item() == pytest.approx(mmd.item(), rel=1e-8)
        assert not any(value.requires_grad for value in got.values())
    torch.testing.assert_close(state(jan.nets), state(plain.nets), rtol=1e-9, atol=1e-12)


def test_settings_time_and_both_batches_change_the_result():
    def after(y=HARD, u=U, epoch=5, **changes):
        jan = learner(**changes)
        jan.step(batch(y, u), at_epoch(epoch))
        return round(jan.nets["features"].stages[0][0].weight.sum().item(), 12)

    results = [
        after(),
        after(mmd_weight=0.5),
        after(num_kernels=3),
        after(y=SOFT),
        after(u=U.flip(1)),
        after(epoch=1),
    ]
    assert len(set(results)) == 6
    assert after(epoch=0) == after(mmd_weight=0.0)  # the ramp starts at zero


def test_logits_are_those_of_the_one_network():
    jan = learner()
    torch.testing.assert_close(jan.logits(X), jan.nets["head"](jan.nets["features"](X)).unsqueeze(0))
