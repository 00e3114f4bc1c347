"""Read a run folder, finished or running, for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..data.sources.npz import open_arrays
from ..errors import ZIP_ERRORS, UserError
from ..files import open_file
from ..schema import (
    Audit,
    DomainAudit,
    Epoch,
    Index,
    LabelKind,
    PlannedStage,
    ProbeScores,
    Result,
    RunFile,
    Scores,
    Start,
    Task,
    damaged,
    read_events,
    read_json,
    stage_name,
)


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels that one labeling gave to one domain, in the domain's order."""

    kind: LabelKind
    title: str
    stage: str  # key of the stage whose learner gave them
    round: int
    domain: str
    y: NDArray[np.int64]
    keep: NDArray[np.bool_]
    confidence: NDArray[np.float32]
    votes: NDArray[np.int64]  # (networks, n)

    @property
    def agreement(self) -> float | None:
        """% of the images to which all networks give the same class; None for one network or no image."""
        if len(self.votes) < 2 or not len(self.y):
            return None
        return 100 * float((self.votes == self.votes[0]).all(0).mean())


class AuditRow(NamedTuple):
    """The audit of one domain in one labeling."""

    title: str
    domain: str
    round: int
    counts: DomainAudit


@dataclass(frozen=True)
class Run:
    """One run. `result` is None until it is finished."""

    folder: Path
    name: str
    file: RunFile
    result: Result | None
    task: Task
    stages: Mapping[tuple[str, int], PlannedStage]  # by key and round, in order
    epochs: tuple[Epoch, ...]
    audits: tuple[Audit, ...]
    labels: tuple[Labels, ...]
    samples: Index | None
    early_probe: ProbeScores | None = None  # of `probe.json`, which is written before training

    @property
    def config(self) -> Mapping[str, Any]:
        """All settings as resolved."""
        return self.file.config

    @property
    def product(self) -> list[Epoch]:
        """Epochs of the networks that are shipped; no other stage has scores."""
        scored = [row for row in self.epochs if row.target or row.validation]
        return scored or [row for row in self.epochs if self.stage(row).product]

    @property
    def probe(self) -> ProbeScores | None:
        """Scores of the linear probe of the pretrained features, also of an unfinished run."""
        return (self.result.probe if self.result else None) or self.early_probe

    def accuracy(self, name: Literal["target", "validation"]) -> float | None:
        """Return the accuracy (%) of the networks' mean: of the result, or of the latest epoch."""
        if self.result is not None:
            scores: Scores | None = getattr(self.result, name)
            return scores.final["mean"] if scores else None
        values = [getattr(row, name)[-1] for row in self.product if getattr(row, name)]
        return values[-1] if values else None

    def stage(self, row: Epoch) -> PlannedStage:
        """Return the stage of an epoch."""
        return self.stages.get((row.key, row.round)) or PlannedStage(key=row.key, round=row.round)

    def titles(self, kind: LabelKind | None = None) -> list[str]:
        """Return the titles of all labelings, or of those of a kind."""
        return list(dict.fromkeys(audit.title for audit in self.audits if kind in (None, audit.kind)))

    def audit_rows(self, kind: LabelKind, field: str) -> list[AuditRow]:
        """Return the audits of a kind in which a field is known."""
        return [
            AuditRow(audit.title, name, audit.round, counts)
            for audit in self.audits
            if audit.kind == kind
            for name, counts in audit.domains.items()
            if getattr(counts, field) is not None
        ]

    def lineage(self, kind: LabelKind, title: str, domain: str) -> tuple[str, str]:
        """Return what labelings have in common of which a later one replaces an earlier one.

        This is the domain, unless a stage labels a domain several times in a cycle: then titles distinguish them.
        """
        audits = [audit for audit in self.audits if audit.kind == kind]
        keys = [(audit.stage, audit.round, name) for audit in audits for name in audit.domains]
        return (title if len(set(keys)) < len(keys) else "", domain)

    def labels_of(self, title: str, domain: str) -> list[Labels]:
        """Return the labels that a labeling gave to a domain, by cycle."""
        matches = [labels for labels in self.labels if (labels.title, labels.domain) == (title, domain)]
        return sorted(matches, key=lambda labels: labels.round)

    def last_labels(self, kind: LabelKind | None = None) -> list[Labels]:
        """Return the labels that no later labeling replaces, for every kind and domain."""
        ordered = sorted(self.labels, key=lambda labels: labels.round)
        last = {
            (labels.kind, self.lineage(labels.kind, labels.title, labels.domain)): labels
            for labels in ordered
            if kind in (None, labels.kind)
        }
        return list(last.values())


def read_run(folder: Path) -> Run:
    """Read a run folder; raise `UserError` if it is none or is damaged."""
    if not (folder / "run.json").exists():
        raise UserError(
            f"'{folder}' is not a run folder (it has no run.json) and not a benchmark folder (it has no suite.json); "
            "pass the --out folder of ssdg train or ssdg bench"
        )
    file = read_json(folder / "run.json", RunFile)
    result = read_json(folder / "result.json", Result) if (folder / "result.json").exists() else None
    samples = (
        read_json(folder / "samples" / "index.json", Index) if (folder / "samples/index.json").exists() else None
    )
    probe = read_json(folder / "probe.json", ProbeScores) if (folder / "probe.json").exists() else None
    events = [event.payload for event in read_events(folder / "events.jsonl")]
    starts = [event for event in events if isinstance(event, Start)]
    audits = result.pseudo_labels if result else _latest([event for event in events if isinstance(event, Audit)])
    epochs = _latest([event for event in events if isinstance(event, Epoch)]) or _product_epochs(result)
    return Run(
        folder,
        folder.name,
        file,
        result,
        result.task if result else _task(file, audits, samples),
        _stages(starts, result, epochs),
        tuple(epochs),
        tuple(audits),
        tuple(labels for audit in audits for labels in _labels(folder, audit)),
        samples,
        probe,
    )


Repeated = TypeVar("Repeated", Epoch, Audit)


def _latest(events: Sequence[Repeated]) -> list[Repeated]:
    """Drop all but the last of repeated events: a run that was killed and resumed writes some of them twice."""
    last = {(event.round, event.key, event.epoch if isinstance(event, Epoch) else 0): event for event in events}
    return list(last.values())


def _product_epochs(result: Result | None) -> list[Epoch]:
    """Return the epochs of a result whose events were deleted, with the key of their stage."""
    if result is None:
        return []
    keys = {phase.round: phase.key for phase in result.phases.values() if phase.product}
    return [row.model_copy(update={"key": keys.get(row.round, "product")}) for row in result.epochs]


def _stages(
    starts: Sequence[Start], result: Result | None, epochs: Sequence[Epoch]
) -> dict[tuple[str, int], PlannedStage]:
    """Return planned stages, finished ones whose events were deleted, and those that only have epochs."""
    planned = [stage for start in starts for stage in start.stages]
    if result:
        phases = [phase for phase in result.phases.values() if phase.key]
        planned += [PlannedStage(**phase.model_dump(exclude={"losses"})) for phase in phases]
    stages: dict[tuple[str, int], PlannedStage] = {}
    for stage in [*planned, *(PlannedStage(key=row.key, round=row.round) for row in epochs)]:
        stages.setdefault((stage.key, stage.round), stage)
    return stages


def _task(file: RunFile, audits: Sequence[Audit], samples: Index | None) -> Task:
    """Return what is known about the task of an unfinished run."""
    config = file.config
    names = [name for audit in audits for name in audit.domains]
    if samples:
        names = [name for name, domain in samples.domains.items() if domain.role == "unlabeled"]
    return Task(
        labeled=str(config.get("labeled")),
        unlabeled=list(dict.fromkeys(names)),
        target=None if config.get("target") is None else str(config["target"]),
        classes=samples.classes if samples else [],
    )


def _labels(folder: Path, audit: Audit) -> list[Labels]:
    """Read the labels of one labeling by domain; return none if the file was deleted."""
    path = folder / "labels" / f"{stage_name(audit.key, audit.round)}.npz"
    if not path.exists():
        return []
    y, keep, confidence, votes = _load(path)
    total = sum(counts.images for counts in audit.domains.values())
    if len(y) != total:
        raise damaged(path, f"it labels {len(y)} images, the run has {total}")
    parts, start = [], 0
    for name, counts in audit.domains.items():
        rows = slice(start, start + counts.images)
        arrays = y[rows], keep[rows], confidence[rows], votes[:, rows]
        parts.append(Labels(audit.kind, audit.title, audit.stage, audit.round, name, *arrays))
        start += counts.images
    return parts


def _load(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    try:
        with open_file(path) as opened, open_arrays(opened) as arrays:
            y, keep, confidence, votes = map(arrays.read, ("y", "keep", "confidence", "votes"))
    except (OSError, KeyError, TypeError, AttributeError, *ZIP_ERRORS):
        raise damaged(path, "it cannot be read") from None
    if keep.shape != y.shape or confidence.shape != y.shape or votes.shape[1:] != y.shape:
        raise damaged(path, "its arrays differ in length")
    return y, keep, confidence, votes
