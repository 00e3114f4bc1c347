"""Pixels in a file, of which only a little is in memory at any time."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CHUNK = 16  # images copied before pages are given back


class MappedPixels:
    """A read-only (n, H, W, 3) uint8 file, indexed like an array; its resident memory does not grow with n.

    Pages that were read, and those that the system maps around them, would stay mapped and count as this
    process's memory. They are given back after every copy. The system keeps them in its own cache as long as
    it has room, so that reading them again needs no disk.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int, int]) -> None:
        self.shape = shape
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if hasattr(mmap, "MADV_RANDOM"):
            self._map.madvise(mmap.MADV_RANDOM)  # shuffled reading: what lies around an image is not wanted
        self._pixels = np.frombuffer(self._map, np.uint8).reshape(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Copy these images out."""
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for start in range(0, len(rows), CHUNK):
            images[start : start + CHUNK] = self._pixels[rows[start : start + CHUNK]]
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)
        return images
