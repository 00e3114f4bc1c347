"""A run folder, finished or going on, as the report reads it."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from ..errors import UserError
from ..schema import Audit, Epoch, Index, Result, Start, Task

Model = TypeVar("Model", bound=BaseModel)
PRODUCTS = ("dcg", "main")  # stages whose networks are kept
LONGEST_KEY = 100  # characters of a key in a file name, as the engine cuts it


@dataclass(frozen=True)
class Labels:
    """The labels of one domain by one stage, in the domain's order."""

    y: NDArray[np.int64]
    keep: NDArray[np.bool_]
    confidence: NDArray[np.float32]
    votes: NDArray[np.int64]  # (networks, n)

    @property
    def agreed(self) -> NDArray[np.bool_]:
        """Where all networks name the same class."""
        return np.asarray((self.votes == self.votes[0]).all(0))


@dataclass(frozen=True)
class Run:
    """One run. `result` is None while it is going on, or when it was stopped."""

    folder: Path
    name: str
    start: Start
    result: Result | None
    task: Task
    epochs: tuple[Epoch, ...]
    audits: tuple[Audit, ...]
    labels: Mapping[tuple[str, int, str], Labels]  # by kind, cycle and domain
    samples: Index | None

    @property
    def config(self) -> Mapping[str, Any]:
        """All settings as resolved."""
        return self.start.config

    @property
    def product(self) -> list[Epoch]:
        """The epochs of the networks that are kept, or that would be."""
        scored = [row for row in self.epochs if row.key in PRODUCTS]
        return scored or [row for row in self.epochs if row.target or row.validation]

    @property
    def rounds(self) -> list[int]:
        """The cycles that have labels."""
        return sorted({audit.round for audit in self.audits})


def read_run(folder: Path) -> Run:
    """Read a run folder, or say in a sentence what is wrong with it."""
    if not (folder / "run.json").exists():
        raise UserError(
            f"'{folder}' is no run folder (it has no run.json) and no benchmark folder (it has no suite.json); "
            "give the --out of ssdg train or ssdg bench"
        )
    start = _read(folder / "run.json", Start)
    result = _read(folder / "result.json", Result) if (folder / "result.json").exists() else None
    events = list(_events(folder / "events.jsonl"))
    samples = _read(folder / "samples" / "index.json", Index) if (folder / "samples/index.json").exists() else None
    audits = result.pseudo_labels if result else _latest([e for e in events if isinstance(e, Audit)])
    epochs = _latest([e for e in events if isinstance(e, Epoch)]) or (_told_by(result) if result else [])
    task = result.task if result else _task(start, audits, samples)
    labels = {place: found for audit in audits for place, found in _labels(folder, audit).items()}
    return Run(folder, folder.name, start, result, task, tuple(epochs), tuple(audits), labels, samples)


def damaged(path: Path, reason: str) -> UserError:
    """The sentence for a file that cannot be what a run writes."""
    return UserError(f"'{path}' is damaged or of another version ({reason}); delete the run folder and train again")


def stage_name(key: str, round: int) -> str:
    """The file name that the engine gives a stage."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", key)[:LONGEST_KEY]
    suffix = "" if plain.replace("-", "/") == key else f"-{_digest(key)[:8]}"
    return f"{round}-{plain}{suffix}"


def _digest(key: str) -> str:
    return hashlib.sha256(f"{key}\x1f".encode()).hexdigest()


def _read(path: Path, kind: type[Model]) -> Model:
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise damaged(path, _first(error)) from None


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return " ".join(f"{place} {first['msg']}".split())


def _events(path: Path) -> Iterator[Epoch | Audit]:
    """Epochs and labelings; a last line cut short is one that is being written."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.exists() else []
    kinds: dict[str, type[Epoch | Audit]] = {"epoch": Epoch, "labeled": Audit}
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
            if event["event"] in kinds:
                yield kinds[event["event"]].model_validate({k: v for k, v in event.items() if k != "time"})
        except ValidationError as error:
            raise damaged(path, f"line {number}: {_first(error)}") from None
        except (ValueError, KeyError, TypeError):
            raise damaged(path, f"line {number} is no event") from None


Told = TypeVar("Told", Epoch, Audit)


def _latest(events: list[Told]) -> list[Told]:
    """What was told twice, because a run was stopped in between, counts once."""
    found = {(event.round, event.key, event.epoch if isinstance(event, Epoch) else 0): event for event in events}
    return list(found.values())


def _told_by(result: Result) -> list[Epoch]:
    """Epochs of a result whose events are gone: those of the product."""
    has_cycles = any(audit.kind == "eid" for audit in result.pseudo_labels)
    return [row.model_copy(update={"key": "dcg" if has_cycles else "main"}) for row in result.epochs]


def _task(start: Start, audits: list[Audit], samples: Index | None) -> Task:
    """What is known of a run that has not ended."""
    config = start.config
    names = [name for audit in audits for name in audit.domains]
    if samples:
        names = [name for name, domain in samples.domains.items() if domain.role == "unlabeled"]
    return Task(
        labeled=str(config.get("labeled")),
        unlabeled=list(dict.fromkeys(names)),
        target=None if config.get("target") is None else str(config["target"]),
        classes=samples.classes if samples else [],
    )


def _labels(folder: Path, audit: Audit) -> dict[tuple[str, int, str], Labels]:
    """The labels of one labeling by domain; none where the file was deleted."""
    path = folder / "labels" / f"{stage_name(audit.key, audit.round)}.npz"
    if not path.exists():
        return {}
    whole = _load(path)
    counts = [int(row.get("images") or 0) for row in audit.domains.values()]
    if len(whole.y) != sum(counts):
        raise damaged(path, f"it labels {len(whole.y)} images where the run tells of {sum(counts)}")
    ends = np.cumsum(counts)
    parts = {}
    for name, count, end in zip(audit.domains, counts, ends, strict=True):
        here = slice(end - count, end)
        part = Labels(whole.y[here], whole.keep[here], whole.confidence[here], whole.votes[:, here])
        parts[audit.kind, audit.round, name] = part
    return parts


def _load(path: Path) -> Labels:
    try:
        with np.load(path, allow_pickle=False) as file:
            labels = Labels(file["y"], file["keep"], file["confidence"], file["votes"])
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile):
        raise damaged(path, "it cannot be read") from None
    count = len(labels.y)
    if labels.keep.shape != (count,) or labels.confidence.shape != (count,) or labels.votes.shape[1:] != (count,):
        raise damaged(path, "its arrays are of unlike lengths")
    return labels
