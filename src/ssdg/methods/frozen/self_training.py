"""Class-balanced self-training of a linear probe on the unlabeled domains (after Zou et al., ECCV 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, field_validator
from torch import Tensor

from ...data.sets import LabeledSet, Task, UnlabeledSet, concat_labeled
from ...losses.selection import fair_share_mask
from ..api import ALL_VIEWS, Build, Learner, Method, Trainer, register
from .probe import PRESETS, Probe, ProbeSettings, whole_inputs


class SelfTrainingSettings(ProbeSettings):
    """Settings of self-training."""

    rates: tuple[float, ...] = Field(
        (0.2, 0.4, 0.6, 0.8),
        min_length=1,
        description="pseudo-labels added in each round, as a fraction of a class's fair share of a domain",
    )

    max_iter: int = Field(100, ge=1, description="iterations of L-BFGS at most, in each round")

    @field_validator("rates")
    @classmethod
    def _check_rates(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        if not all(0 < rate <= 1 for rate in rates):
            raise ValueError("every rate must be above 0 and at most 1")
        return rates


@dataclass(frozen=True)
class FairShare:
    """A rule that selects the most confident images of every predicted class, at most `rate` of a fair share."""

    rate: float

    def __call__(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the class of highest mean probability over networks and views, and the selection."""
        probs = logits.softmax(-1).mean(0)
        return probs.argmax(-1), fair_share_mask(probs, self.rate)


def train_rounds(
    probe: Learner,
    source: LabeledSet,
    pools: Mapping[str, UnlabeledSet],
    trainer: Trainer,
    settings: SelfTrainingSettings,
    *,
    cycle: int | None = None,
    product: bool = True,
) -> None:
    """Solve the regression on the source; then repeatedly add the most confident pseudo-labels and solve it again.

    Every domain contributes equally many images of every class that it is predicted to contain, so a class that is
    easy to predict cannot dominate. All stored views of an image vote on its label and are learned. The rounds are
    the cycles of the run, or parts of its cycle `cycle`, of which the last gives the product.
    """
    joined = source
    for number, rate in enumerate((*settings.rates, None), start=1):
        round, part = (number, "") if cycle is None else (cycle, f"/round{number}")
        title, group = ("self-training", "") if cycle is None else (f"self-training, round {number}", "labelers")
        is_product = product and (cycle is None or rate is None)
        inputs = whole_inputs(joined, settings)
        key = f"probe{part}"
        trainer.train(key, probe, inputs, settings, round=round, product=is_product, title=title, group=group)
        if rate is None:
            return
        selected = []
        for name, pool in pools.items():
            key = f"probe/{name}{part}"
            labels = trainer.label(key, probe, pool, FairShare(rate), round=round, title=title, views=ALL_VIEWS)
            selected.append(pool.labeled_by(labels))
        joined = concat_labeled([source, *selected])


def fit(task: Task, trainer: Trainer, build: Build, settings: SelfTrainingSettings) -> Learner:
    """Train the probe on the labeled domain and, in rounds, on all unlabeled domains."""
    probe = build("main", Probe, settings)
    train_rounds(probe, task.labeled, task.unlabeled, trainer, settings)
    return probe


register(
    Method(
        name="self-training",
        family="frozen",
        paper="Zou et al., Unsupervised Domain Adaptation via Class-Balanced Self-Training, ECCV 2018",
        summary="probe that adds its most confident pseudo-labels of every class and domain, in rounds",
        learner=Probe,
        settings=SelfTrainingSettings,
        needs=("unlabeled",),
        presets=PRESETS,
        algorithm=fit,
        freeze="all",
        joint_labeler=train_rounds,
    )
)
