"""MixStyle against Zhou et al. 2021, Eqs. 4 to 6, written out in the plain network."""

from copy import deepcopy

import pytest
import torch

from builders import PlainSGD, at_epoch, built, labeled_batch, plain_cross_entropy, random_images
from ssdg.data.sets import Batch
from ssdg.methods.generalization.mixstyle import MixStyle, MixStyleSettings

X = random_images(6, 0)
Y = torch.tensor([0, 1, 2, 2, 1, 0])
SETTINGS = {"lr": 0.1, "weight_decay": 0.01}


def learner(**settings):
    return built(MixStyle, MixStyleSettings(**SETTINGS, **settings))


def mixed(maps, alpha):
    """gamma (x - mu) / sigma + beta with mu, sigma of no gradient; a coefficient and a partner per image."""
    lam = torch.distributions.Beta(*[torch.full((6,), alpha, dtype=torch.float64)] * 2).sample()
    partner = torch.randperm(6)
    out = []
    for i in range(6):
        mine, other = maps[i].detach(), maps[partner[i]].detach()
        mu, sigma = mine.mean((1, 2)), mine.var((1, 2), correction=0).sqrt()
        divisor = (sigma + 1e-3)[:, None, None]  # as our style layers have it
        beta = lam[i] * mu + (1 - lam[i]) * other.mean((1, 2))
        gamma = lam[i] * sigma + (1 - lam[i]) * other.var((1, 2), correction=0).sqrt()
        out.append(gamma[:, None, None] * (maps[i] - mu[:, None, None]) / divisor + beta[:, None, None])
    return torch.stack(out)


def plain_loss(network, settings):
    maps = X
    for number, stage in enumerate(network[0].stages):
        maps = stage(maps)
        if number < settings.stages:
            if settings.probability < 1 and torch.rand(()).item() >= settings.probability:
                continue
            maps = mixed(maps, settings.alpha)
    return plain_cross_entropy(network[1](maps.mean((2, 3))), Y)


@pytest.mark.parametrize("more", [{"probability": 1.0}, {}, {"probability": 1.0, "stages": 2, "alpha": 0.7}])
def test_weights_after_three_steps_equal_the_papers(more):
    settings = MixStyleSettings(**SETTINGS, **more)
    ours = learner(**more)
    network = deepcopy(ours.network)
    for stage in network[0].stages:
        stage._forward_hooks.clear()
    plain = PlainSGD(network.parameters(), settings)
    for seed in range(3):
        torch.manual_seed(seed)
        ours.step(Batch(labeled_batch(X, Y)), at_epoch(0))
        torch.manual_seed(seed)
        plain.descend(plain_loss(network, settings))
    torch.testing.assert_close(ours.network.state_dict(), network.state_dict(), rtol=1e-9, atol=1e-12)


def test_every_setting_changes_the_result():
    def after(**settings):
        ours = learner(**settings)
        torch.manual_seed(5)
        ours.step(Batch(labeled_batch(X, Y)), at_epoch(0))
        return ours.network[1].weight.square().sum().item()

    results = [after(probability=p, **more) for p in (0.0, 1.0) for more in ({}, {"alpha": 3.0}, {"stages": 1})]
    assert len({round(r, 12) for r in results[:3]}) == 1  # nothing to mix
    assert len({round(r, 12) for r in results}) == 4


def test_evaluation_does_not_mix_and_the_state_is_that_of_a_plain_network():
    ours = learner(probability=1.0)
    ours.nets.eval()
    torch.testing.assert_close(ours.logits(X[:1])[0], ours.logits(X)[0, :1])
    assert {name.split(".")[1] for name in ours.nets.state_dict()} == {"0", "1"}
    assert len(ours.nets.state_dict()) == 2 * 3 + 2
