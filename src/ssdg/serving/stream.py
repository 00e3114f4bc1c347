"""Images in, predictions out, in order: decoded ahead of the network, a bounded number at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from ..data.decode import UnreadableError, decode, resize
from ..data.reader import Reader
from ..data.sources import Item
from ..data.threads import num_cores
from ..engine.predictions import Prediction, best_two
from ..errors import UserError
from .classifier import Answer, Classifier, Images, OutOfMemory, require_rejection
from .finding import Found, Refused
from .memory import MOST

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
