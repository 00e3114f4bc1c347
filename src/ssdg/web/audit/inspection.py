"""Inspect every image of an audit once: damage, leaks, and near-duplicates.

A near-duplicate may be scaled, compressed, brightened, mirrored or cropped a little. A signature holds the 255 lowest
frequencies of the gray image (cosine transform without its mean) as a unit vector, so that the similarity of two
images is a matrix product. Square roots keep a few strong edges from deciding, as the bits of a perceptual hash do.
Mirroring an image flips the sign of every odd horizontal frequency. An image has three signatures, of itself and of
two windows inside it: a crop looks like one of the windows of the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...data.parallel import Progress, in_threads, shown
from ...data.sources.decode import UnreadableError, decode_whole
from ...data.sources.manifest import Row, is_inside
from ...data.sources.tree import Item, Reader
from ..store import DAMAGED
from ..untrusted import one_line

Signatures = NDArray[np.float32]  # (n, *SHAPE); vectors of length 1, or 0 for images of one colour
_Matrix = NDArray[np.float32]
_SIDE = 16  # frequencies in each direction
_LENGTH = _SIDE * _SIDE - 1
_TRIMS = (0.0, 0.02, 0.04)  # cut from every side; a signature bears about one more percent
SHAPE = (len(_TRIMS), _LENGTH)
_PAIRS = ((0, 0), (0, 1), (0, 2), (1, 0), (2, 0))  # windows that are compared: one of the two is the whole image
_FAINT = 0.25  # grey levels: an image without any stronger frequency has nothing to be told by
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_CHUNK = 512

_row, _column = np.divmod(np.arange(_SIDE * _SIDE, dtype=np.int64), _SIDE)
_WEIGHT: _Matrix = np.sqrt(_row + _column)[1:].astype(np.float32)  # natural images have less of a higher frequency
_MIRROR: _Matrix = np.where(_column % 2, -1, 1)[1:].astype(np.float32)


@dataclass(frozen=True)
class Match:
    """The image that another looks like; `similarity` is at most 1."""

    index: int
    similarity: float
    mirrored: bool


def signature(pixels: NDArray[np.uint8]) -> Signatures:
    """The signatures SHAPE of one image (H, W, 3), at its own size: there is no resizing to depend on."""
    grey: _Matrix = np.matmul(pixels, _LUMA, dtype=np.float32)
    return np.stack([_window(grey, trim) for trim in _TRIMS])


def _window(grey: _Matrix, trim: float) -> _Matrix:
    top, left = round(grey.shape[0] * trim), round(grey.shape[1] * trim)
    inner = grey[top : grey.shape[0] - top, left : grey.shape[1] - left]
    waves: _Matrix = np.matmul(np.matmul(_waves(inner.shape[0]), inner), _waves(inner.shape[1]).T)
    values = waves.reshape(-1)[1:]
    if np.abs(values).max() < _FAINT:
        return np.zeros(_LENGTH, np.float32)
    values = np.sign(values) * np.sqrt(np.abs(values)) * _WEIGHT
    return (values / np.linalg.norm(values)).astype(np.float32)


@lru_cache(maxsize=64)
def _waves(length: int) -> _Matrix:
    """Cosines (_SIDE, length), scaled so that sums over pixels become means."""
    place = (np.arange(length) + 0.5) / length
    return (np.cos(np.pi * np.outer(np.arange(_SIDE), place)) / length).astype(np.float32)


def nearest(queries: Signatures, others: Signatures) -> list[Match]:
    """For every query the most similar of the others."""
    found = []
    for start in range(0, len(queries), _CHUNK):
        plain, mirrored = _similarities(queries[start : start + _CHUNK], others)
        best = np.maximum(plain, mirrored)
        rows, columns = np.arange(len(best)), best.argmax(1)
        turned = mirrored[rows, columns] > plain[rows, columns]
        found += [
            Match(*told) for told in zip(columns.tolist(), best[rows, columns].tolist(), turned.tolist(), strict=True)
        ]
    return found


def copies(signatures: Signatures, order: Sequence[int], least: float) -> dict[int, Match]:
    """Going through the images in order, those that look like an earlier one that is no copy itself.

    Copies of copies are compared with what is kept only: a chain of small changes does not join unlike images.
    """
    originals: list[int] = []
    found: dict[int, Match] = {}
    for start in range(0, len(order), _CHUNK):
        part = list(order[start : start + _CHUNK])
        before = len(originals)
        candidates = [*originals, *part]
        plain, mirrored = _similarities(signatures[part], signatures[candidates])
        best = np.maximum(plain, mirrored)
        allowed = np.zeros(len(candidates), np.bool_)
        allowed[:before] = True
        for row, image in enumerate(part):
            column = int(np.where(allowed, best[row], -1).argmax()) if allowed.any() else 0
            if allowed[column] and best[row, column] >= least:
                turned = bool(mirrored[row, column] > plain[row, column])
                found[image] = Match(candidates[column], float(best[row, column]), turned)
            else:
                allowed[before + row] = True
                originals.append(image)
    return found


def _similarities(some: Signatures, others: Signatures) -> tuple[_Matrix, _Matrix]:
    """Of every pair, as they are and with one of them mirrored; the best of the windows."""
    plain, mirrored = np.full((2, len(some), len(others)), -1, np.float32)
    for one, other in _PAIRS:
        np.maximum(plain, np.matmul(some[:, one], others[:, other].T), out=plain)
        np.maximum(mirrored, np.matmul(some[:, one] * _MIRROR, others[:, other].T), out=mirrored)
    return plain, mirrored


@dataclass(frozen=True)
class Seen:
    """Images as they were found; `damage` says in words why one cannot be used."""

    signatures: Signatures  # zero where damaged
    hashes: tuple[str, ...]  # sha256 of the file, or of the pixels of a row; '' where damaged
    pixels: NDArray[np.int64]  # width times height
    damage: dict[int, str]


def inspect_rows(root: Path, rows: Sequence[Row], progress: Progress | None = None) -> Seen:
    """The files of a crawl, compared with what its manifest recorded."""
    inside = root.resolve()

    def check(number: int) -> str:
        row = rows[number]
        if not is_inside(row.path) or not (root / row.path).resolve().is_relative_to(inside):
            return "its path leads out of the folder"
        return "" if (root / row.path).is_file() else "the file is missing"

    items = [Item(row.path, str(root / row.path)) for row in rows]
    seen = inspect_items(items, "crawl", progress, check)
    for number, (row, found) in enumerate(zip(rows, seen.hashes, strict=True)):
        if row.sha256 and found and row.sha256 != found:
            seen.damage[number] = "the file is not the one that was recorded: its sha256 is another"
    return seen


def inspect_items(
    items: Sequence[Item],
    title: str,
    progress: Progress | None = None,
    check: Callable[[int], str] = lambda number: "",
) -> Seen:
    """Read and decode all of them, on every core; `check` may say beforehand why one cannot be used."""
    signatures = np.zeros((len(items), *SHAPE), np.float32)
    hashes, pixels = [""] * len(items), np.zeros(len(items), np.int64)
    damage: dict[int, str] = {}

    def work(numbers: range) -> None:
        for number in numbers:
            try:
                if told := check(number):
                    raise UnreadableError(told)
                content = reader.read(items[number])
                image = decode_whole(content) if isinstance(content, bytes) else content
                hashes[number] = hashlib.sha256(_bytes_of(content)).hexdigest()
                signatures[number], pixels[number] = signature(image), image.shape[0] * image.shape[1]
            except UnreadableError as why:
                damage[number] = one_line(str(why))
            except OSError as error:
                damage[number] = one_line(f"cannot be read: {error.strerror or error}")

    with Reader() as reader, shown(title, progress) as tell:
        for done in in_threads(work, len(items)):
            tell(done, len(items))
    return Seen(signatures, tuple(hashes), pixels, damage)


def _bytes_of(content: bytes | NDArray[np.uint8]) -> bytes:
    return content if isinstance(content, bytes) else content.tobytes()


LEAK, DUPLICATE, NEAR = "leak", "duplicate", "near-duplicate"


@dataclass(frozen=True)
class Finding:
    """What is wrong with one image; `other` is the image that it is a copy of."""

    kind: str  # damaged, leak, duplicate or near-duplicate
    detail: str
    other: str = ""
    similarity: float | None = None


def find_damage(seen: Seen) -> dict[int, Finding]:
    """The images that cannot be used."""
    return {number: Finding(DAMAGED, why) for number, why in sorted(seen.damage.items())}


def find_leaks(seen: Seen, others: Seen, items: Sequence[Item], least: float) -> dict[int, Finding]:
    """The images of the crawl that are among the others, by content or by look."""
    if not items or not seen.hashes:
        return {}
    same = {sha256: number for number, sha256 in reversed(list(enumerate(others.hashes))) if sha256}
    found = {}
    for number, match in enumerate(nearest(seen.signatures, others.signatures)):
        if seen.hashes[number] in same:
            match = Match(same[seen.hashes[number]], 1.0, mirrored=False)
        if match.similarity >= least and number not in seen.damage:
            found[number] = _finding(LEAK, items[match.index].path, match, seen, others, number)
    return found


def find_copies(rows: Sequence[Row], seen: Seen, among: Sequence[int], least: float) -> dict[int, Finding]:
    """The images that are copies of one that stays: the one of most pixels, and of these the first of `among`."""
    order = sorted(among, key=lambda number: -int(seen.pixels[number]))
    first: dict[str, int] = {}
    for number in order:
        first.setdefault(seen.hashes[number], number)
    found = {
        number: Match(first[seen.hashes[number]], 1.0, mirrored=False)
        for number in order
        if first[seen.hashes[number]] != number
    }
    found |= copies(seen.signatures, [number for number in order if number not in found], least)
    for number, match in found.items():  # an exact copy of a near copy is a copy of what stays
        if match.index in found:
            found[number] = replace(match, index=found[match.index].index)
    return {
        number: _finding(NEAR, rows[match.index].path, match, seen, seen, number) for number, match in found.items()
    }


def _finding(kind: str, other: str, match: Match, seen: Seen, others: Seen, number: int) -> Finding:
    if seen.hashes[number] == others.hashes[match.index]:
        return Finding(DUPLICATE if kind == NEAR else kind, f"same content as {other}", other, 1.0)
    turned = ", mirrored" if match.mirrored else ""
    similarity = round(min(match.similarity, 1.0), 4)
    return Finding(kind, f"looks like {other} (similarity {similarity:.3f}{turned})", other, similarity)


def other_labels(rows: Sequence[Row], copied: Mapping[int, Finding], refused: Sequence[Row]) -> dict[int, list[str]]:
    """For images that stay: other web-labels that the same image was found by, here or when it was recorded."""
    by_path = {row.path: number for number, row in enumerate(rows)}
    pairs = [(rows[number].label, copy.other) for number, copy in copied.items()]
    pairs += [(row.label, row.detail) for row in refused if row.reason == DUPLICATE]
    found: dict[int, set[str]] = {}
    for label, other in pairs:
        number = by_path.get(other)
        if number is not None and label != rows[number].label:
            found.setdefault(number, set()).add(label)
    return {number: sorted(labels) for number, labels in sorted(found.items())}
