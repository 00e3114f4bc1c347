"""Predict a stream of images in order: decode ahead of the network, in bounded memory, resumable."""

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
from numpy.typing import NDArray

from ..data.parallel import num_cores
from ..data.sources.decode import DECODE_VERSION, ResizeMode, UnreadableError, resize_content
from ..data.sources.tree import Item, Reader
from ..errors import UserError
from ..files import sha256_of
from .agreement import StreamRule, agreement, decide, sample_batches
from .classifier import MAX_BATCH, Answer, Classifier, Images, OutOfMemory, auto_batch, parse_batch, require_rejection
from .find_images import Entry, UnreadablePath, find_images
from .partial_output import Description, RowCounts, open_partial_output
from .predictions import Prediction, best_two

FORMAT = 2
NUM_AHEAD = 1  # batches decoded while the network works on another
NOT_FINITE = "the network's output is not finite"
NO_LISTED_IMAGE = "the list on standard input names no image; give one path per line"
Decoded = Images | str  # pixels, or why there are none
Rows = NDArray[np.intp]
ReportProgress = Callable[[RowCounts], None]


def predict_batches(
    classifier: Classifier,
    entries: Iterable[Entry],
    *,
    batch: int = MAX_BATCH,
    reject: float | None = None,
    rule: StreamRule | None = None,
) -> Iterator[list[Prediction]]:
    """Yield lists of `batch` predictions, one per image, in order, in constant memory.

    With `reject`, the fraction of known images that may be rejected, mark images that look less known as unknown.
    `rule` chooses the precision, if the classifier has a faster one; default: a new one.
    """
    threshold = None if reject is None else require_rejection(classifier).threshold(reject)
    chosen = ChosenClassifier.create(classifier, batch, rule or new_rule(classifier, threshold))
    for part, decoded in decode_batches(entries, batch, classifier.size, classifier.resize):
        yield list(_predict_batch(chosen, part, decoded, threshold))


def decode_batches(
    entries: Iterable[Entry], batch: int, size: int, mode: ResizeMode = "squash"
) -> Iterator[tuple[Sequence[Entry], Sequence[Decoded]]]:
    """Yield lists of `batch` entries with their pixels; decode the next list while the caller works on one."""
    stream, waiting = iter(entries), deque[tuple[list[Entry], list[Future[Decoded]]]]()
    pool = ThreadPoolExecutor(num_cores())
    with Reader() as reader:
        try:
            while True:
                while len(waiting) <= NUM_AHEAD and (part := list(islice(stream, batch))):
                    waiting.append((part, [pool.submit(_decode, reader, entry, size, mode) for entry in part]))
                if not waiting:
                    return
                part, futures = waiting.popleft()
                yield part, [future.result() for future in futures]
                pending = [entry for later, _ in waiting for entry in later]
                reader.close_all_but({entry.file for entry in pending if isinstance(entry, Item)})
        finally:
            pool.shutdown(cancel_futures=True)


def _decode(reader: Reader, entry: Entry, size: int, mode: ResizeMode) -> Decoded:
    if isinstance(entry, UnreadablePath):
        return entry.reason
    try:
        return resize_content(reader.read(entry), size, mode)
    except UnreadableError as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"


@dataclass
class BatchedClassifier:
    """A classifier with a maximum batch size, which is halved whenever a batch does not fit into memory."""

    classifier: Classifier
    max_batch: int

    def answer(self, images: Images) -> Answer:
        """Return the answer for any number of images."""
        while True:
            try:
                starts = range(0, len(images), self.max_batch)
                return concat_answers(
                    [self.classifier.answer(images[start : start + self.max_batch]) for start in starts]
                )
            except OutOfMemory:
                if self.max_batch == 1:
                    raise UserError(
                        "a single image does not fit into the device's memory; free some memory, or use --device cpu"
                    ) from None
                self.max_batch = min(self.max_batch, len(images)) // 2 or 1


def faster_of(classifier: Classifier) -> Classifier | None:
    """Return the same classifier in a faster precision that may change answers; None if there is none."""
    faster: Classifier | None = getattr(classifier, "faster", None)
    return faster


def new_rule(classifier: Classifier, threshold: float | None = None) -> StreamRule:
    """Return the rule for a stream, decided at once if the classifier has only one precision."""
    return StreamRule(None if faster_of(classifier) is not None else "fp32", threshold)


@dataclass(frozen=True)
class ChosenClassifier:
    """A classifier in the precision that a rule chooses while images pass; answers before are those of float32."""

    exact: BatchedClassifier
    faster: BatchedClassifier | None
    rule: StreamRule

    @classmethod
    def create(cls, classifier: Classifier, max_batch: int, rule: StreamRule) -> ChosenClassifier:
        """Return the classifier with its faster precision, if it has one."""
        faster = faster_of(classifier)
        batched = None if faster is None else BatchedClassifier(faster, max_batch)
        return cls(BatchedClassifier(classifier, max_batch), batched, rule)

    def answer(self, images: Images) -> Answer:
        """Return the answer for the next images of the stream."""
        if self.faster is None or self.rule.decision == "fp32":
            return self.exact.answer(images)
        if self.rule.decision == "bf16":
            return self.faster.answer(images)
        answer = self.exact.answer(images)
        if self.rule.is_sampling:
            self.rule.compare(answer, self.faster.answer(images))
        else:
            self.rule.skip(len(images))
        return answer


def answer_all(
    classifier: Classifier, read: Callable[[Rows], Images], num_images: int, threshold: float | None = None
) -> Answer:
    """Return the answer for images that can be read in any order; those of the sample are not computed again."""
    batch = int(getattr(classifier, "batch", MAX_BATCH))
    exact, faster = BatchedClassifier(classifier, batch), faster_of(classifier)
    parts = [np.arange(start, min(start + batch, num_images)) for start in range(0, num_images, batch)]
    computed: dict[int, Answer] = {}
    chosen = exact
    if faster is not None and (indices := sample_batches(num_images, batch)):
        rounded = BatchedClassifier(faster, batch)
        pairs = {index: (exact.answer(read(parts[index])), rounded.answer(read(parts[index]))) for index in indices}
        before, after = (concat_answers([pair[side] for pair in pairs.values()]) for side in (0, 1))
        side = int(decide(agreement(before, after, threshold)) == "bf16")
        chosen = (exact, rounded)[side]
        computed = {index: pair[side] for index, pair in pairs.items()}
    return concat_answers(
        [computed[index] if index in computed else chosen.answer(read(part)) for index, part in enumerate(parts)]
    )


def concat_answers(parts: Sequence[Answer]) -> Answer:
    """Concatenate the answers of several batches."""
    if len(parts) == 1:
        return parts[0]
    scores = [part.scores for part in parts if part.scores is not None]
    votes = [part.votes for part in parts if part.votes is not None]
    return Answer(
        np.concatenate([part.probs for part in parts]),
        np.concatenate(scores) if scores else None,
        np.concatenate(votes, axis=1) if votes else None,
    )


def _predict_batch(
    chosen: ChosenClassifier, entries: Sequence[Entry], decoded: Sequence[Decoded], threshold: float | None
) -> Iterator[Prediction]:
    images = [image for image in decoded if not isinstance(image, str)]
    paths = [entry.path for entry, image in zip(entries, decoded, strict=True) if not isinstance(image, str)]
    rows = (
        _to_predictions(paths, chosen.answer(np.stack(images)), chosen.exact.classifier.classes, threshold)
        if images
        else iter(())
    )
    for entry, image in zip(entries, decoded, strict=True):
        yield Prediction(entry.path, error=image) if isinstance(image, str) else next(rows)


def _to_predictions(
    paths: Sequence[str], answer: Answer, classes: Sequence[str], threshold: float | None
) -> Iterator[Prediction]:
    is_finite = np.isfinite(answer.probs).all(1).tolist()
    scores = answer.scores.tolist() if answer.scores is not None and threshold is not None else None
    for index, row in enumerate(best_two(paths, answer.probs, classes)):
        if not is_finite[index]:
            yield Prediction(row.path, error=NOT_FINITE)
        elif scores is None or threshold is None:
            yield row
        else:
            yield replace(row, score=scores[index], is_unknown=scores[index] < threshold)


@dataclass(frozen=True)
class Job:
    """What to classify, how, and the file to write."""

    model: Path
    inputs: tuple[str, ...]
    out: Path
    reject: float | None = None
    batch: int | str = "auto"
    plugin: Path | None = None
    null: bool = False
    anew: bool = False
    precision: str = "auto"

    def find_images(self, path_list: BufferedIOBase | None) -> Iterator[Entry]:
        """Yield every image, in order."""
        return find_images(self.inputs, path_list, null=self.null)


def classify(job: Job, classifier: Classifier, path_list: BufferedIOBase | None, report: ReportProgress) -> RowCounts:
    """Write a row for every image, after the rows that an earlier process wrote for the same job."""
    threshold = None if job.reject is None else require_rejection(classifier).threshold(job.reject)
    batch, default_batch = parse_batch(job.batch), auto_batch(classifier.free_bytes(), classifier.size)
    entries = job.find_images(path_list)
    with open_partial_output(job.out, rejecting=job.reject is not None) as part:
        part.begin(describe(job), batch, default_batch, anew=job.anew)
        rule = new_rule(classifier, threshold)
        rule.decision = rule.decision or part.decision
        is_open = rule.decision is None
        part.resume(entries, from_start=is_open)
        report(part.counts)
        for rows in predict_batches(classifier, entries, batch=part.batch, reject=job.reject, rule=rule):
            part.append(rows)
            if is_open and rule.decision is not None:
                part.save_decision(rule.decision)
                is_open = False
            report(part.counts)
        if not part.counts.rows:
            raise UserError(NO_LISTED_IMAGE)
        part.finish()
        return part.counts


def describe(job: Job) -> Description:
    """Return what the rows depend on."""
    return {
        "format": FORMAT,
        "decoder": DECODE_VERSION,
        "model": digest_of(job.model, job.plugin),
        "paths": hashlib.sha256(os.fsencode("\0".join(job.inputs))).hexdigest(),
        "reject": job.reject,
        "precision": job.precision,
    }


def digest_of(model: Path, plugin: Path | None) -> str:
    """Return a hash of a model's content: a file, or all files of a model folder or of a run's model."""
    folder = model / "model" if (model / "model").is_dir() else model
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else [model]
    sha = hashlib.sha256()
    for path in (*files, *([plugin] if plugin else [])):
        sha.update(bytes.fromhex(sha256_of(path)))
    return sha.hexdigest()
