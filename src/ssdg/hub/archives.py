"""Unpack archives into a folder and never outside it: .zip, .tar, .tar.gz, and archives inside them.

Only images, .npz files and texts are written, with our own permissions. A name that leads outside, a link or a
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from ..data.sources.tree import is_junk, is_wanted
from .transfer import Failed

_DRIVE = re.compile(r"[A-Za-z]:")
_MOST_DEPTH, _MOST_NAME_BYTES = 32, 255
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """How much an archive may hold."""

    members: int = 1_000_000
    total_bytes: int = 100 * 10**9
    ratio: int = 100  # bytes that come out of one of the archive; images hardly shrink
    free_bytes: int = 10**9  # a small archive may hold so much, whatever its ratio


def safe_place(name: str) -> PurePosixPath | None:
    """The relative path of a member, None for the folder itself; whatever could lead outside is refused."""
    if name.startswith(("/", "\\")) or _DRIVE.match(name) or "\0" in name:
        raise Failed(f"the archive is refused: '{name}' is no relative path")
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Failed(f"the archive is refused: '{name}' leads outside")
    if len(parts) > _MOST_DEPTH or any(len(part.encode("utf-8", "replace")) > _MOST_NAME_BYTES for part in parts):
        raise Failed(f"the archive is refused: '{name}' is too long or too deep")
    if not all(part.isprintable() for part in parts):
        raise Failed(f"the archive is refused: {name!r} has unprintable letters")
    return PurePosixPath(*parts) if parts else None


@dataclass
class Ledger:
    """Everything taken out of one download: counts, bytes and names; nested archives share it."""

    bounds: Bounds
    archive_bytes: int
    members: int = 0
    written: int = 0
    _spellings: dict[str, str] = field(default_factory=dict)  # folded path -> the path, of files and folders
    _files: set[str] = field(default_factory=set)

    def count(self) -> None:
        """One more member."""
        self.members += 1
        if self.members > self.bounds.members:
            raise Failed(f"the archive is refused: more than {self.bounds.members:,} members")

    def claim(self, place: PurePosixPath) -> None:
        """Take a place for a file; one that is taken, also by another spelling, is refused."""
        whole = str(place)
        for path in (*(str(parent) for parent in place.parents if parent.name), whole):
            folded = unicodedata.normalize("NFC", path).casefold()
            if self._spellings.setdefault(folded, path) != path:
                raise Failed(f"the archive is refused: '{path}' and '{self._spellings[folded]}' differ in case only")
            if path in self._files:
                raise Failed(f"the archive is refused: '{path}' is there twice")
        self._files.add(whole)

    def spend(self, num_bytes: int) -> None:
        """Count bytes that came out."""
        self.written += num_bytes
        ratio_bound = max(self.bounds.ratio * self.archive_bytes, self.bounds.free_bytes)
        if self.written > min(self.bounds.total_bytes, ratio_bound):
            raise Failed(f"the archive is refused: more than {self.written - 1:,} bytes come out of it")

    def copy(self, source: BinaryIO, target: BinaryIO) -> None:
        """All bytes of a member, counted before they are written."""
        while piece := source.read(_CHUNK):
            self.spend(len(piece))
            target.write(piece)


@contextmanager
def damage_told(name: str) -> Iterator[None]:
    """What a broken archive raises, as a failure."""
    import lzma
    import tarfile
    import zipfile
    import zlib

    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise Failed(f"'{name}' is damaged: {error or type(error).__name__}") from None
    except OSError as error:
        if error.errno is not None:  # of our own disk
            raise
        raise Failed(f"'{name}' is damaged: {error}") from None
    except RuntimeError as error:  # zipfile's word for a password
        raise Failed(f"'{name}' cannot be unpacked: {error}") from None


SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MOST_NESTED = 2  # an archive in an archive in the archive
_MOST_READ = 1 << 26  # bytes of one header of a .tar
_PACKED = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\0", lzma.open))


def unpack(archive: Path, folder: Path, bounds: Bounds | None = None) -> Ledger:
    """Unpack into a new `folder`; returns what was counted. Raises `Failed` for what cannot or must not be."""
    ledger = Ledger(bounds or Bounds(), archive.stat().st_size)
    folder.mkdir(parents=True)
    _unpack_into(archive, folder, PurePosixPath(), ledger, depth=0)
    return ledger


def is_archive(name: str) -> bool:
    """Whether a file of this name is taken for an archive."""
    return name.lower().endswith(SUFFIXES)


def _unpack_into(archive: Path, folder: Path, at: PurePosixPath, ledger: Ledger, depth: int) -> None:
    nested: list[PurePosixPath] = []
    with damage_told(archive.name):
        members = _zip_members if zipfile.is_zipfile(archive) else _tar_members
        for name, source in members(archive, ledger):
            place = safe_place(name)
            if place is None or source is None or any(map(is_junk, place.parts)):
                continue
            if not is_wanted(place.name) and not (is_archive(place.name) and depth < MOST_NESTED):
                continue
            ledger.claim(at / place)
            _write(folder / at / place, source, ledger)
            if is_archive(place.name):
                nested.append(at / place)
    for place in nested:
        inner = folder / place
        _unpack_into(inner, folder, place.with_name(_stem(place.name)), ledger, depth + 1)
        inner.unlink()


def _stem(name: str) -> str:
    suffix = max((s for s in SUFFIXES if name.lower().endswith(s)), key=len)
    return name[: -len(suffix)] or "archive"


def _write(path: Path, source: BinaryIO, ledger: Ledger) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        target = path.open("xb")
    except (FileExistsError, NotADirectoryError):
        raise Failed(f"the archive is refused: '{path.name}' is a file and a folder") from None
    with target:
        ledger.copy(source, target)


def _zip_members(archive: Path, ledger: Ledger) -> Iterator[tuple[str, BinaryIO | None]]:
    with zipfile.ZipFile(archive) as opened:
        for info in opened.infolist():
            ledger.count()
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise Failed(f"the archive is refused: '{info.filename}' is a link or a device")
            if info.is_dir():
                yield info.filename, None
                continue
            with opened.open(info) as source:
                yield info.filename, cast(BinaryIO, source)


def _tar_members(archive: Path, ledger: Ledger) -> Iterator[tuple[str, BinaryIO | None]]:
    with _opened(archive) as plain, _as_tar(plain, archive.name) as opened:
        while (info := opened.next()) is not None:
            ledger.count()
            cast(Any, opened).members = []  # a list of a million headers is of no use
            if info.isdir():
                yield info.name, None
                continue
            if not info.isreg() or info.issparse():
                raise Failed(f"the archive is refused: '{info.name}' is a link or a device")
            source = opened.extractfile(info)
            if source is not None:
                with source:
                    yield info.name, cast(BinaryIO, source)


def _as_tar(plain: _Bounded, name: str) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=cast(Any, plain), mode="r:")
    except tarfile.ReadError:
        raise Failed(f"'{name}' is no .zip, .tar or .tar.gz archive") from None


@contextmanager
def _opened(archive: Path) -> Iterator[_Bounded]:
    """The bytes of a .tar, unpacked on the way."""
    with archive.open("rb") as file:
        start = file.read(512)
    unpacked = next((opener for magic, opener in _PACKED if start.startswith(magic)), None)
    with cast(IO[bytes], unpacked(archive, "rb")) if unpacked else archive.open("rb") as plain:
        yield _Bounded(plain)


class _Bounded(io.RawIOBase):
    """A stream that does not read a header of any size into memory because the archive says so."""

    def __init__(self, plain: IO[bytes]) -> None:
        self._plain = plain

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _MOST_READ:
            raise Failed("the archive is refused: it has a header of impossible size")
        return self._plain.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._plain.seek(offset, whence)

    def tell(self) -> int:
        return self._plain.tell()
