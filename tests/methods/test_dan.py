"""DAN against Long et al. 2015, Eq. 4 (all kernels of equal weight), with discrepancies as double sums."""

from copy import deepcopy

import pytest
import torch

from builders import HARD, SOFT, PlainSGD, U, X, at_epoch, batch, built, plain_cross_entropy, state
from plain_mmd import plain_mmd
from ssdg.errors import UserError
from ssdg.methods.adaptation.dan import Dan, DanSettings

FACTORS = (1 / 4, 1 / 2, 1, 2, 4)


def learner(norm=False, **changes):
    return built(Dan, DanSettings(lr=0.1, weight_decay=0.01, **changes), norm)


class PlainDan:
    """Cross-entropy plus the weighted discrepancies of both layers; all images in one pass."""

    def __init__(self, start, settings):
        self.nets = deepcopy(start)
        self.sgd = PlainSGD(self.nets.parameters(), settings)
        self.weight = settings.mmd_weight

    def step(self, y):
        features = self.nets["features"](torch.cat([X, U]))
        logits = self.nets["head"](features)
        mmd = sum(plain_mmd([(layer[:6], layer[6:])], FACTORS) for layer in (features, logits))
        loss = plain_cross_entropy(logits[:6], y) + self.weight * mmd
        self.sgd.descend(loss)
        return loss, mmd


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
def test_weights_and_losses_of_two_steps_equal_the_papers(norm, y):
    dan = learner(norm, mmd_weight=0.7)
    plain = PlainDan(dan.nets, dan.settings)
    for _ in range(2):
        got, (loss, mmd) = dan.step(batch(y), at_epoch(0)), plain.step(y)
        assert got["loss"].item() == pytest.approx(loss.item(), rel=1e-10)
        assert got["mmd"].item() == pytest.approx(mmd.item(), rel=1e-8)
        assert not any(value.requires_grad for value in got.values())
    torch.testing.assert_close(state(dan.nets), state(plain.nets), rtol=1e-9, atol=1e-12)


def test_the_weight_of_the_discrepancy_does_not_depend_on_time():
    first, last = learner(), learner()
    first.step(batch(), at_epoch(0))
    last.step(batch(), at_epoch(9))
    torch.testing.assert_close(first.nets.state_dict(), last.nets.state_dict(), rtol=0, atol=0)


def test_settings_and_both_batches_change_the_result():
    def after(y=HARD, u=U, **changes):
        dan = learner(**changes)
        dan.step(batch(y, u), at_epoch(0))
        return round(dan.nets["features"].stages[0][0].weight.sum().item(), 12)

    results = [after(), after(mmd_weight=0.5), after(num_kernels=3), after(y=SOFT), after(u=U.flip(1))]
    assert len(set(results)) == 5


def test_logits_are_those_of_the_one_network():
    dan = learner()
    torch.testing.assert_close(dan.logits(X), dan.nets["head"](dan.nets["features"](X)).unsqueeze(0))


def test_a_batch_of_one_image_is_refused_in_one_sentence():
    with pytest.raises(UserError, match="not 6 and 1; raise batch"):
        learner().step(batch(u=U[:1]), at_epoch(0))
