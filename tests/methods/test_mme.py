"""MME against Saito et al. 2019: both players' objectives, written out without gradient reversal."""

from copy import deepcopy

import pytest
import torch

from builders import HARD, LABELS, SOFT, PlainSGD, U, X, at_epoch, batch, built, plain_cross_entropy, state
from minimax import descend_together
from ssdg.methods.adaptation.mme import Mme, MmeSettings


def settings(**more):
    return MmeSettings(**{"lr": 0.01, "weight_decay": 0.01, **more})


def learner(norm=False, **more):
    return built(Mme, settings(**more), norm)


class PlainMme:
    """Features descend L + λH, the classifier L - λH; p = softmax(Wᵀf / (|f| T))."""

    def __init__(self, start, chosen):
        self.nets, self.chosen = deepcopy(start), chosen
        self.of_f = PlainSGD(self.nets["features"].parameters(), chosen)
        self.of_c = PlainSGD(self.nets["head"].parameters(), chosen)

    def losses(self, y):
        f, g = self.nets["features"](X), self.nets["features"](U)
        p = torch.softmax(self.scores(g), 1)
        h = -sum(p[i, k] * p[i, k].log() for i in range(5) for k in range(3)) / 5
        return plain_cross_entropy(self.scores(f), y), h

    def scores(self, f):
        unit = f / f.square().sum(1, keepdim=True).sqrt()
        return unit @ self.nets["head"].weight.T / self.chosen.temperature

    def step(self, y):
        loss, h = self.losses(y)
        lam = self.chosen.entropy_weight
        descend_together((self.of_f, loss + lam * h), (self.of_c, loss - lam * h))


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("more", [{}, {"entropy_weight": 0.7, "temperature": 0.3}], ids=str)
def test_weights_after_two_steps_equal_the_papers(norm, y, more):
    mme = learner(norm, **more)
    plain = PlainMme(mme.nets, settings(**more))
    for epoch in range(2):
        mme.step(batch(y), at_epoch(epoch))
        plain.step(y)
    torch.testing.assert_close(state(mme.nets), state(plain.nets), rtol=1e-8, atol=1e-11)


def test_scalars_are_the_losses_of_the_step():
    mme = learner()
    expected = PlainMme(mme.nets, settings()).losses(HARD)
    got = mme.step(batch(), at_epoch(0))
    assert [got["loss"].item(), got["entropy"].item()] == pytest.approx([v.item() for v in expected])
    assert not any(value.requires_grad for value in got.values())


def test_settings_and_both_batches_change_the_result():
    def after(y=HARD, u=U, **more):
        mme = learner(**more)
        mme.step(batch(y, u), at_epoch(0))
        return mme.features.stages[0][0].weight.sum().item()

    results = [after(), after(entropy_weight=0.2), after(temperature=0.1), after(y=SOFT), after(u=U.flip(1))]
    assert len({round(r, 12) for r in results}) == 5


def test_logits_ignore_the_length_of_features_and_scale_with_prototypes():
    mme = learner(temperature=0.5)
    logits = mme.logits(X)
    assert logits.shape == (1, 6, 3)
    torch.testing.assert_close(logits[0], PlainMme(mme.nets, settings(temperature=0.5)).scores(mme.features(X)))
