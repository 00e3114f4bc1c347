"""Files of raw uint8 pixels: random reads, positioned writes, checksums."""

from __future__ import annotations

import errno
import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import open_file, pread, pwrite
from .parallel import run_in_threads


class FilePixels:
    """Read-only (n, H, W, 3) uint8 file, indexed like an array; it takes no memory of this process.

    Images are read, not memory-mapped: one call per image, directly into the batch. In random order, mapping a file
    of 1.1 GB takes four times as long: each page must be entered into the process's page table, and released again
    so that it does not count as the process's memory. The system caches what was read while it has free memory.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int, int]) -> None:
        self.shape = shape
        self._path = path
        self._file = open_file(path, buffering=0)
        if hasattr(os, "posix_fadvise"):
            # access is shuffled: read-ahead around an image is useless
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Return a copy of these images."""
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        size, view = int(np.prod(self.shape[1:])), images.reshape(-1).data
        for index, row in enumerate(rows.tolist()):
            self._read(view[index * size : (index + 1) * size], row * size)
        return images

    @property
    def key(self) -> str:
        """Hash of the contents, their order and their size."""
        return self._path.stem

    def _read(self, into: memoryview, offset: int) -> None:
        if not read_at(self._file.fileno(), into, offset):
            raise UserError(f"the image cache '{self._path}' is truncated; delete it and run the command again")


def read_at(handle: int, into: memoryview, offset: int) -> bool:
    """Fill `into` from this offset of a file; return whether the file had that many bytes."""
    while into:  # more than once only if the file system returns fewer bytes
        count = _read_some(handle, into, offset)
        if not count:
            return False
        into, offset = into[count:], offset + count
    return True


def _read_some(handle: int, into: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(handle, [into], offset)
    content = pread(handle, len(into), offset)
    into[: len(content)] = content
    return len(content)


def row_checksums(data: Path, shape: tuple[int, ...]) -> NDArray[np.uint32]:
    """Return the CRC-32 of each image of a data file, read once on all cores in constant memory."""
    num_bytes, sums = int(np.prod(shape[1:])), np.zeros(shape[0], np.uint32)
    with open_file(data, buffering=0) as file:

        def work(rows: range) -> None:
            buffer = np.empty(len(rows) * num_bytes, np.uint8).data
            if read_at(file.fileno(), buffer, rows.start * num_bytes):
                for index, row in enumerate(rows):
                    sums[row] = zlib.crc32(buffer[index * num_bytes : (index + 1) * num_bytes])

        for _ in run_in_threads(work, shape[0]):
            pass
    return sums


def reserve(handle: int, num_bytes: int) -> None:
    """Allocate the whole file up front, so that a full disk fails before decoding and not during it."""
    if not num_bytes:
        return
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, num_bytes)
            return
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    os.ftruncate(handle, num_bytes)  # macOS and some file systems cannot reserve space


def write_at(handle: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of `content` at this offset of a file."""
    view = memoryview(content)
    while view:
        written = pwrite(handle, view, offset)
        view, offset = view[written:], offset + written
