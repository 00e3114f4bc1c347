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
    """Settings of Mean Teacher."""

    consistency_weight: float = Field(100.0, ge=0, description="weight of the consistency loss after its ramp-up")
    ramp: float = Field(0.25, ge=0, le=1, description="fraction of training over which consistency_weight ramps up")
    ema_decay: float = Field(
        0.999, ge=0, lt=1, description="decay of the teacher's weights per step, after a warm-up"
    )


class MeanTeacher:
    """A student that learns labels and the predictions of a teacher, the moving average of the student itself.

    All unlabeled domains are one pool. The student gets labeled images and one view of the unlabeled images in one
    batch, as in the paper; the teacher gets the other view in evaluation mode, with averaged batch-norm statistics.
    The teacher is evaluated.
    """

    def __init__(self, make_backbone: MakeBackbone, sizes: Sizes, settings: MeanTeacherSettings) -> None:
        self.student = with_head(make_backbone(), sizes.num_classes)
        self.teacher = EMA(self.student, settings.ema_decay)
        self.nets = nn.ModuleDict({"student": self.student, "teacher": self.teacher})
        self.opts = {"student": sgd([self.student], settings)}
        self.settings = settings

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Take one step of the student, then update the teacher."""
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
        """Return (1, B, classes) of the teacher."""
        logits: Tensor = self.teacher(x)
        return logits.unsqueeze(0)


register(
    Method(
        name="mean-teacher",
        family="SSL",
        paper="Tarvainen and Valpola, Mean Teachers Are Better Role Models, NeurIPS 2017",
        summary="a student learns to agree with a teacher, the moving average of its weights",
        learner=MeanTeacher,
        settings=MeanTeacherSettings,
        needs=("unlabeled", "second"),
        # In few steps from random weights, with 100 the student assigns one class to half of the unlabeled images.
        presets={"quick none": {"consistency_weight": 10.0}},
    )
)
