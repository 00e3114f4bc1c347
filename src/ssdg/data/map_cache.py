"""Maps of a frozen trunk in files that fill as images are first needed: half precision, one checksum per image.

A file belongs to one set of decoded images, one trunk and one view. It holds a row per image, in the order of the
pixels. A row is complete once its checksum is written, so a killed process loses at most the rows it was writing.
"""

from __future__ import annotations

import errno
import os
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import Note, UserError
from ..files import locked, remove_free_lock
from .pixel_files import read_at, write_at
from .sets import ImageTable, Pixels, Rows

Maps = NDArray[np.float16]  # (n, h, w, C)
Compute = Callable[[Rows], Maps]  # maps of these rows of the pixels
AfterChunk = Callable[[int], None]  # called with the number of rows just stored; may raise to stop


class MapFile:
    """Maps (count, h, w, C) of a set of images, computed when first needed and stored."""

    def __init__(self, path: Path, count: int, shape: tuple[int, int, int], compute: Compute) -> None:
        self.path, self.shape, self.compute = path, (count, *shape), compute
        self.row_bytes = int(np.prod(shape)) * np.dtype(np.float16).itemsize
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._data = _open_sized(path, count * self.row_bytes)
            self._sums = _open_sized(path.with_suffix(".crc"), count * 4)
        self._known = np.zeros(count, np.uint32)  # checksums read so far; 0: none

    def missing(self, rows: Rows) -> Rows:
        """Return those of `rows` that are not stored, without repetition."""
        return np.unique(rows[self._checksums(rows) == 0])

    def fill(self, rows: Rows, batch: int, after_chunk: AfterChunk) -> None:
        """Compute and store the missing ones of `rows`; another process that fills the same file waits."""
        lock = self.path.with_suffix(".lock")
        if not len(self.missing(rows)):
            remove_free_lock(lock)
            return
        with locked(lock):
            missing = self.missing(rows)
            self._require_space(len(missing))
            for start in range(0, len(missing), batch):
                chunk = missing[start : start + batch]
                self._store(chunk, self.compute(chunk))
                after_chunk(len(chunk))

    def __getitem__(self, rows: Rows) -> Maps:
        """Return a copy of these maps; rows that are missing or damaged are computed again."""
        maps = np.empty((len(rows), *self.shape[1:]), np.float16)
        view, sums = maps.reshape(-1).view(np.uint8).data, self._checksums(rows)
        is_bad = np.zeros(len(rows), np.bool_)
        for index, row in enumerate(rows.tolist()):
            part = view[index * self.row_bytes : (index + 1) * self.row_bytes]
            is_bad[index] = not read_at(self._data, part, row * self.row_bytes) or checksum(part) != sums[index]
        if is_bad.any():
            bad = np.unique(rows[is_bad])  # a batch may hold an image twice
            self._repair(bad, num_damaged=int((self._checksums(bad) != 0).sum()))
            return self[rows]
        return maps

    def _repair(self, rows: Rows, num_damaged: int) -> None:
        if num_damaged:
            message = f"{num_damaged:,} stored maps in {self.path} are damaged; they are computed again"
            warnings.warn(message, Note, stacklevel=2)
        self._store(rows, self.compute(rows))

    def _store(self, rows: Rows, maps: Maps) -> None:
        maps = np.ascontiguousarray(maps)
        sums = np.array([checksum(image.reshape(-1).view(np.uint8).data) for image in maps], np.uint32)
        with _disk_errors(self.path):
            for row, image, number in zip(rows.tolist(), maps, sums, strict=True):
                write_at(self._data, image.reshape(-1).view(np.uint8).data, row * self.row_bytes)
                write_at(self._sums, number.tobytes(), row * 4)
        self._known[rows] = sums

    def _checksums(self, rows: Rows) -> NDArray[np.uint32]:
        """Return the stored checksums of these rows; 0 where there is none."""
        if len(rows) and (self._known[rows] == 0).any():  # another process may have stored more
            buffer = np.zeros(len(self._known), np.uint32)
            read_at(self._sums, buffer.view(np.uint8).data, 0)
            self._known = buffer
        return self._known[rows]

    def _require_space(self, num_rows: int) -> None:
        needed, free = num_rows * self.row_bytes, shutil.disk_usage(self.path.parent).free
        if needed > free:
            raise UserError(
                f"the maps of {num_rows:,} images need {needed / 1e9:.2f} GB in '{self.path.parent}' and "
                f"{free / 1e9:.2f} GB are free; free some space, choose another --cache, or freeze a later stage"
            )

    def __del__(self) -> None:
        for handle in (getattr(self, "_data", None), getattr(self, "_sums", None)):
            if handle is not None:
                os.close(handle)


def checksum(content: memoryview) -> int:
    """Return the CRC-32 of a row; never 0, which marks a missing row."""
    return zlib.crc32(content) or 1


def _open_sized(path: Path, num_bytes: int) -> int:
    """Open a file for reading and writing; extend it with zeros to its full size, which takes no space on disk."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    if os.fstat(handle).st_size < num_bytes:
        os.ftruncate(handle, num_bytes)
    return handle


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Report errors of the file system in one sentence."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "free some space" if is_full else "make it writable"
        raise UserError(
            f"cannot store maps of the frozen trunk in '{path.parent}': {error.strerror or error}; "
            f"{hint} or choose another --cache (maps that are stored stay valid)"
        ) from error


@dataclass(frozen=True, eq=False)
class StoredViews:
    """Maps of the plain image (view 0) and of `num_views` randomized ones, by set of pixels."""

    open_file: Callable[[Pixels, int], MapFile]  # of a set of images and a view
    num_views: int = 0
    trunk: str = ""  # identifies the trunk, its boundary and its precision

    def read(self, table: ImageTable, rows: Rows, views: NDArray[np.intp]) -> Maps:
        """Return the maps of these rows of a table; `views` has one view per row."""
        source, row = table.source[rows], table.row[rows]
        pairs = sorted({*zip(source.tolist(), views.tolist(), strict=True)}) or [(0, 0)]
        parts = []
        for index, view in pairs:
            mask = (source == index) & (views == view)
            parts.append((mask, self.open_file(table.arrays[index], view)[row[mask]]))
        if len(parts) == 1:
            return parts[0][1]
        out = np.empty((len(rows), *parts[0][1].shape[1:]), np.float16)
        for mask, maps in parts:
            out[mask] = maps
        return out

    def files_of(self, tables: Sequence[ImageTable], num_views: int) -> list[tuple[MapFile, Rows]]:
        """Return the files of these images with the rows they need."""
        return [
            (self.open_file(array, view), table.row[table.source == index])
            for table in tables
            for index, array in enumerate(table.arrays)
            for view in range(num_views + 1)
        ]
