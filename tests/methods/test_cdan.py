"""CDAN and CDAN+E against Long et al. 2018, written out without gradient reversal."""

import math
from copy import deepcopy

import pytest
import torch

from builders import HARD, LABELS, SOFT, PlainSGD, U, X, at_epoch, batch, built, plain_cross_entropy, state
from minimax import descend_together
from ssdg.methods.adaptation.cdan import Cdan, CdanESettings, CdanSettings
from ssdg.methods.api import METHODS


def settings(**more):
    return CdanSettings(**{"lr": 0.1, "weight_decay": 0.01, "hidden": (7,), **more})


def learner(norm=False, **more):
    return built(Cdan, settings(**more), norm)


class PlainCdan:
    """D descends E(D, G), G = (features, classifier) descends the cross-entropy minus λ E(D, G)."""

    def __init__(self, start, chosen):
        self.nets, self.chosen = deepcopy(start), chosen
        names = ("features", "head", "discriminator")
        self.players = {name: PlainSGD(self.nets[name].parameters(), chosen) for name in names}

    def losses(self, y):
        f, g = self.nets["features"](X), self.nets["features"](U)
        domain = self.side(f, labeled=True) + self.side(g, labeled=False)
        return plain_cross_entropy(self.nets["head"](f), y), domain

    def side(self, f, labeled):
        """The mean over one domain of -w log D or -w log(1 - D)."""
        g = torch.softmax(self.nets["head"](f), 1)
        g = g if self.chosen.through_predictions else g.detach()
        d = torch.sigmoid(self.nets["discriminator"](self.joint(f, g)))[:, 0]
        w = 1 + (g * g.log()).sum(1).exp() if self.chosen.entropy else torch.ones_like(d)
        w = w / w.mean().item()
        terms = [-w[i] * (d[i] if labeled else 1 - d[i]).log() for i in range(len(d))]
        return sum(terms) / len(terms)

    def joint(self, f, g):
        if self.chosen.exact_up_to >= 15:  # 5 features times 3 classes
            return torch.stack([torch.outer(g[i], f[i]).flatten() for i in range(len(f))])
        condition = self.nets["condition"]
        return (f @ condition.map_f) * (g @ condition.map_g) / math.sqrt(self.chosen.random_width)

    def step(self, y, p):
        lam = self.chosen.weight * (2 / (1 + math.exp(-self.chosen.gamma * p)) - 1)
        l_y, e = self.losses(y)
        sgd = self.players
        descend_together((sgd["features"], l_y - lam * e), (sgd["head"], l_y - lam * e), (sgd["discriminator"], e))


VARIANTS = [
    {},
    {"entropy": True},
    {"through_predictions": True},
    {"entropy": True, "through_predictions": True, "weight": 0.4},
    {"exact_up_to": 14, "random_width": 6, "gamma": 3.0},
    {"exact_up_to": 0, "entropy": True},
]


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("more", VARIANTS, ids=str)
def test_weights_after_three_steps_equal_the_papers(norm, y, more):
    cdan = learner(norm, **more)
    plain = PlainCdan(cdan.nets, settings(**more))
    for epoch in (0, 2, 7):
        cdan.step(batch(y), at_epoch(epoch))
        plain.step(y, epoch / 10)
    torch.testing.assert_close(state(cdan.nets), state(plain.nets), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("more", VARIANTS, ids=str)
def test_scalars_are_the_losses_of_the_step(more):
    cdan = learner(**more)
    expected = PlainCdan(cdan.nets, settings(**more)).losses(HARD)
    got = cdan.step(batch(), at_epoch(5))
    assert [got["loss"].item(), got["domain"].item()] == pytest.approx([v.item() for v in expected])
    assert not any(value.requires_grad for value in got.values())


def test_predictions_are_constants_unless_asked_for():
    """Other unlabeled images move the classifier only through the predictions."""

    def head_after(u, **more):
        cdan = learner(**more)
        cdan.step(batch(u=u), at_epoch(9))
        return cdan.head.weight.detach()

    assert torch.equal(head_after(U, entropy=True), head_after(U.flip(1), entropy=True))
    through = {"entropy": True, "through_predictions": True}
    assert not torch.equal(head_after(U, **through), head_after(U.flip(1), **through))


def test_random_maps_are_kept_with_the_weights_and_never_move():
    cdan = learner(exact_up_to=14, random_width=6)
    maps = {name: value.clone() for name, value in cdan.nets["condition"].state_dict().items()}
    assert {name: tuple(value.shape) for name, value in maps.items()} == {"map_f": (5, 6), "map_g": (3, 6)}
    cdan.step(batch(), at_epoch(5))
    torch.testing.assert_close(cdan.nets["condition"].state_dict(), maps, rtol=0, atol=0)
    assert not learner(exact_up_to=15).nets["condition"].state_dict()  # 5 features times 3 classes


def test_settings_progress_and_both_batches_change_the_result():
    def after(y=HARD, u=U, epoch=5, **more):
        cdan = learner(**more)
        cdan.step(batch(y, u), at_epoch(epoch))
        return cdan.features.stages[0][0].weight.sum().item()

    results = [after(**more) for more in VARIANTS] + [after(gamma=2.0), after(weight=0.5), after(hidden=(8,))]
    results += [after(epoch=6), after(y=SOFT), after(u=U.flip(1))]
    assert len({round(r, 12) for r in results}) == len(results)


def test_cdan_e_is_cdan_with_entropy_weights():
    assert METHODS["cdan-e"].learner is METHODS["cdan"].learner is Cdan
    assert CdanESettings().model_dump() == {**CdanSettings().model_dump(), "entropy": True}


def test_logits_are_those_of_the_classifier():
    cdan = learner()
    torch.testing.assert_close(cdan.logits(X), cdan.head(cdan.features(X))[None])
    assert cdan.logits(X).shape == (1, 6, 3)
