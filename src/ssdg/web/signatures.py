"""Which images are copies of each other, though scaled, compressed, brightened, mirrored or cropped a little.

A signature holds the 255 lowest frequencies of the grey image (cosine transform without its mean) as a unit vector,
so that the similarity of two images is a product of matrices. Square roots keep a few strong edges from deciding, as
the bits of a perceptual hash do. Mirroring an image turns the sign of every odd horizontal frequency. An image has
three of them, of itself and of two windows inside it: a crop looks like one of the windows of the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

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
