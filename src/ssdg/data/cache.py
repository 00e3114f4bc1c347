"""Decode every image once into a file of raw uint8 pixels, keyed by content.

Pass 1 hashes every file; a listing keyed by path, size and times stores the hashes, so that later only `stat` is
needed. Pass 2 decodes each distinct content once. Rows are ordered by hash. Only the requested pixels are read into
memory. Whatever is truncated or altered is built again: a listing ends with a hash of itself, and the pixels have a
checksum, which is verified whenever they are opened.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ZIP_ERRORS, Note, UserError
from ..files import (
    atomic_path,
    locked,
    open_file,
    read_bytes,
    remove_leftovers,
    remove_remains,
    user_folder,
    write_json,
)
from ..profiling import timed
from .parallel import ProgressCallback, run_in_threads, show_progress
from .pixel_files import FilePixels, reserve, row_checksums, write_at
from .sets import ImageTable, Pixels, content_digests
from .sources.decode import DECODE_VERSION, ResizeMode, UnreadableError, resize_content
from .sources.tree import Item, Reader

DIGEST_BYTES = 16
CHECKSUM = "crc32"  # in KEY.json: the checksum of the pixels
Digests = NDArray[np.uint8]
ProgressArgs = tuple[str, ProgressCallback | None]  # arguments of `show_progress`: title, callback


@dataclass(frozen=True)
class Shape:
    """The size of decoded images, and how they are resized to it."""

    size: int
    resize: ResizeMode

    @property
    def key(self) -> str:
        """The part of a cache key; `squash` is not named, because caches of earlier versions have no other mode."""
        return str(self.size) if self.resize == "squash" else f"{self.size} {self.resize}"


@dataclass(frozen=True, eq=False)
class CachedImages:
    """Readable images of a list of items, ordered by content; `item[i]` is the item of image i."""

    images: ImageTable
    item: NDArray[np.intp]
    unreadable: tuple[tuple[str, str], ...]  # (path, reason)


def default_cache() -> Path:
    """Return the folder of decoded images: $SSDG_CACHE, or `ssdg` in the user's cache folder."""
    chosen = os.environ.get("SSDG_CACHE")
    return Path(chosen) if chosen else user_folder("cache")


def load_images(
    items: Sequence[Item],
    size: int,
    cache: Path,
    *,
    resize: ResizeMode = "squash",
    title: str = "images",
    progress: ProgressCallback | None = None,
) -> CachedImages:
    """Open the decoded images of `items`; decode contents that are not in the cache yet."""
    with timed("decode"), _cache_errors(cache), Reader() as reader:
        digests, unread = _digests(items, cache, reader, (f"{title}: reading", progress and _ignore_progress))
        readable = np.flatnonzero([i not in unread for i in range(len(items))]) if unread else np.arange(len(items))
        unique, first, inverse = _unique(digests[readable])
        representatives = [items[i] for i in readable[first]]
        pixels, bad = _open_pixels(representatives, unique, Shape(size, resize), cache, reader, (title, progress))
    is_bad = np.isin(inverse, list(bad))
    reasons = {items[i].path: reason for i, reason in unread.items()}
    reasons |= {items[i].path: bad[int(row)] for i, row in zip(readable[is_bad], inverse[is_bad], strict=True)}
    good = np.flatnonzero(~is_bad)
    good = good[np.argsort(inverse[good], kind="stable")]
    rows = inverse[good]
    table = ImageTable((pixels,), np.zeros(len(rows), np.int32), rows, unique[rows], resize)
    return CachedImages(table, readable[good], tuple(sorted(reasons.items())))


@contextmanager
def _cache_errors(cache: Path) -> Iterator[None]:
    """Report errors of the cache itself; errors of single image files are handled before they get here."""
    try:
        yield
    except UserError:
        raise
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
    lock = listing.with_suffix(".lock")
    if (stored := _read_listing(listing, len(items))) is not None:
        remove_remains(lock, listing)
        return stored, {}
    with locked(lock):
        if (stored := _read_listing(listing, len(items))) is not None:  # another process was faster
            return stored, {}
        _note_damage(listing)
        remove_leftovers(listing)
        with show_progress(*progress_args) as progress:
            digests, unread = _hash_all(items, reader, progress)
        if not unread:
            with atomic_path(listing) as temporary, temporary.open("wb") as file:
                np.save(file, np.concatenate([digests, _listing_sum(digests)]))
    return digests, unread


def _read_listing(path: Path, count: int) -> Digests | None:
    """Return the hashes in a listing; None if there is none, or if it is damaged."""
    if not path.exists():
        return None
    try:
        with open_file(path) as file:
            rows: Digests = np.load(file, allow_pickle=False)
    except ZIP_ERRORS as error:
        if isinstance(error, UserError):
            raise
        return None
    is_intact = rows.dtype == np.uint8 and rows.shape == (count + 1, DIGEST_BYTES)
    return rows[:-1] if is_intact and np.array_equal(rows[-1:], _listing_sum(rows[:-1])) else None


def _listing_sum(digests: Digests) -> Digests:
    """Return the hash of all hashes as the last row of a listing."""
    return np.frombuffer(digest_content(digests.tobytes()), np.uint8)[None]


def _note_damage(path: Path) -> None:
    if path.exists():
        warnings.warn(f"the image cache '{path}' is damaged and is built again", Note, stacklevel=2)


def _listing_path(items: Sequence[Item], cache: Path) -> Path:
    sha = hashlib.sha256(b"with a hash of itself\n")  # earlier listings have none
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
    shape: Shape,
    cache: Path,
    reader: Reader,
    progress_args: ProgressArgs,
) -> tuple[Pixels, dict[int, str]]:
    """Return pixels (n, size, size, 3) of these contents, and the reasons for rows that cannot be decoded."""
    key = hashlib.sha256(f"{DECODE_VERSION} {shape.key} ".encode() + unique.tobytes()).hexdigest()[:24]
    meta, data, lock = cache / f"{key}.json", cache / f"{key}.u8", cache / f"{key}.lock"
    dimensions = (len(unique), shape.size, shape.size, 3)
    unreadable = _verify(meta, data, dimensions)
    if unreadable is None:
        with locked(lock):
            unreadable = _verify(meta, data, dimensions)  # another process may have been faster
            if unreadable is None:
                _note_damage(meta)
                remove_leftovers(data)
                remove_leftovers(meta)
                unreadable = _build(items, unique, shape, data, meta, reader, progress_args)
    else:
        remove_remains(lock, data, meta)
    pixels = FilePixels(data, dimensions) if len(unique) else np.zeros(dimensions, np.uint8)
    return pixels, unreadable


def _verify(meta: Path, data: Path, shape: tuple[int, ...]) -> dict[int, str] | None:
    """Return the reasons for unreadable rows; None if files are missing (`meta` is written last) or damaged."""
    if not (meta.exists() and data.exists() and data.stat().st_size == int(np.prod(shape))):
        return None
    content = read_bytes(meta)
    try:
        record = json.loads(content)
        unreadable = {int(row): str(reason) for row, reason in record["unreadable"].items()}
        stored = record.get(CHECKSUM)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    actual = _checksum(row_checksums(data, shape), unreadable)
    if stored is None:  # written by an earlier version
        with suppress(OSError):  # the cache may be read-only
            write_json(meta, record | {CHECKSUM: actual})
        return unreadable
    return unreadable if stored == actual else None


def _checksum(row_sums: NDArray[np.uint32], unreadable: dict[int, str]) -> int:
    """Return the CRC-32 of the checksums of all rows, then of the reasons for those that cannot be decoded."""
    return zlib.crc32(json.dumps(unreadable, sort_keys=True).encode(), zlib.crc32(row_sums.astype("<u4").tobytes()))


def _build(
    items: Sequence[Item],
    unique: Digests,
    shape: Shape,
    data: Path,
    meta: Path,
    reader: Reader,
    progress_args: ProgressArgs,
) -> dict[int, str]:
    unreadable: dict[int, str] = {}
    num_bytes = shape.size * shape.size * 3
    sums = np.full(len(items), zlib.crc32(bytes(num_bytes)), np.uint32)  # an image that cannot be decoded stays zero
    with atomic_path(data) as temporary, temporary.open("wb") as file, show_progress(*progress_args) as progress:
        reserve(file.fileno(), num_bytes * len(items))

        def work(rows: range) -> None:
            for row in rows:
                try:
                    pixels = _decode_item(items[row], unique[row], shape, reader)
                except UnreadableError as reason:
                    unreadable[row] = str(reason)
                else:
                    view = np.ascontiguousarray(pixels).reshape(-1).data
                    sums[row] = zlib.crc32(view)
                    write_at(file.fileno(), view, row * num_bytes)

        for done in run_in_threads(work, len(items)):
            progress(done, len(items))
    record: dict[str, Any] = {"images": len(items), "size": shape.size, "decode_version": DECODE_VERSION}
    reasons = {str(row): unreadable[row] for row in sorted(unreadable)}
    write_json(meta, record | {CHECKSUM: _checksum(sums, unreadable), "unreadable": reasons})
    return unreadable


def _decode_item(item: Item, digest: Digests, shape: Shape, reader: Reader) -> NDArray[np.uint8]:
    try:
        content = reader.read(item)
    except OSError as error:
        raise UserError(f"'{item.path}' can no longer be read: {error.strerror or error}") from None
    if digest_content(content) != digest.tobytes():
        raise UserError(f"'{item.path}' changed while it was read; run the command again")
    return resize_content(content, shape.size, shape.resize)
