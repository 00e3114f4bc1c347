"""Inspect every image of an audit once: damage, leaks and near-duplicates.

A near-duplicate may be scaled, compressed, brightened, mirrored or slightly cropped. A signature holds the 255 lowest
frequencies of the gray image (cosine transform without its mean) as a unit vector, so the similarity of two images is
a dot product. Square roots keep a few strong edges from dominating, like the bits of a perceptual hash. Mirroring an
image flips the sign of every odd horizontal frequency. An image has three signatures, of itself and of two windows
inside it: a crop looks like one of the windows of the original.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...data.parallel import ProgressCallback, run_in_threads, show_progress
from ...data.sources.decode import UnreadableError, decode_whole
from ...data.sources.manifest import Row, is_inside
from ...data.sources.tree import Item, Reader
from ...errors import one_line
from ...files import real_path
from ..store import DAMAGED

Signatures = NDArray[np.float32]  # (n, *SHAPE); unit vectors, or zero for images of a single color
_Matrix = NDArray[np.float32]
_SIDE = 16  # frequencies in each direction
_LENGTH = _SIDE * _SIDE - 1
_TRIMS = (0.0, 0.02, 0.04)  # fraction cut from every side; a signature tolerates about one more percent
SHAPE = (len(_TRIMS), _LENGTH)
_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 0), (2, 0))  # compared windows; one of the two is always the whole image
_MIN_AMPLITUDE = 0.25  # gray levels; an image without a stronger frequency has no usable signature
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_CHUNK = 512

_row, _column = np.divmod(np.arange(_SIDE * _SIDE, dtype=np.int64), _SIDE)
_WEIGHT: _Matrix = np.sqrt(_row + _column)[1:].astype(np.float32)  # natural images have less of a higher frequency
_MIRROR: _Matrix = np.where(_column % 2, -1, 1)[1:].astype(np.float32)


@dataclass(frozen=True)
class Match:
    """The most similar image; `similarity` is at most 1."""

    index: int
    similarity: float
    mirrored: bool


def signature(pixels: NDArray[np.uint8]) -> Signatures:
    """Return the signatures (SHAPE) of one image (H, W, 3) at its original size, so no resizing affects them."""
    gray: _Matrix = np.matmul(pixels, _LUMA, dtype=np.float32)
    return np.stack([_window(gray, trim) for trim in _TRIMS])


def _window(gray: _Matrix, trim: float) -> _Matrix:
    top, left = round(gray.shape[0] * trim), round(gray.shape[1] * trim)
    inner = gray[top : gray.shape[0] - top, left : gray.shape[1] - left]
    waves: _Matrix = np.matmul(np.matmul(_waves(inner.shape[0]), inner), _waves(inner.shape[1]).T)
    values = waves.reshape(-1)[1:]
    if np.abs(values).max() < _MIN_AMPLITUDE:
        return np.zeros(_LENGTH, np.float32)
    values = np.sign(values) * np.sqrt(np.abs(values)) * _WEIGHT
    return (values / np.linalg.norm(values)).astype(np.float32)


@lru_cache(maxsize=64)
def _waves(length: int) -> _Matrix:
    """Return cosines (_SIDE, length), scaled so that sums over pixels become means."""
    position = (np.arange(length) + 0.5) / length
    return (np.cos(np.pi * np.outer(np.arange(_SIDE), position)) / length).astype(np.float32)


def find_nearest(queries: Signatures, others: Signatures) -> list[Match]:
    """Return the most similar of `others` for every query."""
    matches = []
    for start in range(0, len(queries), _CHUNK):
        plain, mirrored = _similarities(queries[start : start + _CHUNK], others)
        best = np.maximum(plain, mirrored)
        rows, columns = np.arange(len(best)), best.argmax(1)
        is_mirrored = mirrored[rows, columns] > plain[rows, columns]
        similarities = best[rows, columns]
        fields = zip(columns.tolist(), similarities.tolist(), is_mirrored.tolist(), strict=True)
        matches += [Match(*values) for values in fields]
    return matches


def match_copies(signatures: Signatures, order: Sequence[int], min_similarity: float) -> dict[int, Match]:
    """Match each image, in order, to an earlier one that is not a copy itself; return the copies.

    Comparing with originals only keeps a chain of small changes from joining dissimilar images.
    """
    originals: list[int] = []
    matches: dict[int, Match] = {}
    for start in range(0, len(order), _CHUNK):
        chunk = list(order[start : start + _CHUNK])
        num_originals = len(originals)
        candidates = [*originals, *chunk]
        plain, mirrored = _similarities(signatures[chunk], signatures[candidates])
        best = np.maximum(plain, mirrored)
        allowed = np.zeros(len(candidates), np.bool_)
        allowed[:num_originals] = True
        for row, image in enumerate(chunk):
            column = int(np.where(allowed, best[row], -1).argmax()) if allowed.any() else 0
            if allowed[column] and best[row, column] >= min_similarity:
                is_mirrored = bool(mirrored[row, column] > plain[row, column])
                matches[image] = Match(candidates[column], float(best[row, column]), is_mirrored)
            else:
                allowed[num_originals + row] = True
                originals.append(image)
    return matches


def _similarities(queries: Signatures, others: Signatures) -> tuple[_Matrix, _Matrix]:
    """Return the similarity of every pair, plain and with one image mirrored: the maximum over the windows."""
    plain, mirrored = np.full((2, len(queries), len(others)), -1, np.float32)
    for i, j in _PAIRS:
        np.maximum(plain, np.matmul(queries[:, i], others[:, j].T), out=plain)
        np.maximum(mirrored, np.matmul(queries[:, i] * _MIRROR, others[:, j].T), out=mirrored)
    return plain, mirrored


@dataclass(frozen=True)
class Inspection:
    """The signatures, hashes and sizes of images; `damage` maps the unusable ones to a reason."""

    signatures: Signatures  # zero if damaged
    hashes: tuple[str, ...]  # sha256 of the file, or of the pixels of an .npz row; '' if damaged
    pixels: NDArray[np.int64]  # width times height
    damage: dict[int, str]


def inspect_rows(root: Path, rows: Sequence[Row], progress: ProgressCallback | None = None) -> Inspection:
    """Inspect the files of a crawl and compare them with its manifest."""
    inside = root.resolve()

    def check(index: int) -> str:
        row = rows[index]
        if not is_inside(row.path) or not real_path(root / row.path).is_relative_to(inside):
            return "its path leaves the folder"
        return "" if (root / row.path).is_file() else "the file is missing"

    items = [Item(row.path, str(root / row.path)) for row in rows]
    inspection = inspect_items(items, "crawl", progress, check)
    for index, (row, sha256) in enumerate(zip(rows, inspection.hashes, strict=True)):
        if row.sha256 and sha256 and row.sha256 != sha256:
            inspection.damage[index] = "the file differs from the recorded one: its sha256 changed"
    return inspection


def inspect_items(
    items: Sequence[Item],
    title: str,
    progress: ProgressCallback | None = None,
    check: Callable[[int], str] = lambda index: "",
) -> Inspection:
    """Read and decode images on every core; `check` may return a reason to skip one."""
    signatures = np.zeros((len(items), *SHAPE), np.float32)
    hashes, pixels = [""] * len(items), np.zeros(len(items), np.int64)
    damage: dict[int, str] = {}

    def work(indices: range) -> None:
        for index in indices:
            try:
                if problem := check(index):
                    raise UnreadableError(problem)
                content = reader.read(items[index])
                image = decode_whole(content) if isinstance(content, bytes) else content
                hashes[index] = hashlib.sha256(_bytes_of(content)).hexdigest()
                signatures[index], pixels[index] = signature(image), image.shape[0] * image.shape[1]
            except UnreadableError as error:
                damage[index] = one_line(str(error))
            except OSError as error:
                damage[index] = one_line(f"cannot be read: {error.strerror or error}")

    with Reader() as reader, show_progress(title, progress) as report_progress:
        for done in run_in_threads(work, len(items)):
            report_progress(done, len(items))
    return Inspection(signatures, tuple(hashes), pixels, damage)


def _bytes_of(content: bytes | NDArray[np.uint8]) -> bytes:
    return content if isinstance(content, bytes) else content.tobytes()


LEAK, DUPLICATE, NEAR = "leak", "duplicate", "near-duplicate"


@dataclass(frozen=True)
class Finding:
    """A problem of one image; `other` is the image that it is a copy of."""

    kind: str  # damaged, leak, duplicate or near-duplicate
    detail: str
    other: str = ""
    similarity: float | None = None


def find_damage(inspection: Inspection) -> dict[int, Finding]:
    """Return the images that cannot be used."""
    return {index: Finding(DAMAGED, reason) for index, reason in sorted(inspection.damage.items())}


def find_leaks(
    crawl: Inspection, others: Inspection, items: Sequence[Item], min_similarity: float
) -> dict[int, Finding]:
    """Return the images of the crawl that equal or look like one of the others."""
    if not items or not crawl.hashes:
        return {}
    by_hash = {sha256: index for index, sha256 in reversed(list(enumerate(others.hashes))) if sha256}
    leaks = {}
    for index, match in enumerate(find_nearest(crawl.signatures, others.signatures)):
        if crawl.hashes[index] in by_hash:
            match = Match(by_hash[crawl.hashes[index]], 1.0, mirrored=False)
        if match.similarity >= min_similarity and index not in crawl.damage:
            leaks[index] = _describe_match(LEAK, items[match.index].path, match, crawl, others, index)
    return leaks


def find_copies(
    rows: Sequence[Row], crawl: Inspection, among: Sequence[int], min_similarity: float
) -> dict[int, Finding]:
    """Return all copies except the one to keep: the one with the most pixels, and of these the first of `among`."""
    order = sorted(among, key=lambda index: -int(crawl.pixels[index]))
    first: dict[str, int] = {}
    for index in order:
        first.setdefault(crawl.hashes[index], index)
    matches = {
        index: Match(first[crawl.hashes[index]], 1.0, mirrored=False)
        for index in order
        if first[crawl.hashes[index]] != index
    }
    matches |= match_copies(crawl.signatures, [index for index in order if index not in matches], min_similarity)
    for index, match in matches.items():  # an exact copy of a near-duplicate is a copy of its original
        if match.index in matches:
            matches[index] = replace(match, index=matches[match.index].index)
    return {
        index: _describe_match(NEAR, rows[match.index].path, match, crawl, crawl, index)
        for index, match in matches.items()
    }


def _describe_match(
    kind: str, other: str, match: Match, crawl: Inspection, others: Inspection, index: int
) -> Finding:
    if crawl.hashes[index] == others.hashes[match.index]:
        return Finding(DUPLICATE if kind == NEAR else kind, f"same content as {other}", other, 1.0)
    mirrored = ", mirrored" if match.mirrored else ""
    similarity = round(min(match.similarity, 1.0), 4)
    return Finding(kind, f"looks like {other} (similarity {similarity:.3f}{mirrored})", other, similarity)


def find_other_labels(
    rows: Sequence[Row], copied: Mapping[int, Finding], refused: Sequence[Row]
) -> dict[int, list[str]]:
    """Return other web-labels of kept images: those of their copies and of duplicates refused when recorded."""
    by_path = {row.path: index for index, row in enumerate(rows)}
    pairs = [(rows[index].label, copy.other) for index, copy in copied.items()]
    pairs += [(row.label, row.detail) for row in refused if row.reason == DUPLICATE]
    other_labels: dict[int, set[str]] = {}
    for label, other in pairs:
        index = by_path.get(other)
        if index is not None and label != rows[index].label:
            other_labels.setdefault(index, set()).add(label)
    return {index: sorted(labels) for index, labels in sorted(other_labels.items())}
