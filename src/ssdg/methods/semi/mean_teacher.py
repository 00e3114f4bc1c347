"""Mean Teacher (Tarvainen and Valpola, NeurIPS 2017)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, cat, nn, no_grad

from ...data.sets import Batch
from ...losses.classification import cross_entropy
from ...losses.consistency import ema_decay, sigmoid_ramp, squared_distance
from ...models.layers import EMA
from ..api import MakeBackbone, Method, Progress, Settings, Sizes, descend, register, sgd, with_head


class MeanTeacherSettings(Settings):
    """Mean Teacher's own settings."""

    consistency_weight: float = Field(100.0, ge=0, description="weight of the consistency after its ramp-up")
    ramp: float = Field(0.25, ge=0, le=1, description="share of the training in which that weight grows")
    ema_decay: float = Field(0.999, ge=0, lt=1, description="of the teacher's weights, per step, after a warm-up")


class MeanTeacher:
    """A student learns labels and the predictions of a teacher, the moving average of the student itself.

    All unlabeled domains are one pool. The student sees labeled images and one view of the unlabeled ones in one
    batch, as its paper does; the teacher sees the other view in evaluation mode, with averaged batch-norm
    statistics. The teacher is what is evaluated.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: MeanTeacherSettings) -> None:
        self.student = with_head(make_backbone(), sizes.num_classes)
        self.teacher = EMA(self.student, settings.ema_decay)
        self.nets = nn.ModuleDict({"student": self.student, "teacher": self.teacher})
        self.opts = {"student": sgd([self.student], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """One descent step of the student, then the teacher follows."""
        x, unlabeled = batch.labeled.x, batch.unlabeled
        assert unlabeled is not None
        assert unlabeled.second is not None
        with no_grad():
            target = self.teacher(unlabeled.second).softmax(-1)
        logits_l, logits_u = self.student(cat([x, unlabeled.x])).split([len(x), len(unlabeled.x)])
        loss_l = cross_entropy(logits_l, batch.labeled.y)
        loss_u = squared_distance(logits_u.softmax(-1), target)
        weight = self.settings.consistency_weight * sigmoid_ramp(at.fraction, self.settings.ramp)
        loss = loss_l + weight * loss_u
        descend(loss, self.opts["student"])
        self.teacher.update(self.student, ema_decay(at.step, self.settings.ema_decay))
        return {"loss": loss.detach(), "loss_l": loss_l.detach(), "loss_u": loss_u.detach()}

    def logits(self, x: Tensor) -> Tensor:
        """(1, B, classes), of the teacher."""
        logits: Tensor = self.teacher(x)
        return logits.unsqueeze(0)


register(
    Method(
        name="mean-teacher",
        family="SSL",
        paper="Tarvainen and Valpola, Mean Teachers Are Better Role Models, NeurIPS 2017",
        summary="a student agrees with a teacher that is the moving average of its weights",
        learner=MeanTeacher,
        settings=MeanTeacherSettings,
        needs=("unlabeled", "second"),
        # From random weights in few steps, 100 makes the student call half of the unlabeled images one class.
        presets={"quick none": {"consistency_weight": 10.0}},
    )
)
