"""MixMatch against Berthelot et al. 2019, Algorithm 1 and Eqs. 2 to 5, sample by sample."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from builders import (
    PlainSGD,
    at_epoch,
    built,
    labeled_batch,
    random_images,
    soft_labels,
    state,
    unlabeled_batch,
    without_counts,
)
from ssdg.config import resolve
from ssdg.data.sets import Batch
from ssdg.methods.api import Progress
from ssdg.methods.semi.mixmatch import MixMatch, MixMatchSettings

X, U, V = random_images(4, 0), random_images(3, 1), random_images(3, 2)
HARD = torch.tensor([0, 1, 2, 2])
SOFT = soft_labels(4)


def learner(norm=False, **changes):
    return built(MixMatch, MixMatchSettings(lr=0.1, weight_decay=0.01, **changes), norm)


def batch(y=HARD, u=U, v=V):
    return Batch(labeled_batch(X, y), unlabeled=replace(unlabeled_batch(u), second=v))


class PlainMixMatch:
    """The draws are those of the learner: a permutation, then a Beta variate for each of the ten images."""

    def __init__(self, start, settings):
        self.network = deepcopy(start["network"])
        self.average = deepcopy(self.network.state_dict())
        self.sgd, self.cfg = PlainSGD(self.network.parameters(), settings), settings

    def step(self, y, step, steps):
        pairs = self.mixed(self.labeled(y) + self.guessed())
        p = torch.softmax(self.network(torch.stack([x for x, _ in pairs])), 1)
        q = [target for _, target in pairs]
        loss_x = sum(-q[i][k] * p[i, k].log() for i in range(4) for k in range(3)) / 4
        loss_u = sum((q[i][k] - p[i, k]) ** 2 for i in range(4, 10) for k in range(3)) / 3 / 6
        loss = loss_x + self.cfg.unlabeled_weight * min(1, step / (self.cfg.ramp * steps)) * loss_u
        self.sgd.descend(loss)
        decay = min(1 - 1 / (step + 1), self.cfg.ema_decay)
        for name, now in self.network.state_dict().items():
            self.average[name] = decay * self.average[name] + (1 - decay) * now
        return loss

    def labeled(self, y):
        return list(zip(X, torch.eye(3, dtype=torch.float64)[y] if y.ndim == 1 else y, strict=True))

    def guessed(self):
        p = torch.softmax(self.network(torch.cat([U, V])), 1).detach()
        mean = [(p[i] + p[i + 3]) / 2 for i in range(3)]
        powers = [row ** (1 / self.cfg.temperature) for row in mean]
        sharp = [row / sum(row) for row in powers]
        return list(zip(torch.cat([U, V]), sharp + sharp, strict=True))

    def mixed(self, samples):
        partners = torch.randperm(10).tolist()
        alpha = torch.full((10,), self.cfg.alpha, dtype=torch.float64)
        out = []
        for sample, j, drawn in zip(samples, partners, torch.distributions.Beta(alpha, alpha).sample(), strict=True):
            share = max(drawn, 1 - drawn)
            out.append([share * a + (1 - share) * b for a, b in zip(sample, samples[j], strict=True)])
        return out


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
def test_network_average_and_loss_equal_the_papers(norm, y):
    mixmatch = learner(norm, unlabeled_weight=5, ema_decay=0.6, ramp=0.2)
    plain = PlainMixMatch(mixmatch.nets, mixmatch.settings)
    for step in range(4):  # the ramp ends at step 2
        torch.manual_seed(step)
        got = mixmatch.step(batch(y), Progress(1, 0, 1, step, 10))
        torch.manual_seed(step)
        assert got["loss"].item() == pytest.approx(plain.step(y, step, 10).item(), rel=1e-10)
        assert not any(value.requires_grad for value in got.values())
    average = mixmatch.nets["average"].average
    torch.testing.assert_close(state(mixmatch.nets["network"]), state(plain.network), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(state(average), without_counts(plain.average), rtol=1e-9, atol=1e-12)


def test_every_setting_view_and_label_changes_the_result():
    def after(y=HARD, u=U, v=V, **changes):
        mixmatch = learner(**changes)
        for step in (0, 1, 2):
            torch.manual_seed(step)
            mixmatch.step(batch(y, u, v), Progress(1, 0, 1, step, 10))
        return round(mixmatch.nets["average"].average[0].stages[0][0].weight.sum().item(), 12)

    results = [after(), after(temperature=0.9), after(alpha=0.2), after(unlabeled_weight=5), after(ramp=0.1)]
    results += [after(ema_decay=0.3), after(y=SOFT), after(u=U.flip(1)), after(v=V.flip(1))]
    assert len(set(results)) == 9


def test_the_average_is_evaluated():
    mixmatch = learner()
    mixmatch.step(batch(), at_epoch(0))
    mixmatch.step(batch(), at_epoch(5))
    assert mixmatch.logits(X).shape == (1, 4, 3)
    torch.testing.assert_close(mixmatch.logits(X)[0], mixmatch.nets["average"](X))
    assert not torch.equal(mixmatch.logits(X)[0], mixmatch.nets["network"](X))


@pytest.mark.parametrize(
    ("preset", "kind", "weight"), [("paper", "none", 75), ("quick", "photo", 75), ("quick", "none", 10)]
)
def test_the_weight_is_lower_where_training_is_short_and_from_random_weights(preset, kind, weight):
    config = {"method": "mixmatch", "preset": preset, "labeled": "a"}
    assert resolve(config, kind=kind, size=32).settings.unlabeled_weight == weight
