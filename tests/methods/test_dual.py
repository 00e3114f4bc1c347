"""DCG against Eq. allloss and lines 8 to 17 of Algorithm 1, written out without the package's losses."""

from copy import deepcopy

import pytest
import torch

from builders import PlainSGD, at_epoch, built, labeled_batch, plain_cross_entropy, random_images
from ssdg.data.sets import Batch
from ssdg.methods.eid.dual import DualNetworks
from ssdg.methods.eid.settings import EidSettings

X, U = random_images(4, 0), random_images(10, 1)
Y, Q = torch.tensor([0, 1, 2, 0]), torch.tensor([2, 0, 1, 1, 0, 2, 2, 1, 0, 0])
LAST = 9  # of 10 epochs; with T_k = 6 the clean rate is 1/2 by then


def settings(**changes):
    return EidSettings(lr=0.5, weight_decay=0.01, **{"style": False, **changes})


def learner(**changes):
    return built(DualNetworks, settings(**changes))


def batch(x=X, y=Y, u=U, q=Q):
    return Batch(labeled_batch(x, y), labeled_batch(u, q, trusted=False))


def plain_diversity(logits):
    """Eq. divloss: sum_k E[p_k] log E[p_k] - E[sum_k p_k log p_k]."""
    p = torch.softmax(logits, 1)
    mean = [sum(p[i, k] for i in range(len(p))) / len(p) for k in range(3)]
    each = [sum(p[i, k] * p[i, k].log() for k in range(3)) for i in range(len(p))]
    return sum(m * m.log() for m in mean) - sum(each) / len(each)


class PlainDual:
    """Each network has its own update, as in Algorithm 1; `num_clean` is the number of small-loss samples."""

    def __init__(self, start, cfg):
        self.nets = deepcopy(start)
        self.opts = [PlainSGD(net.parameters(), cfg) for net in self.nets.values()]
        self.cfg = cfg

    def step(self, num_clean, exchange=True):
        selected = []
        for net in self.nets.values():
            losses = [plain_cross_entropy(net(U[i : i + 1]), Q[i : i + 1]).item() for i in range(len(U))]
            selected.append(sorted(range(len(U)), key=losses.__getitem__)[:num_clean])
        losses = []
        for i, net in enumerate(self.nets.values()):
            rows = selected[1 - i] if exchange else selected[i]
            loss = plain_cross_entropy(net(X), Y) + plain_cross_entropy(net(U[rows]), Q[rows])
            losses.append(loss + plain_diversity(net(U)) if self.cfg.diversity else loss)
        for optimizer, loss in zip(self.opts, losses, strict=True):
            optimizer.descend(loss)
        return sum(loss.item() for loss in losses)


def same(a, b):
    return all(torch.allclose(a[k], b[k], rtol=1e-9, atol=1e-12) for k in a)


@pytest.mark.parametrize(("epoch", "num_clean"), [(0, 10), (1, 10), (3, 8), (6, 5), (LAST, 5)])
def test_losses_and_weights_equal_the_papers(epoch, num_clean):
    """r(t+1) = 1 - min(t/6 · 1/2, 1/2): 1, 11/12, 3/4, 1/2, 1/2 of ten samples, rounded up."""
    dual = learner()
    plain = PlainDual(dual.nets, dual.settings)
    for _ in range(2):
        got = dual.step(batch(), at_epoch(epoch))["loss"].item()
        assert got == pytest.approx(plain.step(num_clean), rel=1e-10)
    assert same(dual.nets.state_dict(), plain.nets.state_dict())


def test_the_choices_are_exchanged():
    dual = learner()
    selfish = PlainDual(dual.nets, dual.settings)
    dual.step(batch(), at_epoch(LAST))
    selfish.step(5, exchange=False)
    assert not same(dual.nets.state_dict(), selfish.nets.state_dict())


def test_without_diversity_its_term_is_gone():
    dual = learner(diversity=False)
    plain = PlainDual(dual.nets, dual.settings)
    got = dual.step(batch(), at_epoch(LAST))
    assert got["loss"].item() == pytest.approx(plain.step(5), rel=1e-10)
    assert "diversity" not in got
    assert same(dual.nets.state_dict(), plain.nets.state_dict())


def test_without_dual_both_learn_all_pseudo_labels_at_any_epoch():
    dual = learner(dual=False)
    plain = PlainDual(dual.nets, dual.settings)
    dual.step(batch(), at_epoch(LAST))
    plain.step(10)
    assert same(dual.nets.state_dict(), plain.nets.state_dict())


def test_every_switch_changes_the_result():
    def loss(**changes):
        dual = learner(**{"style": True, **changes})
        torch.manual_seed(1)
        return round([dual.step(batch(), at_epoch(3))["loss"].item() for _ in range(3)][-1], 12)

    changes = [
        {},
        {"style": False},
        {"diversity": False},
        {"dual": False},
        {"delta": 0.9},
        {"ramp": 0.3},
        {"style_alpha": 5.0},
        {"style_probability": 0.5},
        {"style_detach": True},
        {"momentum": 0.0},
    ]
    assert len({loss(**change) for change in changes}) == len(changes)
    assert loss(style_probability=0.0) == loss(style=False)


def test_scalars_add_up_and_are_detached():
    got = learner().step(batch(), at_epoch(0))
    assert set(got) == {"loss", "loss_l", "loss_u", "diversity"}
    assert (got["loss_l"] + got["loss_u"] + got["diversity"]).item() == pytest.approx(got["loss"].item())
    assert not any(value.requires_grad for value in got.values())


def test_a_union_batch_may_lack_either_kind():
    no_pseudo, no_labeled = learner(style=True), learner(style=True)
    got = no_pseudo.step(batch(u=U[:0], q=Q[:0]), at_epoch(LAST))
    assert set(got) == {"loss", "loss_l"}
    assert got["loss"].isfinite()
    got = no_labeled.step(batch(x=X[:0], y=Y[:0]), at_epoch(LAST))
    assert set(got) == {"loss", "loss_u", "diversity"}
    assert got["loss"].isfinite()
    assert not same(no_pseudo.nets.state_dict(), no_labeled.nets.state_dict())


def test_styles_are_confused_across_labeled_and_unlabeled_images_while_training_only():
    dual = learner(style=True)
    dual.nets.eval()
    torch.testing.assert_close(dual.logits(X), learner(style=False).logits(X))
    dual.nets.train()
    torch.manual_seed(0)
    with_one = dual.step(batch(), at_epoch(0))["loss_l"]
    dual = learner(style=True)
    torch.manual_seed(0)
    with_other = dual.step(batch(u=U * 3), at_epoch(0))["loss_l"]
    assert with_one != with_other  # the labeled loss sees the styles of the unlabeled images


def test_networks_differ_and_logits_give_both():
    dual = learner()
    both = dual.logits(X)
    assert both.shape == (2, 4, 3)
    torch.testing.assert_close(both[0], dual.nets["first"](X))
    torch.testing.assert_close(both[1], dual.nets["second"](X))
    assert not torch.equal(both[0], both[1])
