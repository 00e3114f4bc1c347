"""What a method is, what it may ask of the engine, and the registry of all methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal, Protocol, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from ..data.sets import (
    Batch,
    Inputs,
    LabeledSet,
    MixedSet,
    PseudoLabels,
    Task,
    UnlabeledSet,
    View,
    WebLabel,
    concat_labeled,
)
from ..errors import unknown
from ..models.backbones import Backbone
from ..models.heads import linear_head
from ..profiling import timed

Family = Literal["source", "DA", "DG", "DA+DG", "SSL", "ours"]
Need = Literal["unlabeled", "balanced", "second", "strong"]  # data; as many images per domain; further views
VIEWS: tuple[View, ...] = ("second", "strong")
MakeBackbone = Callable[[], Backbone]
Rule = Callable[[Tensor], tuple[Tensor, Tensor]]  # logits (networks, n, K) -> class (n,), keep (n,)


def no_switch(value: Any) -> Any:
    """Refuse true and false where a number is meant; Python would take them for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("a number is wanted here, not true or false")
    return value


class Settings(BaseModel):
    """A method's settings; the defaults are the paper's (section Implementation Details)."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epochs: int = Field(30, ge=1, description="passes of training per stage")
    batch: int = Field(128, ge=2, description="labeled images per step; as many unlabeled ones beside them")
    iterations: int | None = Field(None, ge=1, description="steps per epoch; empty: as long as the data")
    lr: float = Field(1e-3, gt=0, description="learning rate of the first cycle")
    lr_shape: Literal["fixed", "hump"] = Field(
        "fixed", description="within a stage: fixed, or up over a tenth of the steps and down by a cosine"
    )
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(5e-4, ge=0)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        is_switch = cls.model_fields[str(info.field_name)].annotation is bool
        return value if is_switch else no_switch(value)


@dataclass(frozen=True)
class Sizes:
    """What a learner must know of the data to be built."""

    num_classes: int
    num_domains: int = 1  # of the labeled and pseudo-labeled images it is trained on


@dataclass(frozen=True)
class Progress:
    """Where a training step stands: cycle from 1, epoch and step within the stage from 0."""

    round: int
    epoch: int
    epochs: int
    step: int
    steps: int

    @property
    def fraction(self) -> float:
        """The share of the stage's steps that are done: [0, 1)."""
        return self.step / self.steps


class Learner(Protocol):
    """Anything that learns by steps."""

    nets: nn.ModuleDict
    opts: dict[str, Optimizer]

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Update the networks; return detached scalars worth plotting."""
        ...

    def logits(self, x: Tensor) -> Tensor:
        """(networks, B, classes) for images in [0, 1]."""
        ...


LearnerT = TypeVar("LearnerT", bound=Learner)


class Trainer(Protocol):
    """What a method may ask of the engine. Both verbs may be called again and then do nothing twice."""

    def train(
        self,
        key: str,
        learner: Learner,
        inputs: Inputs,
        settings: Settings,
        *,
        round: int = 1,
        lr_scale: float = 1.0,
        product: bool = False,
    ) -> None:
        """Train for `settings.epochs`.

        `product` marks the learner that will be used in the end: the engine evaluates it after every epoch.
        """
        ...

    def label(self, key: str, learner: Learner, pool: UnlabeledSet, rule: Rule, *, round: int) -> PseudoLabels:
        """Let the learner label the pool."""
        ...


class Build(Protocol):
    """Makes a learner whose initial weights depend on the run's seed and on `key` alone."""

    def __call__(
        self,
        key: str,
        learner: Callable[[MakeBackbone, Sizes, Any], LearnerT],
        settings: Settings,
        *,
        num_domains: int = 1,
        backbone: str | None = None,
        weights: str | None = None,
    ) -> LearnerT:
        """`backbone` and `weights` default to the run's."""
        ...


Algorithm = Callable[[Task, Trainer, Build, Any], Learner]


@dataclass(frozen=True)
class Method:
    """A row of the registry. `learner` is the class of the product, what is evaluated and shipped.

    `presets` are settings by the preset's name; "quick photo" and "quick none" hold for one kind of data only.
    Without an `algorithm` of its own a method is one stage of training on all the data that it needs.
    """

    name: str
    family: Family
    paper: str
    summary: str
    learner: Callable[[MakeBackbone, Sizes, Any], Learner]
    settings: type[Settings] = Settings
    needs: tuple[Need, ...] = ()
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    algorithm: Algorithm | None = None
    uses_web_labels: bool = False  # itself; others of several labeled domains may be given them as labels

    @property
    def web_labels(self) -> tuple[WebLabel, ...]:
        """The strategies for web-labels that it can follow, as the paper lists them."""
        if self.uses_web_labels:
            return ("ignored", "retained", "refined")
        return ("ignored", "retained") if self.family in ("source", "DG") else ("ignored",)

    def fit(self, task: Task, trainer: Trainer, build: Build, settings: Settings) -> Learner:
        """Train on a task; returns the product."""
        if task.web and not self.uses_web_labels:
            task = retained(task)
        if self.algorithm is not None:
            return self.algorithm(task, trainer, build, settings)
        product = build("main", self.learner, settings, num_domains=task.labeled.num_domains)
        pool = task.pool if "unlabeled" in self.needs else None
        trainer.train("main", product, self.inputs(task.labeled, pool, settings), settings, product=True)
        return product

    def inputs(self, labeled: LabeledSet | MixedSet, unlabeled: UnlabeledSet | None, settings: Settings) -> Inputs:
        """These sets, drawn as the method needs them."""
        return Inputs(
            labeled,
            unlabeled=unlabeled,
            balanced="balanced" in self.needs,
            views=tuple(view for view in VIEWS if view in self.needs),
            ratio=getattr(settings, "ratio", 1),
        )


def retained(task: Task) -> Task:
    """Web-labels as labels: crawls join the labeled set as further domains, and nothing of them is unlabeled."""
    crawls = [task.unlabeled[name].labeled_as(y) for name, y in task.web.items()]
    rest = {name: pool for name, pool in task.unlabeled.items() if name not in task.web}
    return replace(task, labeled=concat_labeled([task.labeled, *crawls]), unlabeled=rest, web={})


METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Add a method to the registry; a name is given once."""
    if method.name in METHODS:
        raise ValueError(f"a method named '{method.name}' is registered already")
    METHODS[method.name] = method
    return method


def find_method(name: str, family: Family | None = None) -> Method:
    """The method of this name, or an error that names the near ones. `A+B` is composed when first asked for."""
    if "+" in name and name not in METHODS and family in (None, "DA+DG"):
        from .compose import pair  # which itself needs the registry

        return pair(name)
    names = sorted(n for n, m in METHODS.items() if family in (None, m.family))
    if name not in names:
        raise unknown("method" if family is None else f"{family} method", name, names)
    return METHODS[name]


def sgd(modules: Iterable[nn.Module], settings: Settings) -> Optimizer:
    """The paper's optimizer over all parameters of the modules, fused: same numbers, half the time."""
    parameters = list(chain.from_iterable(m.parameters() for m in modules))
    return SGD(
        parameters,
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def descend(loss: Tensor, *optimizers: Optimizer) -> None:
    """One step down the gradient of `loss` for the parameters of these optimizers; the others stay.

    Their gradients are gone afterwards: a network's worth of memory that the next forward pass can have.
    """
    for optimizer in optimizers:
        optimizer.zero_grad()
    with timed("backward"):
        torch.autograd.backward(loss)
    with timed("step"):
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def with_head(backbone: Backbone, num_classes: int) -> nn.Sequential:
    """A whole classifier: images to logits."""
    return nn.Sequential(backbone, linear_head(backbone.num_features, num_classes))


def argmax_rule(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Q = argmax p (Eq. APL): the class of highest mean probability over the networks; everything is kept."""
    y = logits.softmax(-1).mean(0).argmax(-1)
    return y, torch.ones_like(y, dtype=torch.bool)
