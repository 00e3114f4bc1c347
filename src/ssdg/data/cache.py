"""Decode every image once into a file of raw uint8 pixels, keyed by content.

Pass 1 hashes every file; a listing keyed by path, size and times stores the hashes, so that later only `stat` is
needed. Pass 2 decodes each distinct content once. Rows are ordered by hash. Only the requested pixels are read into
memory.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import atomic_path, locked, pread, pwrite, remove_leftovers, write_json
from ..profiling import timed
from .parallel import ProgressCallback, run_in_threads, show_progress
from .sets import ImageTable, Pixels, content_digests
from .sources.decode import DECODE_VERSION, UnreadableError, decode, resize
from .sources.tree import Item, Reader


class FilePixels:
    """Read-only (n, H, W, 3) uint8 file, indexed like an array; it takes no memory of this process.

    Images are read, not memory-mapped: one call per image, directly into the batch. In random order, mapping a file
    of 1.1 GB takes four times as long: each page must be entered into the process's page table, and released again
    so that it does not count as the process's memory. The system caches what was read while it has free memory.
    """

    def __init__(self, path: Path, shape: tuple[int, int, int, int]) -> None:
        self.shape = shape
        self._path = path
        self._file = path.open("rb", buffering=0)
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


DIGEST_BYTES = 16
Digests = NDArray[np.uint8]
ProgressArgs = tuple[str, ProgressCallback | None]  # arguments of `show_progress`: title, callback


@dataclass(frozen=True, eq=False)
class CachedImages:
    """Readable images of a list of items, ordered by content; `item[i]` is the item of image i."""

    images: ImageTable
    item: NDArray[np.intp]
    unreadable: tuple[tuple[str, str], ...]  # (path, reason)


def default_cache() -> Path:
    """Return the folder of decoded images: $SSDG_CACHE, or `ssdg` in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SSDG_CACHE") or Path(home) / "ssdg")


def load_images(
    items: Sequence[Item], size: int, cache: Path, *, title: str = "images", progress: ProgressCallback | None = None
) -> CachedImages:
    """Open the decoded images of `items`; decode contents that are not in the cache yet."""
    with timed("decode"), _cache_errors(cache), Reader() as reader:
        digests, unread = _digests(items, cache, reader, (f"{title}: reading", progress and _ignore_progress))
        readable = np.flatnonzero([i not in unread for i in range(len(items))]) if unread else np.arange(len(items))
        unique, first, inverse = _unique(digests[readable])
        representatives = [items[i] for i in readable[first]]
        pixels, bad = _open_pixels(representatives, unique, size, cache, reader, (title, progress))
    is_bad = np.isin(inverse, list(bad))
    reasons = {items[i].path: reason for i, reason in unread.items()}
    reasons |= {items[i].path: bad[int(row)] for i, row in zip(readable[is_bad], inverse[is_bad], strict=True)}
    good = np.flatnonzero(~is_bad)
    good = good[np.argsort(inverse[good], kind="stable")]
    rows = inverse[good]
    table = ImageTable((pixels,), np.zeros(len(rows), np.int32), rows, unique[rows])
    return CachedImages(table, readable[good], tuple(sorted(reasons.items())))


@contextmanager
def _cache_errors(cache: Path) -> Iterator[None]:
    """Report errors of the cache itself; errors of single image files are handled before they get here."""
    try:
        yield
    except OSError as error:
        problem = error.strerror or str(error)
        hint = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
        raise UserError(
            f"cannot write the image cache in '{cache}': {problem}; {hint} or choose another cache folder"
        ) from error


def _unique(digests: Digests) -> tuple[Digests, NDArray[np.intp], NDArray[np.intp]]:
    """Return the sorted distinct hashes, the first item of each, and the index of each item's hash among them."""
    hashes = np.ascontiguousarray(digests).view(np.dtype((np.void, DIGEST_BYTES))).reshape(-1)
    unique, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    return unique.view(np.uint8).reshape(-1, DIGEST_BYTES), first, inverse.reshape(-1)


def _ignore_progress(done: int, total: int) -> None:
    """Ignore the hashing pass: a caller's callback counts decoded images only."""


def _digests(
    items: Sequence[Item], cache: Path, reader: Reader, progress_args: ProgressArgs
) -> tuple[Digests, dict[int, str]]:
    listing = _listing_path(items, cache)
    if listing.exists():
        return np.load(listing, allow_pickle=False), {}
    with locked(listing.with_suffix(".lock")):
        if listing.exists():  # another process was faster
            return np.load(listing, allow_pickle=False), {}
        remove_leftovers(listing)
        with show_progress(*progress_args) as progress:
            digests, unread = _hash_all(items, reader, progress)
        if not unread:
            with atomic_path(listing) as temporary, temporary.open("wb") as file:
                np.save(file, digests)
    return digests, unread


def _listing_path(items: Sequence[Item], cache: Path) -> Path:
    sha = hashlib.sha256()
    for item in items:
        line = f"{item.file}\x1f{item.entry}\x1f{item.row}\x1f{item.stamp}\n"
        sha.update(line.encode("utf-8", "surrogateescape"))
    return cache / f"listing-{sha.hexdigest()[:24]}.npy"


def _hash_all(items: Sequence[Item], reader: Reader, progress: ProgressCallback) -> tuple[Digests, dict[int, str]]:
    digests = np.zeros((len(items), DIGEST_BYTES), np.uint8)
    unread: dict[int, str] = {}

    def work(rows: range) -> None:
        for row in rows:
            try:
                digests[row] = np.frombuffer(digest_content(reader.read(items[row])), np.uint8)
            except OSError as error:
                unread[row] = f"cannot be read: {error.strerror or error}"

    for done in run_in_threads(work, len(items)):
        progress(done, len(items))
    return digests, unread


def digest_content(content: bytes | NDArray[np.uint8]) -> bytes:
    """Return the 16-byte hash of an image file's bytes, or of a row's pixels."""
    if isinstance(content, bytes):
        return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
    return content_digests(content[None]).tobytes()


def _open_pixels(
    items: Sequence[Item],
    unique: Digests,
    size: int,
    cache: Path,
    reader: Reader,
    progress_args: ProgressArgs,
) -> tuple[Pixels, dict[int, str]]:
    """Return pixels (n, size, size, 3) of these contents, and the reasons for rows that cannot be decoded."""
    key = hashlib.sha256(f"{DECODE_VERSION} {size} ".encode() + unique.tobytes()).hexdigest()[:24]
    meta, data = cache / f"{key}.json", cache / f"{key}.u8"
    shape = (len(unique), size, size, 3)
    if not _is_complete(meta, data, shape):
        with locked(cache / f"{key}.lock"):
            if not _is_complete(meta, data, shape):
                remove_leftovers(data)
                remove_leftovers(meta)
                _build(items, unique, size, data, meta, reader, progress_args)
    reasons: dict[str, str] = json.loads(meta.read_text(encoding="utf-8"))["unreadable"]
    pixels = FilePixels(data, shape) if len(unique) else np.zeros(shape, np.uint8)
    return pixels, {int(row): reason for row, reason in reasons.items()}


def _is_complete(meta: Path, data: Path, shape: tuple[int, ...]) -> bool:
    """Return whether both files exist (`meta` is written last) and the data file was not truncated later."""
    return meta.exists() and data.exists() and data.stat().st_size == int(np.prod(shape))


def _build(
    items: Sequence[Item],
    unique: Digests,
    size: int,
    data: Path,
    meta: Path,
    reader: Reader,
    progress_args: ProgressArgs,
) -> None:
    unreadable: dict[int, str] = {}
    num_bytes = size * size * 3
    with atomic_path(data) as temporary, temporary.open("wb") as file, show_progress(*progress_args) as progress:
        _reserve(file.fileno(), num_bytes * len(items))

        def work(rows: range) -> None:
            for row in rows:
                try:
                    pixels = _decode_item(items[row], unique[row], size, reader)
                except UnreadableError as reason:
                    unreadable[row] = str(reason)
                else:
                    write_at(file.fileno(), np.ascontiguousarray(pixels).reshape(-1).data, row * num_bytes)

        for done in run_in_threads(work, len(items)):
            progress(done, len(items))
    record: dict[str, Any] = {"images": len(items), "size": size, "decode_version": DECODE_VERSION}
    write_json(meta, record | {"unreadable": {str(row): unreadable[row] for row in sorted(unreadable)}})


def _decode_item(item: Item, digest: Digests, size: int, reader: Reader) -> NDArray[np.uint8]:
    try:
        content = reader.read(item)
    except OSError as error:
        raise UserError(f"'{item.path}' can no longer be read: {error.strerror or error}") from None
    if digest_content(content) != digest.tobytes():
        raise UserError(f"'{item.path}' changed while it was read; run the command again")
    return decode(content, size) if isinstance(content, bytes) else resize(content, size)


def _reserve(handle: int, num_bytes: int) -> None:
    """Allocate the whole file up front, so that a full disk fails before decoding and not during it."""
    if not num_bytes:
        return
    if not hasattr(os, "posix_fallocate"):  # macOS, Windows
        os.ftruncate(handle, num_bytes)
        return
    try:
        os.posix_fallocate(handle, 0, num_bytes)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some file systems do not support it
            raise
        os.ftruncate(handle, num_bytes)


def write_at(handle: int, content: bytes | memoryview, offset: int) -> None:
    """Write all of `content` at this offset of a file."""
    view = memoryview(content)
    while view:
        written = pwrite(handle, view, offset)
        view, offset = view[written:], offset + written
