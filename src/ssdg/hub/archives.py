"""Unpack archives into a folder and never outside it: .zip, .tar, .tar.gz, and archives inside them.

Only images, .npz files and text files are written, with default permissions. A name that leads outside, a link or a
device makes the whole archive suspect: it is rejected.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from ..data.sources.tree import is_data_file, is_junk
from ..data.sources.zip_entries import is_zip, open_zip
from ..files import open_file
from .transfer import FetchError

_DRIVE = re.compile(r"[A-Za-z]:")
_MAX_DEPTH, _MAX_NAME_BYTES = 32, 255
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """Limits on the contents of an archive."""

    members: int = 1_000_000
    total_bytes: int = 100 * 10**9
    ratio: int = 100  # unpacked bytes per archive byte; images hardly compress
    free_bytes: int = 10**9  # always allowed, whatever the ratio


def safe_path(name: str) -> PurePosixPath | None:
    """Return the relative path of a member, None for the root; raise `FetchError` if it could lead outside."""
    if name.startswith(("/", "\\")) or _DRIVE.match(name) or "\0" in name:
        raise FetchError(f"the archive is rejected: '{name}' is not a relative path")
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts:
        raise FetchError(f"the archive is rejected: '{name}' leads outside")
    if len(parts) > _MAX_DEPTH or any(len(part.encode("utf-8", "replace")) > _MAX_NAME_BYTES for part in parts):
        raise FetchError(f"the archive is rejected: '{name}' is too long or too deep")
    if not all(part.isprintable() for part in parts):
        raise FetchError(f"the archive is rejected: {name!r} has unprintable characters")
    return PurePosixPath(*parts) if parts else None


@dataclass
class UnpackState:
    """What was unpacked from one download: members, bytes and names; nested archives share it."""

    bounds: Bounds
    archive_bytes: int
    num_members: int = 0
    num_bytes: int = 0
    _spellings: dict[str, str] = field(default_factory=dict)  # case-folded path -> path, of files and folders
    _files: set[str] = field(default_factory=set)

    def count_member(self) -> None:
        """Count one more member."""
        self.num_members += 1
        if self.num_members > self.bounds.members:
            raise FetchError(f"the archive is rejected: more than {self.bounds.members:,} members")

    def add_file(self, path: PurePosixPath) -> None:
        """Record the path of a file; raise `FetchError` if it is in use, also by another spelling."""
        for name in (*(str(parent) for parent in path.parents if parent.name), str(path)):
            folded = unicodedata.normalize("NFC", name).casefold()
            if self._spellings.setdefault(folded, name) != name:
                raise FetchError(
                    f"the archive is rejected: '{name}' and '{self._spellings[folded]}' differ only in case"
                )
            if name in self._files:
                raise FetchError(f"the archive is rejected: '{name}' appears twice")
        self._files.add(str(path))

    def spend(self, num_bytes: int) -> None:
        """Count unpacked bytes."""
        self.require_room(num_bytes)
        self.num_bytes += num_bytes

    def require_room(self, num_bytes: int) -> None:
        """Raise `FetchError` if this many more bytes exceed the limit."""
        ratio_bound = max(self.bounds.ratio * self.archive_bytes, self.bounds.free_bytes)
        if (total := self.num_bytes + num_bytes) > min(self.bounds.total_bytes, ratio_bound):
            raise FetchError(f"the archive is rejected: it unpacks to more than {total - 1:,} bytes")

    def copy(self, source: BinaryIO, target: BinaryIO, num_bytes: int) -> None:
        """Copy a member that claims `num_bytes`; bytes are counted before they are written."""
        self.require_room(num_bytes)
        while piece := source.read(_CHUNK):
            self.spend(len(piece))
            target.write(piece)


@contextmanager
def raise_as_fetch_error(name: str) -> Iterator[None]:
    """Turn the errors of a broken archive into `FetchError`."""
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise FetchError(f"'{name}' is damaged: {error or type(error).__name__}") from None
    except OSError as error:
        if error.errno is not None:  # an error of the local disk
            raise
        raise FetchError(f"'{name}' is damaged: {error}") from None
    except RuntimeError as error:  # zipfile raises it for encrypted archives
        raise FetchError(f"'{name}' cannot be unpacked: {error}") from None


SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_NESTED = 2  # levels of archives inside the archive
_MAX_HEADER_BYTES = 1 << 26  # of a .tar
_DECOMPRESSORS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))


def unpack(archive: Path, folder: Path, bounds: Bounds | None = None) -> UnpackState:
    """Unpack into a new `folder` and return the counts; raise `FetchError` for a damaged or unsafe archive."""
    state = UnpackState(bounds or Bounds(), archive.stat().st_size)
    folder.mkdir(parents=True)
    _unpack_into(archive, folder, PurePosixPath(), state, depth=0)
    return state


def is_archive(name: str) -> bool:
    """Return whether a file name has an archive suffix."""
    return name.lower().endswith(SUFFIXES)


def _unpack_into(archive: Path, folder: Path, prefix: PurePosixPath, state: UnpackState, depth: int) -> None:
    nested: list[PurePosixPath] = []
    with raise_as_fetch_error(archive.name):
        members = _zip_members if is_zip(archive) else _tar_members
        for name, size, source in members(archive, state):
            path = safe_path(name)
            if path is None or source is None or any(map(is_junk, path.parts)):
                continue
            if not is_data_file(path.name) and not (is_archive(path.name) and depth < MAX_NESTED):
                continue
            state.add_file(prefix / path)
            _write(folder / prefix / path, source, size, state)
            if is_archive(path.name):
                nested.append(prefix / path)
    for path in nested:
        inner = folder / path
        _unpack_into(inner, folder, path.with_name(_stem(path.name)), state, depth + 1)
        inner.unlink()


def _stem(name: str) -> str:
    suffix = max((s for s in SUFFIXES if name.lower().endswith(s)), key=len)
    return name[: -len(suffix)] or "archive"


def _write(path: Path, source: BinaryIO, size: int, state: UnpackState) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.open("xb")
    except (FileExistsError, NotADirectoryError):
        raise FetchError(f"the archive is rejected: '{path.name}' is both a file and a folder") from None
    with target:
        state.copy(source, target, size)


Member = tuple[str, int, BinaryIO | None]  # its name, the size that it claims, and its content unless it is a folder


def _zip_members(archive: Path, state: UnpackState) -> Iterator[Member]:
    with open_zip(archive) as opened:
        for info in opened.infolist():
            state.count_member()
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise FetchError(f"the archive is rejected: '{info.filename}' is a link or a device")
            if info.is_dir():
                yield info.filename, 0, None
                continue
            with opened.open(info) as source:
                yield info.filename, info.file_size, cast(BinaryIO, source)


def _tar_members(archive: Path, state: UnpackState) -> Iterator[Member]:
    with _open_tar_stream(archive) as plain, _open_tar(plain, archive.name) as opened:
        while (info := opened.next()) is not None:
            state.count_member()
            cast(Any, opened).members = []  # do not accumulate a million headers
            if info.isdir():
                yield info.name, 0, None
                continue
            if not info.isreg() or info.issparse():
                raise FetchError(f"the archive is rejected: '{info.name}' is a link or a device")
            source = opened.extractfile(info)
            if source is not None:
                with source:
                    yield info.name, info.size, cast(BinaryIO, source)


def _open_tar(plain: _BoundedReader, name: str) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=cast(Any, plain), mode="r:")
    except tarfile.ReadError:
        raise FetchError(f"'{name}' is not a .zip, .tar or .tar.gz archive") from None


@contextmanager
def _open_tar_stream(archive: Path) -> Iterator[_BoundedReader]:
    """Yield the decompressed bytes of a .tar."""
    with open_file(archive) as file:
        start = file.read(512)
    decompress = next((opener for magic, opener in _DECOMPRESSORS if start.startswith(magic)), None)
    with cast(IO[bytes], decompress(archive, "rb")) if decompress else open_file(archive) as plain:
        yield _BoundedReader(plain)


class _BoundedReader(io.RawIOBase):
    """A stream that refuses to read headers of absurd sizes into memory."""

    def __init__(self, plain: IO[bytes]) -> None:
        self._plain = plain

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise FetchError("the archive is rejected: it has a header of impossible size")
        return self._plain.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._plain.seek(offset, whence)

    def tell(self) -> int:
        return self._plain.tell()
