"""The networks of `apl=self` and their moving averages, written out without the package's losses."""

from copy import deepcopy

import pytest
import torch

from builders import PlainSGD, built, plain_cross_entropy, random_images, state, without_counts
from ssdg.data.sets import Batch, LabeledBatch
from ssdg.engine.samples import pooled_features
from ssdg.methods.api import Progress
from ssdg.methods.eid.averaged import AveragedNetworks
from ssdg.methods.eid.settings import EidSettings
from ssdg.models.backbones import backbones_of

X = random_images(14, 0)
Y = torch.tensor([0, 1, 2, 0, 2, 0, 1, 1, 0, 2, 2, 1, 0, 0])
# Labels of four images are trusted; they stand between the ten pseudo-labels.
TRUSTED = torch.tensor([0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0]).bool()
LAST = 9  # of 10 epochs; with T_k = 6 the clean rate is 1/2 by then


def learner(norm=False, **changes):
    settings = EidSettings(apl="self", lr=0.5, weight_decay=0.01, **{"style": False, **changes})
    return built(AveragedNetworks, settings, norm)


def batch(x=X, y=Y, trusted=TRUSTED):
    return Batch(LabeledBatch(x, y, (~trusted).long(), trusted))


def at(epoch, step=0, steps=10, span=(0.0, 1.0)):
    return Progress(1, epoch, 10, step, steps, span)


def plain_diversity(logits):
    """Eq. divloss: sum_k E[p_k] log E[p_k] - E[sum_k p_k log p_k]."""
    p = torch.softmax(logits, 1)
    mean = [sum(p[i, k] for i in range(len(p))) / len(p) for k in range(3)]
    each = [sum(p[i, k] * p[i, k].log() for k in range(3)) for i in range(len(p))]
    return sum(m * m.log() for m in mean) - sum(each) / len(each)


class PlainAveraged:
    """One or two networks with separate updates; averages are dictionaries of weights and statistics."""

    def __init__(self, start, cfg):
        self.nets = [deepcopy(start[name]) for name in ("first", "second") if name in start]
        self.averages = [deepcopy(net.state_dict()) for net in self.nets]
        self.opts = [PlainSGD(net.parameters(), cfg) for net in self.nets]
        self.cfg = cfg

    def step(self, num_clean, position, exchange=True):
        """Learn all trusted labels and `num_clean` pseudo-labels at a position in the schedule."""
        outputs = [net(X) for net in self.nets]
        trusted, rest = ([i for i in range(14) if bool(TRUSTED[i]) is wanted] for wanted in (True, False))
        clean = []
        for logits in outputs:
            losses = {i: plain_cross_entropy(logits[i : i + 1], Y[i : i + 1]).item() for i in rest}
            clean.append(sorted(rest, key=losses.__getitem__)[:num_clean])
        if exchange:
            clean.reverse()
        losses = []
        for logits, others in zip(outputs, clean, strict=True):
            rows = trusted + others
            loss = plain_cross_entropy(logits[rows], Y[rows])
            losses.append(loss + plain_diversity(logits[rest]) if self.cfg.diversity else loss)
        for optimizer, loss in zip(self.opts, losses, strict=True):
            optimizer.descend(loss)
        decay = min(position / (position + 1), self.cfg.average_decay)
        for net, average in zip(self.nets, self.averages, strict=True):
            for name, value in net.state_dict().items():
                average[name] = decay * average[name] + (1 - decay) * value
        return sum(loss.item() for loss in losses)


def assert_equal(averaged, plain):
    for name, net, average in zip(("first", "second"), plain.nets, plain.averages, strict=False):
        torch.testing.assert_close(state(averaged.nets[name]), state(net), rtol=1e-9, atol=1e-12)
        computed = state(averaged.nets[f"{name}_average"].average)
        torch.testing.assert_close(computed, without_counts(average), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("diversity", [True, False])
@pytest.mark.parametrize(
    ("networks", "epoch", "num_clean"),
    [(2, 0, 10), (2, 3, 8), (2, 6, 5), (2, LAST, 5), (1, 0, 10), (1, LAST, 10)],
)
def test_losses_weights_and_averages_equal_the_description(networks, epoch, num_clean, diversity, norm):
    """Of ten pseudo-labels 1, 3/4, 1/2 and 1/2 are clean, rounded up; a single network learns all of them."""
    averaged = learner(norm, networks=networks, diversity=diversity, average_decay=0.6)
    plain = PlainAveraged(averaged.nets, averaged.settings)
    for step in range(4):  # the warm-up of the decay ends at step 2
        got = averaged.step(batch(), at(epoch, step))["loss"].item()
        assert got == pytest.approx(plain.step(num_clean, step), rel=1e-10)
    assert_equal(averaged, plain)


def test_each_of_two_networks_learns_what_the_other_finds_clean():
    averaged = learner()
    selfish = PlainAveraged(averaged.nets, averaged.settings)
    averaged.step(batch(), at(LAST))
    selfish.step(5, 0, exchange=False)
    with pytest.raises(AssertionError):
        assert_equal(averaged, selfish)


def test_without_dual_both_networks_learn_all_pseudo_labels():
    averaged = learner(dual=False)
    plain = PlainAveraged(averaged.nets, averaged.settings)
    averaged.step(batch(), at(LAST))
    plain.step(10, 0)
    assert_equal(averaged, plain)


@pytest.mark.parametrize("networks", [1, 2])
def test_without_averages_the_networks_predict(networks):
    """Averages of decay 0 would be copies of the networks."""
    averaged = learner(networks=networks, average_decay=0)
    assert list(averaged.nets) == ["first", "second"][:networks]
    plain = PlainAveraged(averaged.nets, averaged.settings)
    for step in range(3):
        averaged.step(batch(), at(LAST, step))
        plain.step(5 if networks == 2 else 10, step)
    torch.testing.assert_close(averaged.logits(X), torch.stack([net(X) for net in plain.nets]), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("networks", [1, 2])
def test_a_batch_of_the_labeled_domain_has_cross_entropy_alone(networks):
    averaged = learner(networks=networks)
    expected = sum(plain_cross_entropy(net(X), Y).item() for net in averaged.networks)
    got = averaged.step(batch(trusted=torch.ones(14, dtype=torch.bool)), at(LAST))
    assert set(got) == {"loss", "loss_l"}
    assert got["loss"].item() == pytest.approx(expected, rel=1e-10)


def test_scalars_add_up_and_are_detached():
    got = learner().step(batch(), at(0))
    assert set(got) == {"loss", "loss_l", "diversity"}
    assert (got["loss_l"] + got["diversity"]).item() == pytest.approx(got["loss"].item())
    assert not any(value.requires_grad for value in got.values())


@pytest.mark.parametrize("networks", [1, 2])
def test_logits_are_those_of_the_averages(networks):
    averaged = learner(norm=True, style=True, networks=networks, average_decay=0.5)
    for step in range(4):
        averaged.step(batch(), at(LAST, step))
    logits = averaged.logits(X)  # in training mode, in which styles are confused and statistics are the batch's
    assert logits.shape == (networks, 14, 3)
    assert not logits.requires_grad
    torch.testing.assert_close(averaged.logits(X), logits, rtol=0, atol=0)
    averaged.nets.eval()
    for index, name in enumerate(("first", "second")[:networks]):
        torch.testing.assert_close(logits[index], averaged.nets[f"{name}_average"](X), rtol=0, atol=0)
        assert not torch.allclose(logits[index], averaged.nets[name](X))


def weights_of(net):
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def test_averages_by_hand():
    """Decays 0, 1/2, 1/2: a copy after the first step, then half of what was and half of the network."""
    averaged, seen = learner(networks=1, average_decay=0.5), []
    for step in range(3):
        averaged.step(batch(), at(0, step))
        seen.append(weights_of(averaged.nets["first"]).clone())
    expected = 0.25 * seen[0] + 0.25 * seen[1] + 0.5 * seen[2]
    torch.testing.assert_close(weights_of(averaged.nets["first_average"]), expected, rtol=1e-12, atol=1e-15)


def test_the_warm_up_of_averages_continues_over_stages():
    """With a decay close to 1, averages are the mean of all weights so far, whichever stage these were of."""
    averaged, seen = learner(networks=1, average_decay=0.99), []
    for span, steps in (((0.0, 1 / 3), 2), ((1 / 3, 1.0), 4)):
        for step in range(steps):
            averaged.step(batch(), at(0, step, steps, span))
            seen.append(weights_of(averaged.nets["first"]).clone())
    mean = sum(seen) / 6
    torch.testing.assert_close(weights_of(averaged.nets["first_average"]), mean, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(sum(seen[2:]) / 4, mean)


def test_only_networks_are_optimized_and_they_start_where_their_averages_do():
    averaged = learner()
    first, second = (averaged.nets[name] for name in ("first", "second"))
    assert not torch.equal(weights_of(first), weights_of(second))
    for net, name in ((first, "first_average"), (second, "second_average")):
        assert torch.equal(weights_of(net), weights_of(averaged.nets[name]))
        assert not any(parameter.requires_grad for parameter in averaged.nets[name].parameters())
    optimized = {id(p) for group in averaged.opts["networks"].param_groups for p in group["params"]}
    assert optimized == {id(p) for net in (first, second) for p in net.parameters()}


def test_features_of_reports_are_those_of_the_first_average():
    averaged = learner(average_decay=0.5)
    for step in range(3):
        averaged.step(batch(), at(0, step))
    features = torch.from_numpy(pooled_features(averaged, [X]))
    (backbone,) = backbones_of(averaged.nets["first_average"])
    torch.testing.assert_close(features, backbone(X).float())


def test_every_setting_changes_the_result():
    def logits(**changes):
        averaged = learner(**{"style": True, **changes})
        torch.manual_seed(1)
        for step in range(3):
            averaged.step(batch(), at(LAST, step))
        return round(averaged.logits(X).double().square().sum().item(), 12)

    changes = [
        {},
        {"networks": 1},
        {"average_decay": 0.2},
        {"style": False},
        {"diversity": False},
        {"dual": False},
        {"delta": 0.9},
        {"momentum": 0.0},
    ]
    assert len({logits(**change) for change in changes}) == len(changes)
