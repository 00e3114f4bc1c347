"""Names of an archive's members -> places inside a folder, or a reason to refuse the archive."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import BinaryIO

from .failure import Failed

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
