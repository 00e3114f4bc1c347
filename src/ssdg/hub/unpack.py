"""Archives -> files in a folder, and never outside it: .zip, .tar, .tar.gz; archives inside are unpacked, too.

Written are images, .npz files and texts, with our own permissions. A name that leads outside, a link or a device
makes the whole archive suspect: it is refused.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from ..data.sources import is_junk, is_wanted
from .failure import Failed
from .members import Bounds, Ledger, damage_told, safe_place

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
