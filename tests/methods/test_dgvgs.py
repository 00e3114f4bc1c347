"""DGvGS against Mansilla et al. 2021, written out parameter by parameter."""

from copy import deepcopy

import pytest
import torch

from builders import at_epoch, built, plain_cross_entropy, random_images
from ssdg.data.sets import Batch, LabeledBatch
from ssdg.methods.api import Sizes
from ssdg.methods.generalization.dgvgs import Dgvgs, DgvgsSettings

X = random_images(9, 0)
Y = torch.tensor([0, 1, 2, 2, 1, 0, 1, 1, 2])
DOMAIN = torch.tensor([0, 2, 0, 1, 2, 0, 2, 1, 0])
SETTINGS = {"lr": 0.1, "weight_decay": 0.01, "momentum": 0.5}


def learner(num_domains=1, norm=False, **settings):
    return built(Dgvgs, DgvgsSettings(**SETTINGS, **settings), norm, sizes=Sizes(3, num_domains))


def batch(domain):
    return Batch(LabeledBatch(X, Y, domain, domain == 0))


def plain_step(network, velocity, groups, conflict):
    """Signs are compared number by number; zeros, or noise of the mean size of what agrees in the whole network."""
    parameters = list(network.parameters())
    grads = [torch.autograd.grad(plain_cross_entropy(network(X[rows]), Y[rows]), parameters) for rows in groups]
    columns = [c for numbers in zip(*grads, strict=True) for c in zip(*(g.flatten() for g in numbers), strict=True)]
    agreed = [all(v > 0 for v in c) or all(v < 0 for v in c) for c in columns]
    size = sum(abs(sum(c)) for c, a in zip(columns, agreed, strict=True) if a) / sum(agreed)
    noise = torch.randn(len(columns)).double() * size if conflict == "random" else torch.zeros(len(columns))
    new = torch.stack([sum(c) if a else n for c, a, n in zip(columns, agreed, noise, strict=True)])
    at = 0
    with torch.no_grad():
        for p, v in zip(parameters, velocity, strict=True):
            g = new[at : at + p.numel()].view_as(p)
            at += p.numel()
            v.mul_(0.5).add_(g + 0.01 * p)
            p.sub_(0.1 * v)


# Under batch norm a bias has a gradient of rounding errors, whose signs noise would make matter.
@pytest.mark.parametrize(("norm", "conflict"), [(False, "zero"), (False, "random"), (True, "zero")])
@pytest.mark.parametrize("num_domains", [1, 3])
def test_weights_after_two_steps_equal_the_papers(num_domains, norm, conflict):
    ours = learner(num_domains, norm, conflict=conflict)
    network = deepcopy(ours.network)
    velocity = [torch.zeros_like(p) for p in network.parameters()]
    for seed in range(2):
        torch.manual_seed(seed)
        ours.step(batch(DOMAIN if num_domains == 3 else 0 * DOMAIN), at_epoch(0))
        torch.manual_seed(seed)
        if num_domains == 3:
            groups = [0, 2, 5, 8], [3, 7], [1, 4, 6]
        else:
            order = torch.randperm(9)
            groups = order[:3], order[3:6], order[6:]
        plain_step(network, velocity, groups, conflict)
    torch.testing.assert_close(ours.network.state_dict(), network.state_dict(), rtol=1e-9, atol=1e-12)


def rows_of(groups):
    return sorted(sorted(rows.tolist()) for rows in groups)


def test_groups_are_domains_or_equal_parts():
    assert rows_of(learner(3)._groups(DOMAIN)) == [[0, 2, 5, 8], [1, 4, 6], [3, 7]]
    parts = learner()._groups(torch.zeros(11))
    assert [len(part) for part in parts] == [4, 4, 3]
    assert sorted(torch.cat(parts).tolist()) == list(range(11))
    assert len(learner(groups=5)._groups(torch.zeros(11))) == 5


def test_a_group_has_two_images_at_least():
    assert [len(part) for part in learner()._groups(torch.zeros(5))] == [3, 2]
    assert [len(part) for part in learner()._groups(torch.zeros(2))] == [2]
    assert [len(part) for part in learner()._groups(torch.zeros(1))] == [1]
    assert rows_of(learner(3)._groups(torch.tensor([0, 0, 1, 2, 2]))) == [[0, 1], [3, 4]]
    assert rows_of(learner(3)._groups(torch.tensor([2, 0, 1]))) == [[0, 1, 2]]


def test_every_setting_and_the_domains_change_the_result():
    def after(domain=DOMAIN, num_domains=1, **settings):
        ours = learner(num_domains, **settings)
        torch.manual_seed(1)
        scalars = ours.step(batch(domain), at_epoch(0))
        assert 0 < scalars["agreed"] < 1
        return ours.network[1].weight.square().sum().item()

    results = [after(), after(groups=2), after(conflict="random"), after(num_domains=3)]
    results.append(after(DOMAIN.flip(0), num_domains=3))
    assert len({round(r, 12) for r in results}) == 5


def test_gradients_keep_the_layout_of_weights():
    ours = learner()
    ours.nets.to(memory_format=torch.channels_last)
    ours.step(batch(DOMAIN), at_epoch(0))
    for parameter in ours.network.parameters():
        assert parameter.grad.stride() == parameter.stride()
