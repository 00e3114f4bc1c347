"""Run folders and benchmark folders -> groups of candidates that may be compared, each with its scores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, FiniteFloat, ValidationError

from ..bench.folder import cell_folder, read_grid
from ..errors import UserError

Score = Literal["validation", "agreement", "information", "density"]
SCORES: tuple[Score, ...] = ("validation", "agreement", "information", "density")
Scores = Mapping[Score, float | None]


class Task(BaseModel):
    """Which domains and classes a run had."""

    setting: str = "ssdg"
    labeled: str
    unlabeled: tuple[str, ...]
    target: str | None = None
    classes: tuple[str, ...]
    images: dict[str, int] = {}

    @property
    def title(self) -> str:
        """For people."""
        piles = ", ".join(self.unlabeled) or "no unlabeled domain"
        told = f"{self.labeled} (unlabeled: {piles}) → {self.target or 'no target'}"
        return told if self.setting == "ssdg" else f"{told}, {self.setting}"

    @property
    def scored_on(self) -> dict[str, int]:
        """How many images the scores are of."""
        return {
            "held-out": self.images.get("validation", 0),
            "unlabeled": sum(count for name, count in self.images.items() if name in self.unlabeled),
        }


class Discovery(BaseModel):
    """Which domains the unlabeled images came from before they were split by style."""

    of: tuple[str, ...]


class Percents(BaseModel):
    """Accuracies by network and of their mean, after the last epoch."""

    final: dict[str, FiniteFloat]


class Epoch(BaseModel):
    """One epoch of the networks that are kept; the last of `validation` and `target` is of their mean."""

    round: int
    epoch: int
    validation: list[FiniteFloat] = []
    target: list[FiniteFloat] = []
    unsupervised: dict[str, FiniteFloat | None] = {}


class Result(BaseModel):
    """What is read of `result.json`."""

    method: str
    seed: int
    task: Task
    epochs: list[Epoch] = []
    validation: Percents | None = None
    target: Percents | None = None
    unsupervised: dict[str, FiniteFloat | None] = {}
    discovery: Discovery | None = None

    @property
    def title(self) -> str:
        """The task; one whose unlabeled images were split by style is the same."""
        before = self.discovery.of if self.discovery else self.task.unlabeled
        return self.task.model_copy(update={"unlabeled": tuple(sorted(before))}).title


@dataclass(frozen=True)
class Run:
    """A run that has ended."""

    folder: Path
    label: str
    result: Result


@dataclass(frozen=True)
class Candidate:
    """What may be chosen: a run, or an epoch of one. `target` is for judging the scores, never for ranking."""

    label: str
    folder: Path
    scores: Scores
    target: float | None = None


@dataclass(frozen=True)
class Group:
    """Candidates whose scores are of the same images."""

    title: str
    candidates: tuple[Candidate, ...]


def read_runs(folders: Sequence[Path], *, blind: bool) -> list[Run]:
    """The runs in folders, each once; with `blind` no number of the target is read."""
    found: dict[Path, Run] = {}
    for folder in folders:
        for path, label in _runs_in(folder):
            found.setdefault(path.resolve(), Run(path, label, read_result(path / "result.json", blind)))
    runs = list(found.values())
    for run in runs[1:]:
        if run.result.task.classes != runs[0].result.task.classes:
            raise UserError(
                f"the runs in '{runs[0].folder}' and '{run.folder}' have different classes and cannot be compared; "
                "give runs of one problem"
            )
    return runs


def _runs_in(folder: Path) -> list[tuple[Path, str]]:
    """The runs of a folder with their names: itself, or the cells of a benchmark that have ended."""
    if (folder / "result.json").is_file():
        return [(folder, folder.resolve().name)]
    if (folder / "suite.json").is_file():
        cells = read_grid(folder).cells
        ended = [cell for cell in cells if (cell_folder(folder, cell.id) / "result.json").is_file()]
        if not ended:
            raise UserError(f"no cell of the benchmark in '{folder}' has ended; run it first: ssdg bench")
        return [(cell_folder(folder, cell.id), f"{cell.row} · seed {cell.seed}") for cell in ended]
    if (folder / "run.json").is_file():
        raise UserError(f"the run in '{folder}' has not ended (it has no result.json); let it: ssdg resume {folder}")
    raise UserError(f"'{folder}' has no result.json; give folders of runs, such as runs/*, or of a benchmark")


def read_result(path: Path, blind: bool) -> Result:
    """What is needed of a `result.json`."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return Result.model_validate(without_target(told) if blind else told)
    except (ValueError, TypeError, AttributeError, ValidationError):
        raise UserError(f"'{path}' is damaged or not of a run; give folders of runs that have ended") from None


def without_target(told: dict[str, Any]) -> dict[str, Any]:
    """A result in which nothing tells of the target but its name."""
    rest = {key: value for key, value in told.items() if key != "target"}
    epochs = [{key: value for key, value in row.items() if key != "target"} for row in told.get("epochs", [])]
    return {**rest, "epochs": epochs}


def by_task(runs: Iterable[Run]) -> list[Group]:
    """The runs by task; those of a task must have been scored on as many images."""
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(run.result.title, []).append(run)
    for several in tasks.values():
        _check_same_images(several)
    return [Group(title, tuple(_named(several))) for title, several in tasks.items()]


def by_run(runs: Iterable[Run]) -> list[Group]:
    """The epochs of each run."""
    named = {run.folder: candidate.label for run, candidate in zip(runs, _named(list(runs)), strict=True)}
    return [
        Group(f"{named[run.folder]}: {run.result.title}", tuple(_epoch(run, row) for row in run.result.epochs))
        for run in runs
    ]


def _check_same_images(runs: Sequence[Run]) -> None:
    first = runs[0]
    for run in runs[1:]:
        mine, theirs = run.result.task.scored_on, first.result.task.scored_on
        for name in mine:
            if mine[name] != theirs[name]:
                raise UserError(
                    f"'{first.folder}' has {theirs[name]:,} {name} images and '{run.folder}' has {mine[name]:,} in "
                    "domains of the same names; their scores are of different images and cannot be compared"
                )


def _named(runs: Sequence[Run]) -> list[Candidate]:
    """The runs as candidates; names that occur twice are told by the folder."""
    labels = [run.label for run in runs]
    return [
        Candidate(
            run.label if labels.count(run.label) == 1 else str(run.folder),
            run.folder,
            _scores(_mean(run.result.validation), run.result.unsupervised),
            _mean(run.result.target),
        )
        for run in runs
    ]


def _epoch(run: Run, row: Epoch) -> Candidate:
    return Candidate(
        f"cycle {row.round} · epoch {row.epoch}",
        run.folder,
        _scores(row.validation[-1] if row.validation else None, row.unsupervised),
        row.target[-1] if row.target else None,
    )


def _scores(validation: float | None, unsupervised: Mapping[str, float | None]) -> Scores:
    return {name: validation if name == "validation" else unsupervised.get(name) for name in SCORES}


def _mean(percents: Percents | None) -> float | None:
    return percents.final.get("mean") if percents else None
