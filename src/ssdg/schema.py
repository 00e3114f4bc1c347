"""What the report needs of `run.json`, `events.jsonl` and `result.json`; what else stands there is passed over."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

Percents = list[float]
Counts = dict[str, float | None]  # images, kept, accuracy, ..., as the auditor names them


class Start(BaseModel):
    """`run.json`."""

    config: dict[str, Any]
    command: str = ""
    hash: str = ""
    fingerprint: str = ""


class Task(BaseModel):
    """Which domains and classes."""

    labeled: str
    unlabeled: list[str]
    target: str | None = None
    classes: list[str]
    images: dict[str, int] = {}


class Epoch(BaseModel, extra="allow"):
    """One epoch of a stage; losses stand beside these fields under names of their own."""

    key: str = ""
    round: int
    epoch: int
    epochs: int = 0
    validation: Percents = []
    target: Percents = []

    @property
    def losses(self) -> dict[str, float]:
        """Means over the epoch by name."""
        found = (self.model_extra or {}).items()
        return {name: float(value) for name, value in found if isinstance(value, int | float) and name != "time"}


class Audit(BaseModel):
    """One labeling: counts per unlabeled domain, in the order of the pool."""

    key: str
    round: int
    domains: dict[str, Counts]

    @property
    def kind(self) -> str:
        """`apl` for the labels of a domain's labeler, `eid` for the clean set of all."""
        return self.key.split("/")[0]


class Phase(BaseModel):
    """One stage."""

    steps: int = 0
    images: int = 0
    seconds: float = 0.0
    losses: list[dict[str, float]] = []


class Scores(BaseModel):
    """Percent right by network and of their mean."""

    final: dict[str, float]
    last_five: dict[str, float]
    epochs_averaged: int


class WebLabels(BaseModel):
    """What the keywords of a crawl are worth."""

    strategy: str
    domains: dict[str, Counts]


class Profile(BaseModel):
    """Where the time of the process that ended the run went."""

    seconds: dict[str, float]
    total: float


class Result(BaseModel):
    """`result.json`."""

    method: str
    seed: int
    task: Task
    epochs: list[Epoch] = []
    pseudo_labels: list[Audit] = []
    phases: dict[str, Phase] = {}
    images_seen: int = 0
    seconds: float = 0.0
    hidden_labels: str = ""
    versions: dict[str, str] = {}
    machine: dict[str, Any] = {}
    target: Scores | None = None
    validation: Scores | None = None
    web_labels: WebLabels | None = None
    profile: Profile | None = None


class Domain(BaseModel):
    """One domain of `samples/index.json`: which of its images are shown, and what is known of them."""

    role: str
    images: int
    rows: list[Annotated[int, Field(ge=0)]]
    paths: list[str]
    truth: list[int] | None = None
    web: list[int] | None = None
    sprite: str


class Index(BaseModel):
    """`samples/index.json`."""

    tile: Annotated[int, Field(gt=0)]
    columns: Annotated[int, Field(gt=0)]
    classes: list[str]
    domains: dict[str, Domain]
