"""MCD against Saito et al. 2018, section 3.3, written out without the package's losses and optimizers."""

from copy import deepcopy

import pytest
import torch

from builders import HARD, SOFT, PlainSGD, U, X, at_epoch, batch, built, plain_cross_entropy, state
from ssdg.methods.adaptation.mcd import Mcd, McdSettings


def learner(norm=False, **settings):
    return built(Mcd, McdSettings(lr=0.1, weight_decay=0.01, **settings), norm)


class PlainMcd:
    """Steps A, B and C, every pass of the feature extractor computed afresh."""

    def __init__(self, start, settings):
        self.nets = deepcopy(start)
        self.G, (self.F1, self.F2) = self.nets["features"], self.nets["heads"]
        self.of_g = PlainSGD(self.G.parameters(), settings)
        self.of_f = PlainSGD(self.nets["heads"].parameters(), settings)
        self.of_all = PlainSGD(self.nets.parameters(), settings)
        self.of_all.velocity = [*self.of_g.velocity, *self.of_f.velocity]  # one memory of the past per parameter
        self.n = settings.inner_steps

    def step(self, y):
        self.of_all.descend(self.classify(y))  # A
        self.of_f.descend(self.classify(y) - self.discrepancy())  # B
        for _ in range(self.n):  # C
            self.of_g.descend(self.discrepancy())

    def classify(self, y):
        f = self.G(X)
        return plain_cross_entropy(self.F1(f), y) + plain_cross_entropy(self.F2(f), y)

    def discrepancy(self):
        f = self.G(U)
        p, q = torch.softmax(self.F1(f), 1), torch.softmax(self.F2(f), 1)
        return sum(abs(p[i, k] - q[i, k]) for i in range(5) for k in range(3)) / 3 / 5


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize("inner_steps", [1, 4])
def test_weights_after_two_steps_equal_the_papers(norm, y, inner_steps):
    mcd = learner(norm, inner_steps=inner_steps)
    plain = PlainMcd(mcd.nets, McdSettings(lr=0.1, weight_decay=0.01, inner_steps=inner_steps))
    for _ in range(2):
        mcd.step(batch(y), at_epoch(0))
        plain.step(y)
    torch.testing.assert_close(state(mcd.nets), state(plain.nets), rtol=1e-9, atol=1e-12)


def test_scalars_are_the_losses_of_the_step():
    mcd = learner(inner_steps=1)
    plain = PlainMcd(mcd.nets, McdSettings(lr=0.1, weight_decay=0.01))
    got = mcd.step(batch(), at_epoch(0))
    expected = plain.classify(HARD)
    plain.of_all.descend(expected)
    assert got["loss"].item() == pytest.approx(expected.item())
    assert got["discrepancy"].item() == pytest.approx(plain.discrepancy().item())
    assert not any(value.requires_grad for value in got.values())


def test_each_part_of_the_step_moves_only_its_own_weights():
    mcd, moves = learner(inner_steps=3), []
    before = deepcopy(mcd.nets.state_dict())

    def record(*_):
        now = deepcopy(mcd.nets.state_dict())
        moves.append({name.split(".")[0] for name in now if not torch.equal(now[name], before[name])})
        before.update(now)

    for optimizer in mcd.opts.values():
        optimizer.register_step_post_hook(record)
    mcd.step(batch(), at_epoch(0))
    # A moves both, one optimizer after the other; B the classifiers; C three times the features
    assert moves == [{"features"}, {"heads"}, {"heads"}, {"features"}, {"features"}, {"features"}]


def test_settings_and_both_batches_change_the_result():
    def after(y=HARD, u=U, **settings):
        mcd = learner(**settings)
        mcd.step(batch(y, u), at_epoch(0))
        return mcd.nets["features"].stages[0][0].weight.sum().item()

    results = [after(), after(inner_steps=2), after(momentum=0.5), after(y=SOFT), after(u=U.flip(1))]
    assert len({round(r, 12) for r in results}) == 5


def test_logits_are_those_of_both_classifiers():
    mcd = learner()
    both = mcd.logits(X)
    assert both.shape == (2, 6, 3)
    torch.testing.assert_close(both[1], mcd.nets["heads"][1](mcd.nets["features"](X)))
    assert not torch.equal(both[0], both[1])
