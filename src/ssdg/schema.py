"""Models of the files in a run folder: run.json, result.json, events.jsonl, stage metadata, samples/index.json.

The same models write and read. `to_json` writes the fields that were set. `read_json` ignores unknown keys and
rejects a file whose required fields are missing or invalid. Percentages are in [0, 100].
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, FiniteFloat, NonNegativeInt, PositiveInt, ValidationError, model_validator

from .errors import UserError
from .files import MAX_JSON_BYTES, parse_json, read_bytes, read_text
from .limits import MAX_THREADS

RESULT_FORMAT: Literal[2] = 2  # 1 (version 0.1) has no kinds, titles, groups and schedules; see `_upgraded`
SAMPLES_FORMAT: Literal[1] = 1
LONGEST_NAME = 100  # characters; file systems allow 255, and a temporary file's suffix takes some
TRAIN_AGAIN = "delete the run folder and train again"

LabelKind = Literal["pseudo-labels", "clean-set"]  # labels that a labeler gives to a domain; a selection of the pool
Percents = list[FiniteFloat]  # network 1, network 2, ..., and last the mean of their probabilities
Schedules = dict[str, list[FiniteFloat]]  # by name, a value per epoch
Model = TypeVar("Model", bound=BaseModel)

# What format 1 leaves out, by the part of a key before "/"; {} stands for the part after it.
_STAGES: dict[str, dict[str, Any]] = {
    "warm": {"title": "warm start"},
    "apl": {"title": "labeler of {}", "group": "labelers"},
    "dcg": {"title": "two networks of DCG", "product": True},
    "main": {"title": "network", "product": True},
}
_LABELINGS: dict[str, dict[str, Any]] = {
    "apl": {"kind": "pseudo-labels", "title": "labelers (APL)", "stage": "apl/{}"},
    "eid": {"kind": "clean-set", "title": "clean set (EID)", "stage": "dcg"},
}


def _upgraded(values: Any, table: dict[str, dict[str, Any]]) -> Any:
    """Add what format 1 leaves out of a stage or a labeling."""
    if not isinstance(values, dict) or "title" in values or not isinstance(values.get("key"), str):
        return values
    head, _, tail = values["key"].partition("/")
    known = table.get(head, {"title": values["key"]})
    return {**values, **{k: v.replace("{}", tail) if isinstance(v, str) else v for k, v in known.items()}}


class RunOptions(BaseModel, frozen=True):
    """Where and how a run is computed and reported; none of it changes its numbers."""

    device: str = "auto"
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] | None = None
    cache: Annotated[str, Field(pattern=r"^[^\x00]+$")] | None = None
    save_seconds: Annotated[FiniteFloat, Field(ge=0)] = 30.0
    tensorboard: bool = False
    wandb: str | None = None
    profile: bool = False
    probe: bool = True
    minutes: float | None = None  # that the settings in `chosen` fit
    chosen: dict[str, Any] = {}


class RunFile(BaseModel):
    """`run.json`: what was started, written before training."""

    hash: str  # of the configuration
    fingerprint: str  # of the images
    config: dict[str, Any]  # all settings as resolved, `RunConfig.flat`
    command: str = ""
    options: RunOptions = RunOptions()  # of `ssdg train`
    versions: dict[str, str] = {}


class Task(BaseModel):
    """Domains and classes of a run."""

    setting: str = "ssdg"
    labeled: str
    unlabeled: list[str]
    target: str | None = None
    classes: list[str]
    images: dict[str, int] = {}  # by domain, "validation" and "target"


class Unsupervised(BaseModel):
    """Scores on unlabeled images; None where there is nothing to score."""

    agreement: FiniteFloat | None = None  # % of the images to which all networks give the same class
    information: FiniteFloat | None = None  # nats
    density: FiniteFloat | None = None  # nats


class HistoryRow(BaseModel, extra="allow"):
    """One epoch of a stage. Mean losses are extra keys; scores exist for the product only."""

    epoch: int  # from 1
    unsupervised: Unsupervised | None = None
    validation: Percents = []
    target: Percents = []
    others: dict[str, Percents] = {}  # on other targets that share the stage, by fingerprint

    @property
    def losses(self) -> dict[str, float]:
        """Means over the epoch by name."""
        extra = (self.model_extra or {}).items()
        return {name: float(value) for name, value in extra if type(value) in (int, float)}

    @model_validator(mode="after")
    def _check_losses(self) -> Self:
        for name, value in self.losses.items():
            if not abs(value) < float("inf"):
                raise ValueError(f"{name} is not finite")
        return self


class Epoch(HistoryRow):
    """An epoch in `result.json`, or an event `epoch`, which also has the stage's key and number of epochs."""

    key: str = ""
    round: int  # cycle, from 1
    epochs: int = 0


class DomainAudit(BaseModel):
    """Labels of one domain against the hidden truth, as far as it is known."""

    images: int
    kept: int
    accuracy: FiniteFloat | None = None  # % of the images of a known class
    kept_accuracy: FiniteFloat | None = None
    ood: int | None = None  # images of no class, and how many of them were kept
    ood_kept: int | None = None
    ood_recall: FiniteFloat | None = None  # % of the images of no class that were not kept
    ood_precision: FiniteFloat | None = None  # % of the images not kept that are of no class
    ood_auroc: FiniteFloat | None = None  # %, of a low confidence as a sign of no class
    web_wrong: int | None = None  # among kept images of a known class: wrong web-labels,
    repaired: int | None = None  # those that the labels repair,
    broken: int | None = None  # and right web-labels that the labels break


class Audit(BaseModel):
    """One labeling, with its domains in the order of the pool."""

    key: str
    round: int
    kind: LabelKind = "pseudo-labels"
    title: str = ""
    stage: str = ""  # key of the stage whose learner gave the labels
    domains: dict[str, DomainAudit]

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, values: Any) -> Any:
        return _upgraded(values, _LABELINGS)


class StageInfo(BaseModel):
    """What a reader needs to name a stage."""

    key: str = ""
    round: int = 1
    title: str = ""  # such as "labeler of sketch"
    group: str = ""  # common title of sibling stages that share a figure
    product: bool = False  # whether the run ships the stage's networks

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, values: Any) -> Any:
        return _upgraded(values, _STAGES)


class Phase(StageInfo):
    """A finished stage in `result.json`."""

    steps: int = 0
    images: int = 0
    seconds: FiniteFloat = 0.0
    images_per_second: FiniteFloat | None = None
    losses: list[dict[str, FiniteFloat]] = []  # per epoch


class Scores(BaseModel):
    """Accuracy (%) by `network_1`, `network_2`, ..., `mean`."""

    final: dict[str, FiniteFloat]  # last epoch
    last_five: dict[str, FiniteFloat]  # mean of the last five epochs of the last cycle
    epochs_averaged: int  # fewer than five in a short cycle


class WebLabels(BaseModel):
    """Quality of a crawl's keywords as labels."""

    strategy: str
    domains: dict[str, DomainAudit]


class Discovered(BaseModel):
    """Event `discovered`: domains that discovery split the unlabeled images into."""

    domains: dict[str, int] = {}  # images of each
    strengths: dict[str, list[FiniteFloat]] = {}  # of the splits, by input


class Discovery(Discovered):
    """The same in `result.json`, with the domains the images came from."""

    asked: int | str = "auto"
    of: list[str]
    purity: FiniteFloat | None = None  # % of images in the majority true domain of their discovered one
    true_domains: dict[str, dict[str, int]] = {}  # images by discovered and true domain


class ProbeScores(BaseModel):
    """Scores of a linear classifier on the pretrained features, fitted on the labeled domain."""

    validation: FiniteFloat | None = None  # accuracy (%) on held-out labeled images
    target: FiniteFloat | None = None  # accuracy (%)
    unsupervised: Unsupervised | None = None
    images: int = 0  # labeled images it was fitted on
    seconds: FiniteFloat = 0.0


class Profile(BaseModel):
    """Seconds by phase of the process that finished the run."""

    seconds: dict[str, FiniteFloat]
    total: FiniteFloat
    images: int = 0
    images_per_second: FiniteFloat | None = None


class Result(BaseModel):
    """`result.json`."""

    format: Literal[1, 2] = 1
    method: str
    seed: int
    task: Task
    epochs: list[Epoch] = []  # of the product
    pseudo_labels: list[Audit] = []
    phases: dict[str, Phase] = {}  # by `stage_name`, in order
    images_seen: int = 0
    seconds: FiniteFloat = 0.0  # of training
    hidden_labels: str = ""  # who read hidden labels
    config: dict[str, Any] = {}
    hash: str = ""
    fingerprint: str = ""
    versions: dict[str, str] = {}
    machine: dict[str, str | int] = {}
    target: Scores | None = None
    validation: Scores | None = None
    unsupervised: Unsupervised | None = None
    web_labels: WebLabels | None = None
    discovery: Discovery | None = None
    profile: Profile | None = None
    probe: ProbeScores | None = None

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, values: Any) -> Any:
        """Add the keys and rounds of phases, which format 1 has in their names only."""
        if not isinstance(values, dict) or values.get("format", 1) != 1:
            return values
        try:
            domains = ["", *(f"/{name}" for name in values["task"]["unlabeled"])]
            keys = [head + domain for head in _STAGES for domain in domains]
            phases = {name: {**_key_of(name, keys), **phase} for name, phase in values["phases"].items()}
        except (TypeError, KeyError, AttributeError):  # no phases, or damaged
            return values
        return {**values, "phases": phases}


def _key_of(name: str, keys: list[str]) -> dict[str, Any]:
    """Return key and round of a stage by its `stage_name`; nothing if none of the keys has it."""
    round = int(name.partition("-")[0]) if name[:1].isdecimal() else 0
    return next(({"key": key, "round": round} for key in keys if stage_name(key, round) == name), {})


class PlannedStage(StageInfo):
    """A stage of the event `start`."""

    steps: int = 0
    epochs: int = 0
    schedules: Schedules = {}  # quantities that follow from the settings, such as {"clean rate r(t)": [1.0, 0.9]}


def stage_group(key: str) -> str:
    """Return the part of a key before "/": stages that differ in their domain only take equally long."""
    return key.split("/")[0]


class Start(BaseModel):
    """Event `start`: a process starts or resumes the run."""

    config: dict[str, Any]
    stages: list[PlannedStage] = []


class Labeled(Audit):
    """Event `labeled`."""

    is_old: bool = Field(False, alias="found")  # an earlier process labeled


class Trained(BaseModel):
    """Event `trained`: a stage is finished."""

    key: str
    round: int
    seconds: FiniteFloat
    steps: int
    is_old: bool = Field(False, alias="found")  # an earlier process finished it


class End(BaseModel):
    """Event `end`: the result is written."""

    result: dict[Literal["target", "validation"], Scores]


class StageMeta(BaseModel):
    """JSON metadata of `stages/*.safetensors`."""

    key: str
    round: int
    product: bool
    inputs: str  # fingerprint
    step: int  # steps done, of `steps`
    steps: int
    images_per_step: int
    finished: bool
    seconds: FiniteFloat
    sums: dict[str, FiniteFloat]  # of losses since the last epoch ended
    history: list[HistoryRow]


class SampledDomain(BaseModel):
    """A domain in `samples/index.json`: which of its images have thumbnails, and what is known of them."""

    role: Literal["labeled", "unlabeled", "target"]
    images: NonNegativeInt
    rows: list[NonNegativeInt]
    paths: list[str]
    truth: list[int] | None = None  # -1: not known, -2: of no class
    web: list[int] | None = None
    sprite: Annotated[str, Field(pattern=r"^[^/\\]+$")]  # a file next to the index

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if any(column is not None and len(column) != len(self.rows) for column in (self.paths, self.truth, self.web)):
            raise ValueError("its lists differ in length")
        if any(row >= self.images for row in self.rows):
            raise ValueError(f"a row is outside of its {self.images} images")
        return self


class Index(BaseModel):
    """`samples/index.json`."""

    format: Literal[1] = 1
    tile: PositiveInt  # pixels of a thumbnail's side
    columns: PositiveInt  # thumbnails in a line of a sprite
    classes: list[str]
    domains: dict[str, SampledDomain]


def stage_name(key: str, round: int) -> str:
    """Return the file name of a stage; different keys get different names."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", key)[:LONGEST_NAME]
    digest = hashlib.sha256(f"{key}\x1f".encode()).hexdigest()[:8]
    return f"{round}-{plain}" if plain.replace("-", "/") == key else f"{round}-{plain}-{digest}"


def to_json(record: BaseModel) -> dict[str, Any]:
    """Return the fields that were set, ready for `json.dump`."""
    return record.model_dump(mode="json", exclude_unset=True, by_alias=True)


def damaged(path: Path, reason: str, remedy: str = TRAIN_AGAIN) -> UserError:
    """Return the error for a file that no run of this version wrote."""
    return UserError(f"'{path}' is damaged or from another version ({reason}); {remedy}")


def first_problem(error: ValidationError) -> str:
    """Return the first failed field and why, on one line."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    return f"{field}: {message}" if field else message


def read_json(
    path: Path,
    model: type[Model],
    *,
    remedy: str = TRAIN_AGAIN,
    prepare: Callable[[Any], Any] = lambda values: values,
) -> Model:
    """Read a JSON file into a model; `prepare` changes the values before they are validated."""
    content = read_bytes(path, MAX_JSON_BYTES)
    try:
        return model.model_validate(prepare(parse_json(content)))
    except ValidationError as error:
        raise damaged(path, first_problem(error), remedy) from None
    except ValueError as error:
        raise damaged(path, f"not JSON: {error}", remedy) from None


class Trunk(BaseModel):
    """Event `trunk`: the maps of a frozen trunk that the run needs."""

    boundary: str  # the last frozen stage, or all
    views: int  # stored next to each plain image
    precision: str  # of the computation; maps are stored in float16
    bytes_per_image: int  # on disk, all views together
    missing: int  # maps that no earlier run had stored


Payload = Start | Discovered | Trunk | ProbeScores | Epoch | Labeled | Trained | End
EVENTS: dict[str, type[Payload]] = {
    "start": Start,
    "discovered": Discovered,
    "trunk": Trunk,
    "probe": ProbeScores,
    "epoch": Epoch,
    "labeled": Labeled,
    "trained": Trained,
    "end": End,
}


@dataclass(frozen=True)
class Event:
    """A line of `events.jsonl`: {"time": ..., "event": kind, **payload}."""

    time: float  # seconds since 1970
    kind: str
    payload: Payload


def read_events(path: Path) -> Iterator[Event]:
    """Yield the events of a file. Skip unknown kinds and a last line without an end, which is still being written."""
    lines = read_text(path, errors="replace").split("\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            values = parse_json(line)
            time, kind = float(values.pop("time", 0)), values.pop("event")
            if kind in EVENTS:
                yield Event(time, kind, EVENTS[kind].model_validate(values))
        except ValidationError as error:
            raise damaged(path, f"line {number}: {first_problem(error)}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise damaged(path, f"line {number} is not an event") from None


def read_run_file(folder: Path) -> RunFile:
    """Read `run.json`, which the engine wrote when the run started."""
    path = folder / "run.json"
    if not path.exists():
        raise UserError(
            f"'{folder}' is not a run folder (it has no run.json); start one with ssdg train --out {folder}"
        )
    return read_json(path, RunFile, remedy="give another folder")
