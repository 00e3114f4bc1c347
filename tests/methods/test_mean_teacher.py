"""Mean Teacher against Tarvainen and Valpola 2017, section 2, written out without the package's losses."""

from copy import deepcopy
from dataclasses import replace
from math import exp

import pytest
import torch

from builders import (
    HARD,
    SOFT,
    PlainSGD,
    at_epoch,
    built,
    labeled_batch,
    plain_cross_entropy,
    random_images,
    state,
    unlabeled_batch,
    without_counts,
)
from ssdg.config import resolve
from ssdg.data.sets import Batch
from ssdg.methods.api import Progress
from ssdg.methods.semi.mean_teacher import MeanTeacher, MeanTeacherSettings

X, U, V = random_images(6, 0), random_images(5, 1), random_images(5, 2)


def learner(norm=False, **changes):
    return built(MeanTeacher, MeanTeacherSettings(lr=0.1, weight_decay=0.01, **changes), norm)


def batch(y=HARD, u=U, v=V):
    return Batch(labeled_batch(X, y), unlabeled=replace(unlabeled_batch(u), second=v))


class PlainMeanTeacher:
    """`teacher` is a dictionary of weights and statistics, averaged one by one."""

    def __init__(self, start, settings):
        self.student = deepcopy(start["student"])
        self.teacher = deepcopy(self.student.state_dict())
        self.sgd, self.cfg = PlainSGD(self.student.parameters(), settings), settings

    def step(self, y, step, steps):
        target = self.says(V)
        logits = self.student(torch.cat([X, U]))
        p = torch.softmax(logits[6:], 1)
        consistency = sum((p[i, k] - target[i, k]) ** 2 for i in range(5) for k in range(3)) / 3 / 5
        t = min(1, step / (self.cfg.ramp * steps))
        loss = plain_cross_entropy(logits[:6], y) + self.cfg.consistency_weight * exp(-5 * (1 - t) ** 2) * consistency
        self.sgd.descend(loss)
        decay = min(1 - 1 / (step + 1), self.cfg.ema_decay)
        for name, now in self.student.state_dict().items():
            self.teacher[name] = decay * self.teacher[name] + (1 - decay) * now
        return loss

    def says(self, x):
        net = deepcopy(self.student).eval()
        net.load_state_dict(self.teacher)
        return torch.softmax(net(x), 1).detach()


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch-norm"])
@pytest.mark.parametrize("y", [HARD, SOFT], ids=["hard", "soft"])
def test_student_teacher_and_loss_equal_the_papers(norm, y):
    mean_teacher = learner(norm, consistency_weight=10, ema_decay=0.6, ramp=0.3)
    plain = PlainMeanTeacher(mean_teacher.nets, mean_teacher.settings)
    for step in range(5):  # the ramp ends at step 3, the warm-up of the decay at step 2
        got, expected = mean_teacher.step(batch(y), Progress(1, 0, 1, step, 10)), plain.step(y, step, 10)
        assert got["loss"].item() == pytest.approx(expected.item(), rel=1e-10)
        assert not any(value.requires_grad for value in got.values())
    teacher = mean_teacher.nets["teacher"].average
    torch.testing.assert_close(state(mean_teacher.nets["student"]), state(plain.student), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(state(teacher), without_counts(plain.teacher), rtol=1e-9, atol=1e-12)


def test_every_setting_view_and_label_changes_the_result():
    def after(y=HARD, u=U, v=V, **changes):
        mean_teacher = learner(**{"consistency_weight": 10, **changes})
        for step in (0, 1, 2):
            mean_teacher.step(batch(y, u, v), Progress(1, 0, 1, step, 10))
        return round(mean_teacher.nets["teacher"].average[0].stages[0][0].weight.sum().item(), 12)

    results = [after(), after(consistency_weight=5), after(ramp=0.1), after(ema_decay=0.3), after(y=SOFT)]
    results += [after(u=U.flip(1)), after(v=V.flip(1))]
    assert len(set(results)) == 7


def test_the_teacher_is_evaluated_and_takes_no_gradient():
    mean_teacher = learner()
    mean_teacher.step(batch(), at_epoch(0))
    mean_teacher.step(batch(), at_epoch(5))
    teacher = mean_teacher.logits(X)
    assert teacher.shape == (1, 6, 3)
    torch.testing.assert_close(teacher[0], mean_teacher.nets["teacher"](X))
    assert not torch.equal(teacher[0], mean_teacher.nets["student"](X))
    assert not teacher.requires_grad


@pytest.mark.parametrize(
    ("preset", "kind", "weight"), [("paper", "none", 100), ("quick", "photo", 100), ("quick", "none", 10)]
)
def test_the_weight_is_lower_where_training_is_short_and_from_random_weights(preset, kind, weight):
    config = {"method": "mean-teacher", "preset": preset, "labeled": "a"}
    assert resolve(config, kind=kind, size=32).settings.consistency_weight == weight
