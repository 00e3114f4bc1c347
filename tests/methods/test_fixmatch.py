"""FixMatch against Sohn et al. 2020, Eqs. 3 and 4, written out without the package's losses."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from builders import (
    PlainSGD,
    at_epoch,
    built,
    labeled_batch,
    plain_cross_entropy,
    random_images,
    soft_labels,
    state,
    unlabeled_batch,
    without_counts,
)
from ssdg.data.sets import Batch
from ssdg.methods import find_method
from ssdg.methods.api import Progress
from ssdg.methods.semi.fixmatch import FixMatch, FixMatchSettings

# One pixel of strong color each: predictions differ in confidence.
X, U, S = (8 * random_images(n, seed, size=1) - 4 for n, seed in ((4, 0), (12, 1), (12, 2)))
HARD = torch.tensor([0, 1, 2, 2])
SOFT = soft_labels(4)


def learner(norm=False, **changes):
    settings = FixMatchSettings(lr=0.1, weight_decay=0.01, **{"threshold": 0.43, **changes})
    return built(FixMatch, settings, norm)


def batch(y=HARD, u=U, s=S):
    return Batch(labeled_batch(X, y), unlabeled=replace(unlabeled_batch(u), strong=s))


class PlainFixMatch:
    """Pseudo-labels in one pass, labeled images and strong views in the next; `average` is averaged by hand."""

    def __init__(self, start, settings):
        self.network = deepcopy(start["network"])
        self.average = deepcopy(self.network.state_dict())
        self.sgd, self.cfg = PlainSGD(self.network.parameters(), settings), settings

    def step(self, y, step):
        weak = torch.softmax(self.network(U), 1).tolist()
        logits = self.network(torch.cat([X, S]))
        strong = torch.softmax(logits[4:], 1)
        kept = [(i, max(range(3), key=p.__getitem__)) for i, p in enumerate(weak) if max(p) >= self.cfg.threshold]
        loss_u = sum(-strong[i, k].log() for i, k in kept) / 12
        loss = plain_cross_entropy(logits[:4], y) + self.cfg.unlabeled_weight * loss_u
        self.sgd.descend(loss)
        decay = min(1 - 1 / (step + 1), self.cfg.ema_decay)
        for name, now in self.network.state_dict().items():
            self.average[name] = decay * self.average[name] + (1 - decay) * now
        return loss, len(kept)


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
def test_network_average_and_loss_equal_the_papers(norm, y):
    fixmatch = learner(norm, unlabeled_weight=0.7, ema_decay=0.6)
    plain, counts = PlainFixMatch(fixmatch.nets, fixmatch.settings), []
    for step in range(4):
        got, (loss, kept) = fixmatch.step(batch(y), Progress(1, 0, 1, step, 10)), plain.step(y, step)
        assert got["loss"].item() == pytest.approx(loss.item(), rel=1e-10)
        assert got["keep_rate"].item() == pytest.approx(kept / 12)
        assert not any(value.requires_grad for value in got.values())
        counts.append(kept)
    assert any(0 < kept < 12 for kept in counts)  # the threshold splits the batch
    average = fixmatch.nets["average"].average
    torch.testing.assert_close(state(fixmatch.nets["network"]), state(plain.network), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(state(average), without_counts(plain.average), rtol=1e-9, atol=1e-12)


def test_nothing_confident_leaves_the_labeled_loss_alone():
    fixmatch, other = learner(threshold=1.0), learner(unlabeled_weight=0.0)
    assert fixmatch.step(batch(), at_epoch(0))["loss_u"] == 0
    other.step(batch(), at_epoch(0))
    torch.testing.assert_close(fixmatch.nets.state_dict(), other.nets.state_dict())


def test_every_setting_view_and_label_changes_the_result():
    def after(y=HARD, u=U, s=S, **changes):
        fixmatch = learner(**changes)
        for step in (0, 1, 2):
            fixmatch.step(batch(y, u, s), Progress(1, 0, 1, step, 10))
        return round(fixmatch.nets["average"].average[0].stages[0][0].weight.sum().item(), 12)

    results = [after(), after(threshold=0.3), after(unlabeled_weight=0.5), after(ema_decay=0.3), after(y=SOFT)]
    results += [after(u=U.flip(1)), after(s=S.flip(1))]
    assert len(set(results)) == 7


def test_the_ratio_of_unlabeled_images_is_the_streams():
    method = find_method("fixmatch")
    assert method.inputs(None, None, FixMatchSettings()).ratio == 7
    assert method.inputs(None, None, FixMatchSettings(**method.presets["quick"])).ratio == 1
    assert method.inputs(None, None, FixMatchSettings()).views == ("strong",)


def test_the_average_is_evaluated():
    fixmatch = learner()
    fixmatch.step(batch(), at_epoch(0))
    fixmatch.step(batch(), at_epoch(5))
    assert fixmatch.logits(X).shape == (1, 4, 3)
    torch.testing.assert_close(fixmatch.logits(X)[0], fixmatch.nets["average"](X))
    assert not torch.equal(fixmatch.logits(X)[0], fixmatch.nets["network"](X))
