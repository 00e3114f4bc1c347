"""The method API: settings, learners, requests to the engine, and the registry of all methods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, TypeVar

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
    renumber_domains,
)
from ..errors import UserError, unknown
from ..models.backbones import Backbone, backbones_of
from ..models.heads import Bottleneck, linear_head
from ..profiling import timed
from ..schema import LabelKind as LabelKind

Family = Literal["source", "frozen", "DA", "DG", "DA+DG", "SSL", "ours"]
# data; equal images per domain; extra views; images whose pixels it changes in every step
Need = Literal["unlabeled", "balanced", "second", "strong", "pixels"]
VIEWS: tuple[View, ...] = ("second", "strong")
MakeBackbone = Callable[[], Backbone]
LrShape = Literal["fixed", "hump", "inverse"]
MAX_EVALUATIONS = 8  # of a product, in runs of a given number of minutes
Span = tuple[float, float]  # start and end of a stage within the learning-rate schedule that it is part of
WHOLE: Span = (0.0, 1.0)
Rule = Callable[[Tensor], tuple[Tensor, Tensor]]  # logits (networks, n, K) -> class (n,), keep (n,)


def schedule_position(step: int, steps: int, span: Span) -> tuple[float, float]:
    """Return the step and the number of steps of the whole schedule of which a stage of `steps` steps is a part.

    Both are whole numbers if all stages of the schedule have as many steps per unit of span.
    """
    start, end = span
    total = steps / (end - start)
    return round(start * total + step, 6), round(total, 6)  # 2.9999999999999996 is step 3


def reject_bool(value: Any) -> Any:
    """Reject true and false where a number is expected; Python would accept them as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("expected a number, not true or false")
    return value


class Settings(BaseModel):
    """A method's settings; the defaults are the paper's (section Implementation Details).

    A method overrides the hooks below if its settings contain those of another method, name extra backbones or
    files, or need other values for crawls or dry runs. Shared code never looks up a setting by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    epochs: int = Field(30, ge=1, description="training epochs per stage")
    batch: int = Field(128, ge=2, description="labeled images per step; the same number of unlabeled ones is added")
    iterations: int | None = Field(None, ge=1, description="steps per epoch; empty: one pass over the data")
    lr: float = Field(1e-3, gt=0, description="learning rate of the first cycle")
    lr_shape: LrShape = Field(
        "fixed",
        description="within a stage: fixed; hump: linear warm-up over a tenth of the steps, then cosine decay; "
        "inverse: (1 + 0.001 step)^-0.75",
    )
    trunk_rate: float = Field(1.0, ge=0, description="factor on lr for the backbone; new layers learn at lr")
    momentum: float = Field(0.9, ge=0, lt=1)
    nesterov: bool = Field(False, description="Nesterov momentum")
    weight_decay: float = Field(5e-4, ge=0)

    path_fields: ClassVar[tuple[str, ...]] = ()  # settings that hold a path: hashes use its last part only
    crawl_defaults: ClassVar[Mapping[str, Any]] = {}  # defaults that change if an unlabeled domain is a crawl

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool(cls, value: Any, info: ValidationInfo) -> Any:
        is_switch = cls.model_fields[str(info.field_name)].annotation is bool
        return value if is_switch else reject_bool(value)

    @property
    def revision(self) -> int:
        """Increased when the same settings give other numbers, because a run must not mix the two."""
        return 1

    @classmethod
    def nested_methods(cls, values: Mapping[str, Any]) -> dict[str, Method]:
        """Return the fields that hold the settings of another method, given the values set so far."""
        return {}

    def nested(self) -> dict[str, Settings]:
        """Return the settings of other methods inside these, by field."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in fields.items() if isinstance(value, Settings)}

    def extra_backbones(self) -> dict[str, tuple[str, str | None]]:
        """Return backbones other than the run's by the field that names them: (backbone, weights or None)."""
        return {}

    def extend_backbone(self, backbone: Backbone) -> Any:
        """Return the backbone that learners receive: `backbone`, or a network around it."""
        return backbone

    def shortened(self, *, batch: int, iterations: int) -> Settings:
        """Return the settings of a dry run: one short epoch per stage, nested settings included."""
        update: dict[str, Any] = {"batch": batch, "epochs": 1, "iterations": iterations}
        for name, settings in self.nested().items():
            update[name] = settings.shortened(batch=batch, iterations=iterations)
        return self.model_copy(update=update)

    def with_steps(self, steps: int) -> dict[str, Any] | None:
        """Return changes with which training takes at most `steps` steps, nearly all of them; None if it cannot."""
        if self.nested():
            return None
        epochs = min(MAX_EVALUATIONS, steps)
        return {"epochs": epochs, "iterations": steps // epochs}

    def fewest_steps(self) -> int:
        """Return the number of steps below which training is not worth its time."""
        return 20

    def num_evaluations(self) -> int:
        """Return how often the product is evaluated."""
        return self.epochs

    def num_labelings(self) -> int:
        """Return how often the product labels every unlabeled image."""
        return 0

    def schedules(self) -> dict[str, list[float]]:
        """Return quantities worth plotting that follow from the settings alone: one value per epoch of a stage."""
        return {}


class AdaptationSettings(Settings):
    """Settings of a domain adaptation method."""

    bottleneck: int = Field(0, ge=0, description="width of a linear layer behind the backbone; 0: none")

    def extend_backbone(self, backbone: Backbone) -> Any:
        """Add the bottleneck, if there is one."""
        return Bottleneck(backbone, self.bottleneck) if self.bottleneck else backbone


@dataclass(frozen=True)
class Sizes:
    """What a learner must know about the data to be built."""

    num_classes: int
    num_domains: int = 1  # of the labeled and pseudo-labeled images it trains on


@dataclass(frozen=True)
class Progress:
    """The position of a training step: cycle from 1, epoch and step within the stage from 0."""

    round: int
    epoch: int
    epochs: int
    step: int
    steps: int
    span: Span = WHOLE

    @property
    def fraction(self) -> float:
        """The share of the stage's steps that are done: [0, 1)."""
        return self.step / self.steps

    @property
    def schedule_step(self) -> float:
        """The position within the schedule that the stage is part of, in steps."""
        return schedule_position(self.step, self.steps, self.span)[0]


class Learner(Protocol):
    """Anything that learns by steps."""

    nets: nn.ModuleDict
    opts: dict[str, Optimizer]

    def step(self, batch: Batch, at: Progress) -> dict[str, Tensor]:
        """Update the networks; return detached scalars to plot."""
        ...

    def logits(self, x: Tensor) -> Tensor:
        """Return (networks, B, classes) for images in [0, 1]."""
        ...


LearnerT = TypeVar("LearnerT", bound=Learner)


@dataclass(frozen=True, eq=False)
class StageRequest:
    """A stage that a method requests: train `learner` on `inputs` for `settings.epochs`."""

    key: str  # unique within a cycle; all randomness of the stage derives from (run seed, round, key)
    learner: Learner
    inputs: Inputs
    settings: Settings
    round: int = 1
    lr_scale: float = 1.0
    product: bool = False  # the learner is shipped in the end: the engine evaluates it after every epoch
    title: str = ""  # for people, e.g. "labeler of sketch"; empty: the key
    group: str = ""  # common title of sibling stages, e.g. "labelers"
    span: Span = WHOLE  # the part of the learning-rate schedule that the stage covers


@dataclass(frozen=True, eq=False)
class LabelRequest:
    """A labeling that a method requests: `learner` labels `pool` by `rule`."""

    key: str
    learner: Learner
    pool: UnlabeledSet
    rule: Rule
    round: int
    kind: LabelKind = "pseudo-labels"
    title: str = ""  # for people, e.g. "clean set (EID)"; empty: the key
    views: int = 0  # randomized views by which images are labeled too, as if they were further networks


class StageRunner(Protocol):
    """What answers the requests: the engine trains, a plan counts, a replay reads files."""

    def run_stage(self, request: StageRequest) -> None:
        """Bring the learner to the end of the stage."""
        ...

    def run_labeling(self, request: LabelRequest) -> PseudoLabels:
        """Return the labels of the pool."""
        ...


class Trainer:
    """What a method may ask of the engine: two verbs, both idempotent. It gives access to nothing else."""

    def __init__(self, runner: StageRunner) -> None:
        self._runner = runner

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
        title: str = "",
        group: str = "",
        span: Span = WHOLE,
    ) -> None:
        """Train `learner` on `inputs` for `settings.epochs`.

        Parameters
        ----------
        key
            Name of the stage, unique within a cycle. Its randomness derives from (run seed, round, key), and a
            stage that has finished is not trained again.
        learner
            Updated in place.
        inputs
            The sets to draw batches from, and how.
        settings
            Epochs, batch size and learning rate of the stage.
        round
            The cycle, from 1.
        lr_scale
            Factor on the learning rate.
        product
            Whether this learner is shipped in the end: the engine evaluates it after every epoch.
        title
            Name of the stage in reports, such as "labeler of sketch".
        group
            Common title of sibling stages, such as "labelers": reports draw their losses in one figure.
        span
            Start and end of the stage within its learning-rate schedule, for several stages that share one.
        """
        self._runner.run_stage(
            StageRequest(key, learner, inputs, settings, round, lr_scale, product, title or key, group, span)
        )

    def label(
        self,
        key: str,
        learner: Learner,
        pool: UnlabeledSet,
        rule: Rule,
        *,
        round: int,
        kind: LabelKind = "pseudo-labels",
        title: str = "",
        views: int = 0,
    ) -> PseudoLabels:
        """Let `learner` label the images of `pool`.

        Parameters
        ----------
        key
            Name of the labeling, unique within a cycle. One that exists is read, not computed again.
        learner
            Its logits are passed to `rule`; it is not changed.
        pool
            The images to label.
        rule
            Maps logits (networks, n, K) to a class (n,) and a selection mask (n,).
        round
            The cycle, from 1.
        kind
            "pseudo-labels" for labels of one domain by its labeler, "clean-set" for a selection of the pool.
        title
            Name of the labeling in reports, such as "clean set (EID)".
        views
            Pass the logits of this many randomized views to `rule` too: (views · networks, n, K). A frozen trunk
            has as many as are stored, and images have none unless `augment` has randomized views.

        Returns
        -------
        PseudoLabels
            Class, mask, confidence, probabilities and the votes of each network, in the order of `pool`.
        """
        return self._runner.run_labeling(LabelRequest(key, learner, pool, rule, round, kind, title or key, views))


@dataclass(frozen=True, eq=False)
class LearnerRequest:
    """A learner that a method asks to be built."""

    key: str
    learner: Callable[[MakeBackbone, Sizes, Any], Learner]
    settings: Settings
    num_domains: int = 1
    backbone: str | None = None  # default: the run's
    weights: str | None = None  # default: the run's
    freeze: str | None = None  # none, a stage or all; default: the run's


class Build:
    """Builds learners whose initial weights depend on the run's seed and on `key` alone. It knows no data."""

    def __init__(self, make: Callable[[LearnerRequest], Any]) -> None:
        self._make = make

    def make(self, request: LearnerRequest) -> Any:
        """Return the learner of a request."""
        return self._make(request)

    def __call__(
        self,
        key: str,
        learner: Callable[[MakeBackbone, Sizes, Any], LearnerT],
        settings: Settings,
        *,
        num_domains: int = 1,
        backbone: str | None = None,
        weights: str | None = None,
        freeze: str | None = None,
    ) -> LearnerT:
        """Return a new learner; `backbone`, `weights` and `freeze` default to the run's."""
        request = LearnerRequest(key, learner, settings, num_domains, backbone, weights, freeze)
        built: LearnerT = self.make(request)
        return built


Algorithm = Callable[[Task, Trainer, Build, Any], Learner]


@dataclass(frozen=True)
class Method:
    """A row of the registry.

    Parameters
    ----------
    name
        The name on the command line.
    family
        The group of the paper's tables it belongs to.
    paper
        Reference of the publication.
    summary
        One line for `ssdg methods`.
    learner
        Class of the product: what is evaluated and shipped.
    settings
        Its settings with their defaults.
    needs
        Data and views that it needs.
    presets
        Settings by preset name. "quick photo" and "quick none" apply to one kind of data only, "quick crawl" if an
        unlabeled domain is a crawl, "quick tail" if only the last layers of a pretrained network are trained.
        After them come those of "best", "best random" or "best pretrained" (weights), and "best photo" or
        "best none".
    algorithm
        Trains the product on a task. Default: one stage on all the data that it needs.
    uses_web_labels
        Whether the algorithm handles web-labels itself. Others that take several labeled domains may receive them
        as labels.
    freeze
        "all" if the method trains no layer of a backbone; None leaves it to the run.
    default_views
        Randomized views that are stored if layers are frozen.
    joint_labeler
        For a method that can label all unlabeled domains together in `eid` and in pairs `A+B`: trains its learner,
        `joint_labeler(learner, source, pools, trainer, settings, cycle=..., product=...)`.

    Examples
    --------
    >>> from ssdg.methods import Method, Settings, find_method, register
    >>> class CautiousSettings(Settings):
    ...     lr: float = 1e-4
    >>> learner = find_method("source-only").learner
    >>> method = Method("cautious", "source", "none", "source-only at a low rate", learner, CautiousSettings)
    >>> register(method).settings().lr  # doctest: +SKIP
    0.0001
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
    uses_web_labels: bool = False
    freeze: Literal["all"] | None = None
    default_views: int = 5
    joint_labeler: Callable[..., None] | None = None

    @property
    def web_labels(self) -> tuple[WebLabel, ...]:
        """The web-label strategies that the method supports, in the paper's order."""
        if self.uses_web_labels:
            return ("ignored", "retained", "refined")
        return ("ignored", "retained") if self.family in ("source", "DG") else ("ignored",)

    def fit(self, task: Task, trainer: Trainer, build: Build, settings: Settings) -> Learner:
        """Train on a task; return the product."""
        if task.web and not self.uses_web_labels:
            task = retained(task)
        if self.algorithm is not None:
            return self.algorithm(task, trainer, build, settings)
        product = build("main", self.learner, settings, num_domains=task.labeled.num_domains)
        pool = task.pool if "unlabeled" in self.needs else None
        inputs = self.inputs(task.labeled, pool, settings)
        trainer.train("main", product, inputs, settings, product=True, title=self.name)
        return product

    def inputs(self, labeled: LabeledSet | MixedSet, unlabeled: UnlabeledSet | None, settings: Settings) -> Inputs:
        """Return these sets, drawn as the method needs them."""
        return Inputs(
            labeled,
            unlabeled=unlabeled,
            balanced="balanced" in self.needs,
            views=tuple(view for view in VIEWS if view in self.needs),
            ratio=getattr(settings, "ratio", 1),
        )


def retained(task: Task) -> Task:
    """Return the task with web-labels as labels: crawls become labeled domains and are no longer unlabeled."""
    crawls = [task.unlabeled[name].labeled_as(y) for name, y in task.web.items()]
    rest = {name: pool for name, pool in task.unlabeled.items() if name not in task.web}
    labeled = renumber_domains(concat_labeled([task.labeled, *crawls]))
    return replace(task, labeled=labeled, unlabeled=rest, web={})


METHODS: dict[str, Method] = {}


def register(method: Method) -> Method:
    """Add a method to the registry; a name can be registered once."""
    if method.name in METHODS:
        raise ValueError(f"a method named '{method.name}' is registered already")
    METHODS[method.name] = method
    return method


def find_method(name: str, family: Family | None = None) -> Method:
    """Return the method of this name, or raise an error that suggests similar names. `A+B` is composed on demand."""
    if "+" in name and name not in METHODS and family in (None, "DA+DG"):
        from .compose import pair  # which itself needs the registry

        return pair(name)
    names = sorted(n for n, m in METHODS.items() if family in (None, m.family))
    if name not in names:
        raise unknown("method" if family is None else f"{family} method", name, names)
    return METHODS[name]


def find_labeler(name: str, *, also: str | None = None) -> Method:
    """Return the method of this name if it can label unlabeled domains: domain adaptation, or a joint labeler.

    The error for an unknown name lists `also` as a choice.
    """
    names = sorted(n for n, m in METHODS.items() if m.family == "DA" or m.joint_labeler is not None)
    if name not in names:
        raise unknown("labeling method", name, sorted([*names, also] if also else names))
    return METHODS[name]


ALL_VIEWS = 64  # as many views as can be stored
# For preset `quick` of a method with new layers that no probe can start: they learn faster than the pretrained ones.
NEW_LAYERS: dict[str, Any] = {"lr": 0.01, "trunk_rate": 0.1}


def sgd(modules: Iterable[nn.Module], settings: Settings) -> Optimizer:
    """Return the paper's optimizer over all parameters of the modules, fused: same numbers, half the time.

    With `trunk_rate`, backbones form a separate group at `lr` · `trunk_rate`.
    """
    modules = list(modules)
    parameters: list[Any] = [p for m in modules for p in m.parameters() if p.requires_grad]
    if not parameters:
        raise UserError(
            "all layers that the method adapts are frozen; give bottleneck=256, or freeze=stage1 or another stage "
            "instead of all"
        )
    if settings.trunk_rate != 1:
        trunk = {id(p) for m in modules for backbone in backbones_of(m) for p in backbone.parameters()}
        new = [p for p in parameters if id(p) not in trunk]
        old = [p for p in parameters if id(p) in trunk]
        parameters = [{"params": new}] if new else []
        parameters += [{"params": old, "lr": settings.lr * settings.trunk_rate}] if old else []
    return SGD(
        parameters,
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.nesterov,
        fused=True,
    )


def descend(loss: Tensor, *optimizers: Optimizer) -> None:
    """Take one step of these optimizers on `loss`; other parameters do not change.

    Gradients are freed afterwards: a network's worth of memory that the next forward pass can use.
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
    """Return a classifier: images to logits."""
    return nn.Sequential(backbone, linear_head(backbone.num_features, num_classes))


def argmax_rule(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Apply Q = argmax p (Eq. APL): the class of highest mean probability over the networks; select every image."""
    y = logits.softmax(-1).mean(0).argmax(-1)
    return y, torch.ones_like(y, dtype=torch.bool)
