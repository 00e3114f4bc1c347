"""L2D against Wang et al. 2021, as two losses and three plain descents."""

from copy import deepcopy

import pytest
import torch

from builders import PlainSGD, at_epoch, built, labeled_batch, plain_cross_entropy, random_images
from ssdg.data.sets import Batch
from ssdg.methods.api import Settings
from ssdg.methods.generalization.l2d import L2d, L2dSettings

COLORS = torch.rand(6, 3, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
X = COLORS * random_images(6, 0, size=20)
Y = torch.tensor([0, 1, 2, 2, 1, 0])
SETTINGS = {"lr": 0.1, "weight_decay": 0.01}


def learner(norm=False, **settings):
    return built(L2d, L2dSettings(**SETTINGS, **settings), norm)


class PlainL2d:
    """The task's step (F, H by classes and contrast, q by likelihood) and the styles' step."""

    def __init__(self, start, settings):
        nets = deepcopy(start)
        self.nets, self.settings = nets, settings
        self.of_task = PlainSGD([*nets["features"].parameters(), *nets["head"].parameters()], settings)
        self.of_q = PlainSGD(nets["guess"].parameters(), settings)
        no_frills = Settings(lr=settings.style_lr, momentum=0, weight_decay=0)
        self.of_style = PlainSGD(nets["style"].parameters(), no_frills)

    def step(self):
        style, settings = self.nets["style"], self.settings
        with torch.no_grad():
            drawn = style(X, style.draw_filters())
        z = self.nets["features"](torch.cat([X, drawn]))
        classes = torch.cat([Y, Y])
        task = plain_cross_entropy(self.nets["head"](z), classes) + settings.contrast_weight * self.contrast(
            z, classes
        )
        q = -self.log_q(z[:6].detach(), z[6:].detach()).diagonal().mean() / 5  # per dimension
        self.of_task.descend(task)
        self.of_q.descend(q)
        z, z_new = self.nets["features"](torch.cat([X, style(X, style.fixed_filters())])).split(6)
        log_q = self.log_q(z, z_new)
        bound = log_q.diagonal().mean() - log_q.mean()
        self.of_style.descend(self.mmd(z, z_new) + settings.bound_weight * bound)

    def contrast(self, z, y):
        unit = z / z.norm(dim=1, keepdim=True)
        exp = (unit @ unit.T / self.settings.temperature).exp()
        losses = []
        for i in range(len(z)):
            others = [a for a in range(len(z)) if a != i]
            partners = [p for p in others if y[p] == y[i]]
            losses.append(-sum((exp[i, p] / exp[i, others].sum()).log() for p in partners) / len(partners))
        return sum(losses) / len(losses)

    def log_q(self, z, z_new):
        """[i, j]: log q(z'_j | z_i)."""
        out = self.nets["guess"](z)
        normal = torch.distributions.Normal((z + out[:, :5])[:, None], out[:, 5:].tanh().div(2).exp()[:, None])
        return normal.log_prob(z_new[None]).sum(2)

    def mmd(self, z, z_new):
        total = 0
        for k in range(3):
            both = torch.cat([z[k == Y], z_new[k == Y]])
            squares = (both[:, None] - both).square().sum(2)
            scale = squares.sum().detach() / (4 * 3)
            kernel = sum((-squares / (scale / 4 * 2**i)).exp() for i in range(5))
            total = total + (kernel[:2, :2] + kernel[2:, 2:] - kernel[:2, 2:] - kernel[2:, :2]).mean()
        return total / 3


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("more", [{}, {"bound_weight": 2.0, "contrast_weight": 0.3, "temperature": 0.5}])
def test_weights_after_two_steps_equal_the_papers(norm, more):
    ours = learner(norm, **more)
    plain = PlainL2d(ours.nets, ours.settings)
    for seed in range(2):
        torch.manual_seed(seed)
        scalars = ours.step(Batch(labeled_batch(X, Y)), at_epoch(0))
        torch.manual_seed(seed)
        plain.step()
    torch.testing.assert_close(ours.nets.state_dict(), plain.nets.state_dict(), rtol=1e-7, atol=1e-9)
    assert set(scalars) == {"loss", "contrast", "likelihood", "bound", "apart"}
    assert not any(value.requires_grad for value in scalars.values())


def test_each_optimizer_moves_only_its_own_weights():
    ours, moves = learner(), []
    before = deepcopy(ours.nets.state_dict())

    def record(*_):
        now = deepcopy(ours.nets.state_dict())
        moves.append({name.split(".")[0] for name in now if not torch.equal(now[name], before[name])})
        before.update(now)

    for optimizer in ours.opts.values():
        optimizer.register_step_post_hook(record)
    ours.step(Batch(labeled_batch(X, Y)), at_epoch(0))
    assert moves == [{"features", "head"}, {"guess"}, {"style"}]


def test_every_setting_changes_the_result():
    def after(**settings):
        ours = learner(**settings)
        for seed in range(2):
            torch.manual_seed(seed)
            ours.step(Batch(labeled_batch(X, Y)), at_epoch(0))
        return ours.head.weight.square().sum().item() + ours.style.shift.sum().item()

    others = {"contrast_weight": 0.2, "temperature": 0.5, "bound_weight": 3.0, "strength": 0.9, "style_lr": 2.0}
    results = [after(), *(after(**{name: value}) for name, value in others.items())]
    assert len({round(r, 10) for r in results}) == 6


def test_styles_go_where_the_bound_falls():
    ours = learner(bound_weight=1e4, style_lr=0.01)
    for optimizer in (ours.opts["task"], ours.opts["guess"]):
        optimizer.param_groups[0].update(lr=0.0)
    bounds = [ours.step(Batch(labeled_batch(X, Y)), at_epoch(0))["bound"].item() for _ in range(4)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > bounds[-1]


def test_logits_are_those_of_the_plain_network():
    ours = learner()
    torch.testing.assert_close(ours.logits(X)[0], ours.nets["head"](ours.nets["features"](X)))
