"""Decode every image once into a file of plain uint8 pixels, keyed by content.

Pass 1 hashes every file; a listing keyed by path, size and times stores the hashes, so that later only `stat` is
needed. Pass 2 decodes each distinct content once. Rows are in the order of their hashes. Only the requested pixels
are read into memory.
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
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import atomic_path, locked, remove_leftovers, write_json
from ..profiling import timed
from .parallel import Progress, in_threads, shown
from .sets import ImageTable, Pixels, content_digests
from .sources.decode import DECODE_VERSION, UnreadableError, decode, resize
from .sources.tree import Item, Reader


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


DIGEST_BYTES = 16
Digests = NDArray[np.uint8]
ShownAs = tuple[str, Progress | None]  # the title of the bar, or a callback instead of a bar


@dataclass(frozen=True, eq=False)
class CachedImages:
    """The readable images of a list of items, by content; `item[i]` is the item of image i."""

    images: ImageTable
    item: NDArray[np.intp]
    unreadable: tuple[tuple[str, str], ...]  # (path, reason)


def default_cache() -> Path:
    """Where decoded images are kept: $SSDG_CACHE, or a folder among the user's caches."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SSDG_CACHE") or Path(home) / "ssdg")


def load_images(
    items: Sequence[Item], size: int, cache: Path, *, title: str = "images", progress: Progress | None = None
) -> CachedImages:
    """Open the decoded images of `items`, decoding them first if this was never done for these contents."""
    with timed("decode"), _cache_errors(cache), Reader() as reader:
        reading = (f"{title}: reading", progress and _quiet)
        digests, unread = _digests(items, cache, reader, reading)
        kept = np.flatnonzero([i not in unread for i in range(len(items))]) if unread else np.arange(len(items))
        unique, first, inverse = _unique(digests[kept])
        holders = [items[i] for i in kept[first]]
        pixels, bad = _decoded(holders, unique, size, cache, reader, shown_as=(title, progress))
    broken = np.isin(inverse, list(bad))
    reasons = {items[i].path: reason for i, reason in unread.items()}
    reasons |= {items[i].path: bad[int(row)] for i, row in zip(kept[broken], inverse[broken], strict=True)}
    good = np.flatnonzero(~broken)
    good = good[np.argsort(inverse[good], kind="stable")]
    rows = inverse[good]
    table = ImageTable((pixels,), np.zeros(len(rows), np.int32), rows, unique[rows])
    return CachedImages(table, kept[good], tuple(sorted(reasons.items())))


@contextmanager
def _cache_errors(cache: Path) -> Iterator[None]:
    """Files that cannot be read are told apart below; what reaches here went wrong with the cache itself."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        hint = "free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "make it writable"
        raise UserError(
            f"cannot write the image cache in '{cache}': {what}; {hint} or choose another cache folder"
        ) from error


def _unique(digests: Digests) -> tuple[Digests, NDArray[np.intp], NDArray[np.intp]]:
    """Distinct hashes in order, the first item of each, and each item's place among them."""
    words = np.ascontiguousarray(digests).view(np.dtype((np.void, DIGEST_BYTES))).reshape(-1)
    unique, first, inverse = np.unique(words, return_index=True, return_inverse=True)
    return unique.view(np.uint8).reshape(-1, DIGEST_BYTES), first, inverse.reshape(-1)


def _quiet(done: int, total: int) -> None:
    """A caller's own progress counts decoded images only."""


def _digests(items: Sequence[Item], cache: Path, reader: Reader, shown_as: ShownAs) -> tuple[Digests, dict[int, str]]:
    listing = _listing_path(items, cache)
    if listing.exists():
        return np.load(listing, allow_pickle=False), {}
    with locked(listing.with_suffix(".lock")):
        if listing.exists():  # another process was faster
            return np.load(listing, allow_pickle=False), {}
        remove_leftovers(listing)
        with shown(*shown_as) as progress:
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


def _hash_all(items: Sequence[Item], reader: Reader, progress: Progress) -> tuple[Digests, dict[int, str]]:
    digests = np.zeros((len(items), DIGEST_BYTES), np.uint8)
    unread: dict[int, str] = {}

    def work(rows: range) -> None:
        for row in rows:
            try:
                digests[row] = np.frombuffer(digest_content(reader.read(items[row])), np.uint8)
            except OSError as error:
                unread[row] = f"cannot be read: {error.strerror or error}"

    for done in in_threads(work, len(items)):
        progress(done, len(items))
    return digests, unread


def digest_content(content: bytes | NDArray[np.uint8]) -> bytes:
    """The 16-byte hash of an image file's bytes, or of a row's pixels."""
    if isinstance(content, bytes):
        return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
    return content_digests(content[None]).tobytes()


def _decoded(
    holders: Sequence[Item],
    unique: Digests,
    size: int,
    cache: Path,
    reader: Reader,
    shown_as: ShownAs,
) -> tuple[Pixels, dict[int, str]]:
    """Pixels (n, size, size, 3) of these contents, and the rows that cannot be decoded with their reasons."""
    key = hashlib.sha256(f"{DECODE_VERSION} {size} ".encode() + unique.tobytes()).hexdigest()[:24]
    meta, data = cache / f"{key}.json", cache / f"{key}.u8"
    shape = (len(unique), size, size, 3)
    if not _complete(meta, data, shape):
        with locked(cache / f"{key}.lock"):
            if not _complete(meta, data, shape):
                remove_leftovers(data)
                remove_leftovers(meta)
                _build(holders, unique, size, data, meta, reader, shown_as)
    reasons: dict[str, str] = json.loads(meta.read_text(encoding="utf-8"))["unreadable"]
    pixels = FilePixels(data, shape) if len(unique) else np.zeros(shape, np.uint8)
    return pixels, {int(row): reason for row, reason in reasons.items()}


def _complete(meta: Path, data: Path, shape: tuple[int, ...]) -> bool:
    """The description is written last; a data file of another length was cut off by someone."""
    return meta.exists() and data.exists() and data.stat().st_size == int(np.prod(shape))


def _build(
    holders: Sequence[Item],
    unique: Digests,
    size: int,
    data: Path,
    meta: Path,
    reader: Reader,
    shown_as: ShownAs,
) -> None:
    unreadable: dict[int, str] = {}
    num_bytes = size * size * 3
    with atomic_path(data) as temporary, temporary.open("wb") as file, shown(*shown_as) as progress:
        _reserve(file.fileno(), num_bytes * len(holders))

        def work(rows: range) -> None:
            for row in rows:
                try:
                    pixels = _decode_item(holders[row], unique[row], size, reader)
                except UnreadableError as reason:
                    unreadable[row] = str(reason)
                else:
                    _write_at(file.fileno(), np.ascontiguousarray(pixels), row * num_bytes)

        for done in in_threads(work, len(holders)):
            progress(done, len(holders))
    about: dict[str, Any] = {"images": len(holders), "size": size, "decode_version": DECODE_VERSION}
    write_json(meta, about | {"unreadable": {str(row): unreadable[row] for row in sorted(unreadable)}})


def _decode_item(item: Item, digest: Digests, size: int, reader: Reader) -> NDArray[np.uint8]:
    try:
        content = reader.read(item)
    except OSError as error:
        raise UserError(f"'{item.path}' can no longer be read: {error.strerror or error}") from None
    if digest_content(content) != digest.tobytes():
        raise UserError(f"'{item.path}' changed while it was being read; run the command again")
    return decode(content, size) if isinstance(content, bytes) else resize(content, size)


def _reserve(handle: int, num_bytes: int) -> None:
    """Claim the whole space at once: a full disk shows before the work and not during it."""
    if not num_bytes:
        return
    try:
        os.posix_fallocate(handle, 0, num_bytes)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some file systems cannot reserve
            raise
        os.ftruncate(handle, num_bytes)


def _write_at(handle: int, pixels: NDArray[np.uint8], offset: int) -> None:
    view = pixels.reshape(-1).data
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written
