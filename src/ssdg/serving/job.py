"""All images behind the words of a command into one file, from the beginning or from where it was stopped."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path

from ..data.decode import DECODE_VERSION
from ..errors import UserError
from .classifier import Classifier, require_rejection
from .finding import Found, find
from .memory import auto_batch, check_batch
from .part import About, Written, opened_part
from .stream import predictions

FORMAT = 1
Report = Callable[[Written], None]  # hears of the rows that are written so far


@dataclass(frozen=True)
class Job:
    """What is to be classified, and into which file."""

    model: Path
    words: tuple[str, ...]
    out: Path
    reject: float | None = None
    batch: int | str = "auto"
    plugin: Path | None = None
    null: bool = False
    anew: bool = False

    def find(self, listed: BufferedIOBase | None) -> Iterator[Found]:
        """Every image, in order."""
        return find(self.words, listed, null=self.null)


def classify(job: Job, classifier: Classifier, listed: BufferedIOBase | None, report: Report) -> Written:
    """Write a row for every image; what an earlier process wrote of the same job is kept."""
    if job.reject is not None:
        require_rejection(classifier)
    given, usual = check_batch(job.batch), auto_batch(classifier.free_bytes(), classifier.size)
    found = job.find(listed)
    with opened_part(job.out, rejecting=job.reject is not None) as part:
        part.begin(describe(job), given, usual, anew=job.anew)
        part.resume(found)
        report(part.written)
        for rows in predictions(classifier, found, batch=part.batch, reject=job.reject):
            part.append(rows)
            report(part.written)
        if not part.written.rows:
            raise UserError("the list on standard input names no image; give one path per line")
        part.finish()
        return part.written


def describe(job: Job) -> About:
    """What rows depend on."""
    return {
        "format": FORMAT,
        "decoder": DECODE_VERSION,
        "model": digest_of(job.model, job.plugin),
        "paths": hashlib.sha256(os.fsencode("\0".join(job.words))).hexdigest(),
        "reject": job.reject,
    }


def digest_of(model: Path, plugin: Path | None) -> str:
    """A hash of the contents of a model: a file, or all files of the folder of a model or a run's model."""
    folder = model / "model" if (model / "model").is_dir() else model
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else [model]
    sha = hashlib.sha256()
    for path in (*files, *([plugin] if plugin else [])):
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()
