"""DDAIG against Zhou et al., AAAI 2020, written out without the package's losses and optimizers."""

from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from builders import (
    HARD,
    SOFT,
    PlainSGD,
    TinyBackbone,
    at_epoch,
    built,
    labeled_batch,
    plain_cross_entropy,
    random_images,
    state,
)
from ssdg.data.sets import Batch
from ssdg.methods.api import Sizes
from ssdg.methods.generalization.ddaig import Ddaig, DdaigSettings, frozen
from ssdg.models.backbones import build_backbone
from ssdg.models.common import IMAGENET_STD

X = random_images(6, 0, size=4)
DOMAIN = torch.tensor([0, 2, 1, 1, 0, 2])


def make_settings(**settings):
    return DdaigSettings(**{"lr": 0.1, "weight_decay": 0.01, "width": 4, **settings})


def learner(norm=False, **settings):
    return built(Ddaig, make_settings(**settings), norm, sizes=Sizes(3, 3))


def batch(y=HARD, domain=DOMAIN, x=X):
    return Batch(replace(labeled_batch(x, y), domain=domain))


class PlainDdaig:
    """T: min CE(F(x~), y) - CE(D(x~), d); F: min (1 - a) CE(F(x), y) + a CE(F(x~), y); D: min CE(D(x), d)."""

    def __init__(self, start, settings):
        self.nets, self.settings = deepcopy(start), settings
        self.F, self.D, self.T = (self.nets[name] for name in ("network", "domains", "perturbation"))
        self.of_f, self.of_d, self.of_t = (PlainSGD(net.parameters(), settings) for net in (self.F, self.D, self.T))

    def step(self, y, warm=False):
        untouched = deepcopy(self.F), deepcopy(self.D)  # what T learns from stays as it is
        changed = X + self.settings.strength * self.T(X)
        self.of_t.descend(
            plain_cross_entropy(untouched[0](changed), y) - plain_cross_entropy(untouched[1](changed), DOMAIN)
        )
        alpha = self.settings.alpha
        loss = plain_cross_entropy(self.F(X), y)
        if not warm:
            changed = (X + self.settings.strength * self.T(X)).detach()
            loss = (1 - alpha) * loss + alpha * plain_cross_entropy(self.F(changed), y)
        self.of_f.descend(loss)
        self.of_d.descend(plain_cross_entropy(self.D(X), DOMAIN))


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
@pytest.mark.parametrize("settings", [{}, {"alpha": 0.2, "strength": 0.7}, {"warmup": 1}], ids=str)
def test_weights_after_two_steps_equal_the_papers(norm, y, settings):
    """With a warm-up of one epoch, the first of two epochs leaves changed images out."""
    ddaig = learner(norm, **settings)
    plain = PlainDdaig(ddaig.nets, make_settings(**settings))
    for epoch in range(2):
        ddaig.step(batch(y), at_epoch(epoch))
        plain.step(y, warm=epoch < settings.get("warmup", 0))
    torch.testing.assert_close(state(ddaig.nets), state(plain.nets), rtol=1e-9, atol=1e-12)


def test_scalars_are_the_losses_of_the_step():
    ddaig = learner(warmup=1)
    plain = PlainDdaig(ddaig.nets, make_settings())
    changed = X + 0.3 * plain.T(X)
    expected = {
        "loss": plain_cross_entropy(plain.F(X), HARD),
        "kept": plain_cross_entropy(plain.F(changed), HARD),
        "fooled": plain_cross_entropy(plain.D(changed), DOMAIN),
        "loss_domain": plain_cross_entropy(plain.D(X), DOMAIN),
    }
    got = ddaig.step(batch(), at_epoch(0))
    assert {k: v.item() for k, v in got.items()} == pytest.approx({k: v.item() for k, v in expected.items()})
    assert not any(value.requires_grad for value in got.values())


def test_each_part_of_the_step_moves_only_its_own_network():
    ddaig, moves = learner(norm=True), []
    before = deepcopy(state(ddaig.nets))

    def record(*_):
        now = deepcopy(state(ddaig.nets))
        moves.append({n.split(".")[0] for n in now if not torch.equal(now[n], before[n]) and "running" not in n})
        before.update(now)

    for optimizer in ddaig.opts.values():
        optimizer.register_step_post_hook(record)
    ddaig.step(batch(), at_epoch(0))
    assert moves == [{"perturbation"}, {"network"}, {"domains"}]


def test_fixed_networks_pass_gradients_on_and_change_in_nothing():
    net = TinyBackbone(norm=True).double()
    net.stages[1][0].weight.requires_grad_(False)  # some weights may be frozen for good
    before, x = deepcopy(state(net)), X.clone().requires_grad_()
    with frozen(net):
        net(x).sum().backward()
    assert x.grad.abs().sum() > 0
    assert all(p.grad is None for p in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in state(net).items())
    assert [n for n, p in net.named_parameters() if not p.requires_grad] == ["stages.1.0.weight"]
    net(x).sum().backward()
    assert not torch.equal(state(net)["stages.0.1.running_mean"], before["stages.0.1.running_mean"])


def test_the_perturbation_learns_to_keep_the_class_and_to_lose_the_domain():
    """With fixed classifiers, the difference that the perturbation minimizes falls with every step."""
    ddaig = learner(lr=0.3, momentum=0.0, weight_decay=0.0)
    for name in ("network", "domains"):
        for group in ddaig.opts[name].param_groups:
            group["lr"] = 0.0
    scalars = [ddaig.step(batch(), at_epoch(0)) for _ in range(10)]
    gaps = [float(t["kept"] - t["fooled"]) for t in scalars]
    assert all(later < earlier for earlier, later in pairwise(gaps))


def test_settings_labels_and_domains_change_the_result():
    def after(data=None, **settings):
        ddaig = learner(**settings)
        for _ in range(2):
            ddaig.step(data or batch(), at_epoch(0))
        return ddaig.nets["network"][0].stages[0][0].weight.sum().item()

    results = [after(), after(batch(SOFT)), after(batch(domain=DOMAIN.flip(0))), after(batch(x=X.flip(1)))]
    results += [after(strength=0.1), after(alpha=0.1), after(warmup=1), after(width=5), after(momentum=0.5)]
    assert len({round(r, 12) for r in results}) == 9


def test_one_domain_has_nothing_to_fool():
    torch.manual_seed(0)
    ddaig = Ddaig(TinyBackbone, Sizes(3, 1), make_settings())
    ddaig.nets.double()
    got = ddaig.step(batch(domain=torch.zeros(6, dtype=torch.long)), at_epoch(0))
    assert got["fooled"] == got["loss_domain"] == 0
    assert all(p.isfinite().all() for p in ddaig.nets.parameters())


def test_logits_are_those_of_the_classifier():
    ddaig = learner()
    torch.testing.assert_close(ddaig.logits(X), ddaig.nets["network"](X)[None])


@pytest.mark.parametrize(
    ("backbone", "most"), [("resnet18", [0.3 * s for s in IMAGENET_STD]), ("digits-cnn", [0.15] * 3)]
)
def test_the_strength_is_that_of_normalized_images(backbone, most):
    """The release adds 0.3 · tanh to normalized images: ±0.0687 for red in [0, 1] with ImageNet's statistics."""
    torch.manual_seed(0)
    ddaig = Ddaig(lambda: build_backbone(backbone), Sizes(3, 3), make_settings())
    ddaig.perturbation = torch.nn.Module()
    ddaig.perturbation.forward = torch.ones_like
    changes = ddaig._perturb(torch.zeros(2, 3, 32, 32)).amax((0, 2, 3))
    torch.testing.assert_close(changes, torch.tensor(most))
