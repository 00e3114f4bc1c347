"""OSBP against Saito et al. 2018 (open set), written out without gradient reversal."""

from copy import deepcopy

import pytest
import torch

from builders import HARD, LABELS, SOFT, PlainSGD, U, X, at_epoch, batch, built, state
from minimax import descend_together
from ssdg.methods.adaptation.osbp import Osbp, OsbpSettings


def settings(**more):
    return OsbpSettings(**{"lr": 0.1, "weight_decay": 0.01, **more})


def learner(norm=False, **more):
    return built(Osbp, settings(**more), norm)


class PlainOsbp:
    """The classifier descends L_s + λ L_adv, the generator L_s - λ L_adv; class 3 is 'unknown'."""

    def __init__(self, start, chosen):
        self.nets, self.chosen = deepcopy(start), chosen
        self.of_g = PlainSGD(self.nets["features"].parameters(), chosen)
        self.of_c = PlainSGD(self.nets["head"].parameters(), chosen)

    def losses(self, y):
        p, q = (torch.softmax(self.nets["head"](self.nets["features"](images)), 1) for images in (X, U))
        soft = y if y.ndim == 2 else torch.eye(3, dtype=torch.float64)[y]
        l_s = -sum(soft[i, k] * p[i, k].log() for i in range(6) for k in range(3)) / 6
        t = self.chosen.boundary
        l_adv = sum(-t * q[i, 3].log() - (1 - t) * (1 - q[i, 3]).log() for i in range(5)) / 5
        return l_s, l_adv

    def step(self, y):
        l_s, l_adv = self.losses(y)
        lam = self.chosen.weight
        descend_together((self.of_g, l_s - lam * l_adv), (self.of_c, l_s + lam * l_adv))


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("more", [{}, {"boundary": 0.3, "weight": 0.2}], ids=str)
def test_weights_after_two_steps_equal_the_papers(norm, y, more):
    osbp = learner(norm, **more)
    plain = PlainOsbp(osbp.nets, settings(**more))
    for epoch in range(2):
        osbp.step(batch(y), at_epoch(epoch))
        plain.step(y)
    torch.testing.assert_close(state(osbp.nets), state(plain.nets), rtol=1e-9, atol=1e-12)


def test_scalars_are_the_losses_of_the_step():
    osbp = learner()
    expected = PlainOsbp(osbp.nets, settings()).losses(HARD)
    got = osbp.step(batch(), at_epoch(0))
    assert [got["loss"].item(), got["boundary"].item()] == pytest.approx([v.item() for v in expected])
    assert not any(value.requires_grad for value in got.values())


def test_settings_and_both_batches_change_the_result():
    def after(y=HARD, u=U, **more):
        osbp = learner(**more)
        osbp.step(batch(y, u), at_epoch(0))
        return osbp.features.stages[0][0].weight.sum().item()

    results = [after(), after(boundary=0.6), after(weight=0.5), after(y=SOFT), after(u=U.flip(1))]
    assert len({round(r, 12) for r in results}) == 5


def test_logits_are_those_of_the_known_classes_and_unknown_is_the_rest():
    osbp = learner()
    probs = osbp.head(osbp.features(X)).softmax(1)
    assert osbp.logits(X).shape == (1, 6, 3)
    torch.testing.assert_close(osbp.logits(X)[0].softmax(1), probs[:, :3] / probs[:, :3].sum(1, keepdim=True))
    torch.testing.assert_close(osbp.open_logits(X)[0].softmax(-1), probs)
