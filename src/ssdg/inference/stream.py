"""Images in, predictions out, in order: decoded ahead of the network, with bounded memory, resumable."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BufferedIOBase
from itertools import islice
from pathlib import Path

import numpy as np

from ..data.parallel import num_cores
from ..data.sources.decode import DECODE_VERSION, UnreadableError, decode, resize
from ..data.sources.tree import Item, Reader
from ..errors import UserError
from .classifier import MOST, Answer, Classifier, Images, OutOfMemory, auto_batch, check_batch, require_rejection
from .find_images import Found, Refused, find
from .partial_output import About, Written, opened_part
from .predictions import Prediction, best_two

AHEAD = 1  # batches that are decoded while the network is busy with another
NOT_A_NUMBER = "the network's answer is not a number"
Decoded = Images | str  # pixels, or why there are none


def predictions(
    classifier: Classifier, found: Iterable[Found], *, batch: int = MOST, reject: float | None = None
) -> Iterator[list[Prediction]]:
    """Lists of one prediction per image, `batch` of them each, in order, in constant memory.

    With `reject`, the share of known images that may be lost, what looks less known is marked as unknown.
    """
    threshold = None if reject is None else require_rejection(classifier).threshold(reject)
    asked = Asked(classifier, batch)
    for part, decoded in decoded_batches(found, batch, classifier.size):
        yield list(_told(asked, part, decoded, threshold))


def decoded_batches(
    found: Iterable[Found], batch: int, size: int
) -> Iterator[tuple[Sequence[Found], Sequence[Decoded]]]:
    """What was found, in lists of `batch`, and its pixels; the next list is decoded while a caller works on one."""
    stream, waiting = iter(found), deque[tuple[list[Found], list[Future[Decoded]]]]()
    pool = ThreadPoolExecutor(num_cores())
    with Reader() as reader:
        try:
            while True:
                while len(waiting) <= AHEAD and (part := list(islice(stream, batch))):
                    waiting.append((part, [pool.submit(_decoded, reader, one, size) for one in part]))
                if not waiting:
                    return
                part, futures = waiting.popleft()
                yield part, [future.result() for future in futures]
                reader.close_all_but({one.file for more, _ in waiting for one in more if isinstance(one, Item)})
        finally:
            pool.shutdown(cancel_futures=True)


def _decoded(reader: Reader, found: Found, size: int) -> Decoded:
    if isinstance(found, Refused):
        return found.reason
    try:
        content = reader.read(found)
        return decode(content, size) if isinstance(content, bytes) else resize(content, size)
    except UnreadableError as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


@dataclass
class Asked:
    """A classifier that is asked for at most so many images at once; fewer where they do not fit into its memory."""

    classifier: Classifier
    most: int

    def answer(self, images: Images) -> Answer:
        """The answer for any number of images."""
        while True:
            try:
                starts = range(0, len(images), self.most)
                return joined([self.classifier.answer(images[start : start + self.most]) for start in starts])
            except OutOfMemory:
                if self.most == 1:
                    raise UserError(
                        "one image alone does not fit into the device's memory; free some, or give --device cpu"
                    ) from None
                self.most = min(self.most, len(images)) // 2 or 1


def joined(parts: Sequence[Answer]) -> Answer:
    """The answers one after another."""
    if len(parts) == 1:
        return parts[0]
    scores = [part.scores for part in parts if part.scores is not None]
    votes = [part.votes for part in parts if part.votes is not None]
    return Answer(
        np.concatenate([part.probs for part in parts]),
        np.concatenate(scores) if scores else None,
        np.concatenate(votes, axis=1) if votes else None,
    )


def _told(
    asked: Asked, found: Sequence[Found], decoded: Sequence[Decoded], threshold: float | None
) -> Iterator[Prediction]:
    images = [image for image in decoded if not isinstance(image, str)]
    paths = [one.path for one, image in zip(found, decoded, strict=True) if not isinstance(image, str)]
    answers = (
        _rows(paths, asked.answer(np.stack(images)), asked.classifier.classes, threshold) if images else iter(())
    )
    for one, image in zip(found, decoded, strict=True):
        yield Prediction(one.path, error=image) if isinstance(image, str) else next(answers)


def _rows(
    paths: Sequence[str], answer: Answer, classes: Sequence[str], threshold: float | None
) -> Iterator[Prediction]:
    finite = np.isfinite(answer.probs).all(1).tolist()
    scores = answer.scores.tolist() if answer.scores is not None and threshold is not None else None
    for number, row in enumerate(best_two(paths, answer.probs, classes)):
        if not finite[number]:
            yield Prediction(row.path, error=NOT_A_NUMBER)
        elif scores is None or threshold is None:
            yield row
        else:
            yield replace(row, score=scores[number], is_unknown=scores[number] < threshold)


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
