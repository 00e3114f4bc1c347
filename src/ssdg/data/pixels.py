"""Pixels in a file, of which only what was asked for is in memory."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError


class FilePixels:
    """A read-only (n, H, W, 3) uint8 file, indexed like an array; it takes no memory of this process.

    Images are read, not mapped: one call each, straight into the batch. Of a file of 1.1 GB a mapping takes four
    times as long in random order, for its pages must be entered into the process's tables one by one, and given back
    lest they count as its memory. The system keeps what was read in its own cache as long as it has room.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int, int]) -> None:
        self.shape = shape
        self._path = path
        self._file = path.open("rb", buffering=0)
        self._lock = Lock()
        if hasattr(os, "posix_fadvise"):
            # shuffled reading: what lies around an image is not wanted
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Copy these images out."""
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        size, view = int(np.prod(self.shape[1:])), images.reshape(-1).data
        for place, row in enumerate(rows.tolist()):
            self._read(view[place * size : (place + 1) * size], row * size)
        return images

    def _read(self, into: memoryview, offset: int) -> None:
        while into:  # once, but for a file system that hands out less
            count = self._read_some(into, offset)
            if not count:
                raise UserError(f"the image cache '{self._path}' was cut short; delete it and run the command again")
            into, offset = into[count:], offset + count

    def _read_some(self, into: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [into], offset)
        with self._lock:  # two calls, that no other thread may come between
            self._file.seek(offset)
            return self._file.readinto(into)
