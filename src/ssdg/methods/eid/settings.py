"""Settings and presets of `eid`; the defaults follow the text of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ...data.sets import Mix
from ...losses.selection import Choice, clean_rate
from ..api import Method, Settings, Span, find_labeler

START_SHARE = 0.4  # of the steps of a run of given minutes: training on the labeled domain alone
MIN_CYCLE_STEPS = 20
SELF = "self"  # of `apl` and `first_labels`: the run's own networks


class DcgSettings(Settings):
    """Settings of DCG: all that determines the training of the dual networks besides the data."""

    epochs: int = Field(15, ge=1, description="DCG epochs per cycle")
    iterations: int | None = Field(
        None, ge=1, description="N_max, steps per epoch; empty: one pass over the larger set"
    )
    dual: bool = Field(True, description="exchange small-loss selections; off: both networks learn all pseudo-labels")
    style: bool = Field(True, description="style confusion")
    diversity: bool = Field(True, description="label diversity regularization")
    delta: float = Field(0.5, ge=0, lt=1, description="δ: the clean rate of DCG falls from 1 to 1 − delta")
    ramp: float = Field(0.6, gt=0, description="T_k as a fraction of the epochs")
    style_alpha: float = Field(0.5, gt=0, description="lambda ~ Beta(style_alpha, style_alpha)")
    style_probability: float = Field(
        1.0, ge=0, le=1, description="probability that styles are confused in a forward pass"
    )
    # The paper calls eps "negligible". A map with one active pixel is scaled by 1/(sigma + eps): 1e-3 is the floor
    # of the release's sqrt(var + 1e-6) and keeps networks without batch norm finite.
    style_eps: float = Field(1e-3, gt=0, description="added to sigma before division")
    style_detach: bool = Field(False, description="treat style statistics as constants in the gradient")
    networks: int = Field(2, ge=1, le=2, description="with apl=self, the number of networks")
    average_decay: float = Field(
        0.99, ge=0, lt=1, description="with apl=self, decay of the averaged weights per step; 0: no averages"
    )

    @property
    def revision(self) -> int:
        """2 without averages: 1 stored copies of the networks as averages, and `trust` ignored keywords."""
        return 1 if self.average_decay else 2

    def rate(self, epoch: int, epochs: int) -> float:
        """Return r(t), the share of a batch that small-loss sampling selects in an epoch (from 0) of a stage."""
        return clean_rate(epoch, ramp_epochs=self.ramp * epochs, delta=self.delta) if self.dual else 1.0

    def schedules(self) -> dict[str, list[float]]:
        """Return r(t) if small-loss sampling is on."""
        rates = [self.rate(epoch, self.epochs) for epoch in range(self.epochs)]
        return {"clean rate r(t)": rates} if self.dual else {}


class EidSettings(DcgSettings):
    """Settings of `eid`; the inherited ones apply to DCG, `labeler` holds those of the method in `apl`."""

    cycles: int = Field(3, ge=1, description="C: cycles of APL, DCG and EID")
    reinit: bool = Field(
        False, description="reinitialize all networks in each cycle instead of continuing to train them"
    )
    # APL
    apl: str = Field(
        "mcd",
        description="what labels the unlabeled domains: a DA method, self-training, or self (the averaged networks "
        "of the run, see docs/best.md)",
    )
    apl_backbone: str | None = Field(
        None, description="backbone of the labelers, may be deeper than DCG's; empty: the run's"
    )
    apl_weights: str | None = Field(None, description="initial weights of apl_backbone; empty: the run's")
    first_labels: str = Field(
        SELF, description="with apl=self, the method of the first labels: self, self-training or a DA method"
    )
    labeler: Any = Field(
        default_factory=dict, validate_default=True, description="settings of the method in apl or first_labels"
    )
    # APL by the run's own networks, apl=self
    start_epochs: int = Field(
        0,
        ge=0,
        description="with apl=self, epochs on the labeled domain before the first cycle; the networks then label "
        "together with first_labels",
    )
    first_share: float = Field(
        0.3, gt=0, le=1, description="with apl=self, pseudo-labels used in the first cycle, of a class's fair share"
    )
    last_share: float = Field(0.9, gt=0, le=1, description="the same in the last cycle; cycles between interpolate")
    memory: float = Field(0.5, ge=0, lt=1, description="with apl=self, weight of the probabilities of earlier cycles")
    trust: float = Field(
        0.0,
        ge=0,
        description="with apl=self, exponent of the agreement of views by which the share of a domain is multiplied",
    )
    label_views: int = Field(
        0, ge=0, le=64, description="with apl=self, randomized views by which images are labeled"
    )
    # Data of DCG
    union: bool = Field(False, description="draw labeled and pseudo-labeled images from one shuffled stream")
    # EID
    clean_rate: float = Field(0.4, gt=0, le=1, description="R: fraction of the agreed images selected as clean")
    clean_choice: Choice = Field(
        "whole", description="select from all agreed images, per class, or equally many of each class"
    )
    clean_rejected: bool = Field(True, description="images that an open-set labeler rejected may enter the clean set")
    first_only: bool = Field(False, description="rank by the loss of network 1 instead of the sum of both")
    mix: Mix = Field("mixup", description="how the intermediate domain is mixed")
    mix_alpha: float = Field(1.0, gt=0, description="alpha ~ Beta(mix_alpha, mix_alpha)")
    any_pair: bool = Field(False, description="mix any two images of the union, with one coefficient per batch")

    path_fields: ClassVar[tuple[str, ...]] = ("apl_weights",)
    crawl_defaults: ClassVar[Mapping[str, Any]] = {"clean_rate": 0.6}  # the paper's value for PACS-Webdata

    @classmethod
    def nested_methods(cls, values: Mapping[str, Any]) -> dict[str, Method]:
        """Return the method that `apl` or `first_labels` names; `labeler` holds its settings."""
        names = [str(values.get(key, cls.model_fields[key].default)) for key in ("apl", "first_labels")]
        name = names[1] if names[0] == SELF else names[0]
        return {} if name == SELF else {"labeler": find_labeler(name, also=SELF)}

    @property
    def revision(self) -> int:
        """2 also for a start before first labels: 1 ignored the networks in the first cycle."""
        return 2 if self.start_epochs and self.is_pretrained else super().revision

    def extra_backbones(self) -> dict[str, tuple[str, str | None]]:
        """Return the backbone of the labelers if it is not the run's."""
        return {"apl_backbone": (self.apl_backbone, self.apl_weights)} if self.apl_backbone is not None else {}

    def shortened(self, *, batch: int, iterations: int) -> Settings:
        """Return the settings of a dry run, with at most two cycles: enough to reach every phase."""
        settings = super().shortened(batch=batch, iterations=iterations)
        return settings.model_copy(update={"cycles": min(2, self.cycles), "start_epochs": min(1, self.start_epochs)})

    def with_steps(self, steps: int) -> dict[str, Any] | None:
        """Return a start and cycles of about `steps` steps together, if the networks label themselves."""
        if self.apl != SELF:
            return None
        start_share = 0.0 if self.is_pretrained else START_SHARE
        cycles = min(self.cycles, max(1, int((1 - start_share) * steps / MIN_CYCLE_STEPS)))
        start_epochs = max(1, round(cycles * start_share / (1 - start_share))) if start_share else 0
        iterations = max(1, steps // (start_epochs + cycles))
        return {"cycles": cycles, "epochs": 1, "iterations": iterations, "start_epochs": start_epochs}

    @property
    def is_pretrained(self) -> bool:
        """Whether another method labels first, so that networks need no start of training."""
        return self.first_labels != SELF

    def fewest_steps(self) -> int:
        """Return the number of steps below which training is not worth its time."""
        return MIN_CYCLE_STEPS if self.is_pretrained else 10 * MIN_CYCLE_STEPS

    def num_evaluations(self) -> int:
        """Return how often the product is evaluated."""
        return self.cycles * self.epochs

    def num_labelings(self) -> int:
        """Return how often the product labels every unlabeled image, randomized views included."""
        return self.cycles * (1 + self.label_views)

    @property
    def start(self) -> DcgSettings:
        """The settings of training on the labeled domain before the first cycle of `apl=self`."""
        return self.dcg.model_copy(update={"epochs": self.start_epochs})

    def spans(self) -> list[Span]:
        """Return the parts of one learning-rate schedule that the start and every cycle of `apl=self` cover."""
        epochs = [self.start_epochs, *[self.epochs] * self.cycles]
        ends = [sum(epochs[: i + 1]) / sum(epochs) for i in range(len(epochs))]
        return list(zip([0.0, *ends], ends, strict=False))

    def share(self, cycle: int) -> float:
        """Return the share of pseudo-labels in a cycle of `apl=self`, from 1: linear from the first to the last."""
        position = (cycle - 1) / max(1, self.cycles - 1)
        return self.first_share + (self.last_share - self.first_share) * position

    @property
    def dcg(self) -> DcgSettings:
        """The settings of DCG alone, so that stages of runs that differ only in other settings can be shared."""
        return DcgSettings.model_validate({name: getattr(self, name) for name in DcgSettings.model_fields})

    @field_validator("apl", "first_labels")
    @classmethod
    def _require_labeler(cls, name: str) -> str:
        return SELF if name == SELF else find_labeler(name, also=SELF).name

    @field_validator("labeler", mode="before")
    @classmethod
    def _validate_labeler(cls, value: Any, info: ValidationInfo) -> Any:
        if not {"apl", "first_labels"} <= info.data.keys() or not isinstance(value, dict):
            return value
        nested = cls.nested_methods(info.data)
        return nested["labeler"].settings.model_validate(value) if nested else value

    @model_validator(mode="after")
    def _check_unused(self) -> EidSettings:
        """Reject settings of labelers if there are none."""
        unused = [name for name in ("apl_backbone", "apl_weights") if getattr(self, name) is not None]
        unused += ["labeler"] if self.labeler != {} else []
        if self.apl == self.first_labels == SELF and unused:
            raise ValueError(
                f"with apl=self the networks label themselves and {unused[0]} has no effect; leave it out, or give "
                "the method of the first labels, such as first_labels=mcd"
            )
        return self


# Two cycles of four epochs, 8 in total instead of the paper's 45; labelers have their own presets.
FAST: dict[str, Any] = {"cycles": 2, "epochs": 4, "clean_choice": "balanced"}
# For two cores. Digits have no pretrained weights, so they start from a backbone trained on the labeled domain.
QUICK: dict[str, Any] = {"epochs": 2, "labeler": {"epochs": 2}}
QUICK_DIGITS: dict[str, Any] = {
    "warm_epochs": 10,
    "warm_lr": 0.03,
    "lr": 0.01,
    "epochs": 4,
    "iterations": 27,
    "labeler": {"epochs": 3},
}
# One network that labels for itself. Of the paper's parts, style confusion pays behind a frozen pretrained trunk, and
# label diversity for networks with random weights: docs/results/best-pacs.md, best-digits.md.
BEST: dict[str, Any] = {
    "apl": SELF,
    "warm_epochs": 0,
    "networks": 1,
    "dual": False,
    "style": False,
    "diversity": False,
    "iterations": None,
}
# Random weights learn the labeled domain first; pretrained ones have features that a probe can label by. Random ones
# change so much within a cycle that averaged weights and earlier predictions lag behind: docs/results/best-digits.md.
BEST_RANDOM: dict[str, Any] = {
    "lr": 0.03,
    "cycles": 6,
    "start_epochs": 20,
    "epochs": 3,
    "label_views": 1,
    "trust": 2.0,
    "first_share": 0.5,
    "last_share": 1.0,
    "average_decay": 0.0,
    "memory": 0.0,
    "diversity": True,
}
BEST_DIGITS: dict[str, Any] = {"lr": 0.1}  # character-cnn has normalization layers
BEST_PRETRAINED: dict[str, Any] = {
    "first_labels": "self-training",
    "style": True,
    "cycles": 3,
    "epochs": 1,
    "iterations": 100,
    "first_share": 0.6,
    "label_views": 1,
    "average_decay": 0.95,
    "head": "random",
    "lr": 0.01,
    "trunk_rate": 0.1,
    "nesterov": True,
}
RELEASE: dict[str, Any] = {
    # The choices of the authors' release where it differs from the paper, except for its label leak.
    "union": True,
    "any_pair": True,
    "clean_choice": "per-class",
    "first_only": True,
    "style_alpha": 0.1,
    "style_probability": 0.5,
    "style_detach": True,
}
RELEASE_CRAWL: dict[str, Any] = {"clean_rate": 0.4}  # in every configuration of the release, also for web data
