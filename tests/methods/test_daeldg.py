"""DAEL's generalization form against Zhou et al., 2021, written out without the package's losses and optimizers."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from builders import PlainSGD, at_epoch, built, labeled_batch, plain_cross_entropy, random_images, soft_labels
from ssdg.data.sets import Batch
from ssdg.methods import METHODS
from ssdg.methods.api import Sizes
from ssdg.methods.generalization.daeldg import DaelDg, DaelDgSettings

X, STRONG = random_images(7, 0), random_images(7, 1)
DOMAIN = torch.tensor([0, 0, 0, 1, 1, 2, 2])
HARD = torch.tensor([0, 1, 3, 2, 1, 0, 3])
SOFT = soft_labels(7, 4)


def learner(norm=False, num_domains=3, **settings):
    return built(DaelDg, DaelDgSettings(lr=0.1, weight_decay=0.01, **settings), norm, sizes=Sizes(4, num_domains))


def batch(y=HARD, domain=DOMAIN, x=X, strong=STRONG):
    return Batch(replace(labeled_batch(x, y), domain=domain, strong=strong))


class PlainDael:
    """CE(E_i(weak), y) + w ||mean_{j != i} E_j(strong) - E_i(weak)||^2, averaged over images, i their domain."""

    def __init__(self, start, settings, num_domains=3):
        self.nets, self.num_domains, self.weight = deepcopy(start), num_domains, settings.weight
        self.sgd = PlainSGD(self.nets.parameters(), settings)

    def expert(self, d, features):
        head = self.nets["experts"]
        weight, bias = head.weight.view(self.num_domains, 4, 5)[d], head.bias.view(self.num_domains, 4)[d]
        return features @ weight.T + bias

    def terms(self, y, domain):
        weak, strong = self.nets["features"](X), self.nets["features"](STRONG)
        classify, learn = [], []
        for i, d in enumerate(domain.tolist()):
            logits = self.expert(d, weak[i])
            classify.append(plain_cross_entropy(logits[None], y[i : i + 1]))
            others = [torch.softmax(self.expert(j, strong[i]), 0) for j in range(self.num_domains) if j != d]
            learn.append(((sum(others) / len(others) - torch.softmax(logits, 0).detach()) ** 2).sum())
        return sum(classify) / len(y), sum(learn) / len(y)

    def step(self, y, domain):
        classify, learn = self.terms(y, domain)
        self.sgd.descend(classify + self.weight * learn)


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_weights_after_two_steps_equal_the_papers(norm, y, weight):
    dael = learner(norm, weight=weight)
    plain = PlainDael(dael.nets, DaelDgSettings(lr=0.1, weight_decay=0.01, weight=weight))
    for _ in range(2):
        dael.step(batch(y), at_epoch(0))
        plain.step(y, DOMAIN)
    torch.testing.assert_close(dael.nets.state_dict(), plain.nets.state_dict(), rtol=1e-9, atol=1e-12)


def test_scalars_are_the_losses_of_the_step():
    dael = learner(weight=0.5)
    classify, learn = PlainDael(dael.nets, DaelDgSettings()).terms(HARD, DOMAIN)
    got = dael.step(batch(), at_epoch(0))
    expected = {"loss": classify + 0.5 * learn, "loss_expert": classify, "collaboration": learn}
    assert {k: v.item() for k, v in got.items()} == pytest.approx({k: v.item() for k, v in expected.items()})
    assert not any(value.requires_grad for value in got.values())


def test_a_batch_without_a_domain_still_teaches_its_expert():
    """Domain 2 is absent: its expert learns from the others' images alone, and the step equals the paper's."""
    dael, domain = learner(), DOMAIN.clamp(max=1)
    plain = PlainDael(dael.nets, DaelDgSettings(lr=0.1, weight_decay=0.01))
    before = dael.nets["experts"].weight.detach().clone()
    dael.step(batch(domain=domain), at_epoch(0))
    plain.step(HARD, domain)
    torch.testing.assert_close(dael.nets.state_dict(), plain.nets.state_dict(), rtol=1e-9, atol=1e-12)
    assert not torch.equal(before[8:], dael.nets["experts"].weight[8:])


def test_one_domain_is_plain_classification():
    dael, none = learner(num_domains=1), torch.zeros(7, dtype=torch.long)
    got = dael.step(batch(domain=none), at_epoch(0))
    assert got.keys() == {"loss", "loss_expert"}
    other = learner(num_domains=1, weight=0.0)
    other.step(batch(domain=none), at_epoch(0))
    torch.testing.assert_close(dael.nets.state_dict(), other.nets.state_dict())


def test_settings_labels_domains_and_both_views_change_the_result():
    def after(data, **settings):
        dael = learner(**settings)
        dael.step(data, at_epoch(0))
        return dael.nets["features"].stages[0][0].weight.sum().item()

    changed = [batch(), batch(SOFT), batch(domain=DOMAIN.flip(0)), batch(x=X.flip(1)), batch(strong=X)]
    results = [*map(after, changed), after(batch(), weight=0.5)]
    assert len({round(r, 12) for r in results}) == 6


def test_logits_are_those_of_every_expert():
    dael = learner()
    logits = dael.logits(X)
    assert logits.shape == (3, 7, 4)
    plain, features = PlainDael(dael.nets, DaelDgSettings()), dael.nets["features"](X)
    torch.testing.assert_close(logits, torch.stack([plain.expert(d, features) for d in range(3)]))


def test_the_engine_is_asked_for_balanced_batches_and_strong_views():
    assert METHODS["daeldg"].needs == ("balanced", "strong")
