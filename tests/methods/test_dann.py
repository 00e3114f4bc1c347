"""DANN against Ganin et al. 2016: saddle point and ramp, written out without gradient reversal."""

import math
from copy import deepcopy

import pytest
import torch

from builders import HARD, LABELS, SOFT, PlainSGD, U, X, at_epoch, batch, built, plain_cross_entropy, state
from minimax import descend_together
from ssdg.methods.adaptation.dann import Dann, DannSettings


def settings(**more):
    return DannSettings(**{"lr": 0.1, "weight_decay": 0.01, "hidden": (7,), **more})


def learner(norm=False, **more):
    return built(Dann, settings(**more), norm)


class PlainDann:
    """Features descend L_y - λ L_d, the classifier L_y, the discriminator L_d."""

    def __init__(self, start, chosen):
        self.nets, self.chosen = deepcopy(start), chosen
        self.players = {name: PlainSGD(net.parameters(), chosen) for name, net in self.nets.items()}

    def losses(self, y):
        f, g = self.nets["features"](X), self.nets["features"](U)
        d_x, d_u = (torch.sigmoid(self.nets["discriminator"](z)) for z in (f, g))
        l_d = -sum(d_x.log()) / 6 - sum((1 - d_u).log()) / 5
        return plain_cross_entropy(self.nets["head"](f), y), l_d

    def step(self, y, p):
        lam = self.chosen.weight * (2 / (1 + math.exp(-self.chosen.gamma * p)) - 1)
        l_y, l_d = self.losses(y)
        sgd = self.players
        descend_together((sgd["features"], l_y - lam * l_d), (sgd["head"], l_y), (sgd["discriminator"], l_d))


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("more", [{}, {"weight": 0.3, "gamma": 4.0}, {"hidden": ()}], ids=str)
def test_weights_after_three_steps_equal_the_papers(norm, y, more):
    dann = learner(norm, **more)
    plain = PlainDann(dann.nets, settings(**more))
    for epoch in (0, 2, 7):
        dann.step(batch(y), at_epoch(epoch))
        plain.step(y, epoch / 10)
    torch.testing.assert_close(state(dann.nets), state(plain.nets), rtol=1e-9, atol=1e-12)


def test_scalars_are_the_losses_of_the_step():
    dann = learner()
    expected = PlainDann(dann.nets, settings()).losses(HARD)
    got = dann.step(batch(), at_epoch(5))
    assert [got["loss"].item(), got["domain"].item()] == pytest.approx([v.item() for v in expected])
    assert not any(value.requires_grad for value in got.values())


def test_at_first_features_do_not_feel_the_discriminator():
    with_u, without = learner(), learner()
    with_u.step(batch(), at_epoch(0))
    without.step(batch(u=U.flip(1)), at_epoch(0))
    torch.testing.assert_close(with_u.features.state_dict(), without.features.state_dict(), rtol=0, atol=0)
    assert not torch.equal(with_u.discriminator[0].weight, without.discriminator[0].weight)


def test_settings_progress_and_both_batches_change_the_result():
    def after(y=HARD, u=U, epoch=5, **more):
        dann = learner(**more)
        dann.step(batch(y, u), at_epoch(epoch))
        return dann.features.stages[0][0].weight.sum().item()

    results = [after(), after(gamma=2.0), after(weight=0.5), after(hidden=(8,)), after(epoch=6)]
    results += [after(y=SOFT), after(u=U.flip(1))]
    assert len({round(r, 12) for r in results}) == 7


def test_logits_are_those_of_the_classifier():
    dann = learner()
    torch.testing.assert_close(dann.logits(X), dann.head(dann.features(X))[None])
    assert dann.logits(X).shape == (1, 6, 3)
