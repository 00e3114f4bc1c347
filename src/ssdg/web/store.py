"""A folder of web images: files named by content hash, the manifest, and a journal of rows not yet in it."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from ..data.sources.manifest import (
    KEPT,
    MANIFEST_NAME,
    REFUSED,
    Manifest,
    Row,
    as_cells,
    from_cells,
    read_manifest,
    write_manifest,
)
from ..errors import UserError, one_line
from ..files import locked, read_bytes, real_path, remove_leftovers, write_bytes
from .untrusted import Picture, Refused

_JOURNAL = ".manifest.journal"  # one JSON object per line
_RESERVED = frozenset({MANIFEST_NAME, "thumbs.db", "desktop.ini", "__macosx", "$recycle.bin", "@eadir"})
DAMAGED = "damaged"  # audit reason for a file that is missing or changed
_NAME_LENGTH = 32  # hex digits, of the 64 in a sha256
_MAX_LABEL_BYTES = 100


def check_label(label: str) -> str:
    """Return the class name; raise `UserError` if it cannot be a folder name (a path, a hidden name)."""
    is_path = "/" in label or "\\" in label or label.startswith(".")
    if not label or is_path or label != label.strip() or not label.isprintable() or label.lower() in _RESERVED:
        raise UserError(f"invalid class name '{one_line(label)}'; it must be usable as a folder name")
    if len(label.encode()) > _MAX_LABEL_BYTES:
        raise UserError(f"class name '{label[:20]}...' is too long; use at most {_MAX_LABEL_BYTES} bytes")
    return label


@dataclass
class Store:
    """An open folder of web images. Not thread-safe; a lock keeps other processes out."""

    root: Path
    manifest: Manifest
    num_lost: int = 0  # rows dropped because their file is missing, truncated or damaged
    _journal: TextIO | None = None
    _by_sha256: dict[str, Row] = field(default_factory=dict)
    _by_url: dict[str, Row] = field(default_factory=dict)
    _origins: set[tuple[str, str, str]] = field(default_factory=set)  # of ingested files
    _num_kept: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for row in self.manifest.rows.values():
            self._index(row)

    def find_url(self, url: str) -> Row | None:
        """Return the row recorded for a URL under any class, preferably a kept one."""
        return self._by_url.get(url)

    def has_origin(self, row: Row) -> bool:
        """Return whether a file ingested from the same origin and class is recorded, whatever its content."""
        return row.origin_key in self._origins

    def num_kept(self, label: str) -> int:
        """Return the number of kept images of a class."""
        return self._num_kept[label]

    def keep(self, row: Row, picture: Picture, link_to: Path | None = None) -> Row:
        """Write and record the picture, or record it as a duplicate if its content is already stored."""
        row = replace(row, sha256=picture.sha256, bytes=len(picture.data), width=picture.width, height=picture.height)
        original = self._by_sha256.get(picture.sha256)
        if original is not None:
            return self.refuse(row, Refused("duplicate", original.path))
        row = replace(row, path=f"{row.label}/{picture.sha256[:_NAME_LENGTH]}{picture.suffix}", state=KEPT)
        self._write(self.root / row.path, picture.data, link_to)
        return self._record(row)

    def refuse(self, row: Row, refusal: Refused) -> Row:
        """Record a file that is not kept."""
        return self._record(replace(row, state=REFUSED, reason=refusal.reason, detail=refusal.detail, path=""))

    def _write(self, path: Path, data: bytes, link_to: Path | None) -> None:
        if path.parent.is_symlink():
            raise UserError(
                f"'{path.parent}' is a symbolic link; remove it: nothing is written outside '{self.root}'"
            )
        if link_to is None or not _try_link(link_to, path):
            write_bytes(path, data)

    def _record(self, row: Row) -> Row:
        if row.ingested:  # drop an earlier row without a hash, such as of a file that was missing
            self.manifest.rows.pop((*row.origin_key, ""), None)
        row = replace(row, time=datetime.now(UTC).isoformat(timespec="seconds"))
        self.manifest.put(row)
        self._index(row)
        if self._journal is not None:
            self._journal.write(json.dumps(as_cells(row)) + "\n")
            self._journal.flush()
        return row

    def _index(self, row: Row) -> None:
        if row.path:  # also if removed by an audit or a user: it must not come back from elsewhere
            self._by_sha256[row.sha256] = row
        if row.kept:
            self._num_kept[row.label] += 1
        if row.ingested:
            self._origins.add(row.origin_key)
        if (
            row.url
            and (row.kept or not row.ingested)
            and not (row.url in self._by_url and self._by_url[row.url].kept)
        ):
            self._by_url[row.url] = row


def _try_link(file: Path, path: Path) -> bool:
    """Create a hard link and return whether it succeeded; it fails across disks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # left by a killed process
    try:
        os.link(real_path(file), path)
    except OSError:
        return False
    return True


@contextmanager
def open_store(root: Path) -> Iterator[Store]:
    """Open or create a folder of web images, recover rows of a killed process, and write the manifest on exit."""
    with _exclusive(root):
        manifest = _read(root)
        num_lost = _drop_lost_rows(root, manifest)
        write_manifest(root, manifest)
        journal = root / _JOURNAL
        with journal.open("w", encoding="utf-8") as file:
            store = Store(root, manifest, num_lost, file)
            try:
                yield store
            finally:
                write_manifest(root, manifest)
                journal.unlink()


@contextmanager
def open_manifest(root: Path, *, dry: bool = False) -> Iterator[tuple[Manifest, Callable[[Manifest], None]]]:
    """Yield the manifest of a folder and a function that replaces it; with `dry` the folder is not touched."""
    if not (root / MANIFEST_NAME).is_file():
        problem = "has no manifest.csv" if root.is_dir() else "is not a folder"
        raise UserError(f"'{root}' {problem}; run ssdg web ingest '{root}' --out DIR first, then pass DIR")
    if dry:
        yield _read(root), lambda manifest: None
        return
    with _exclusive(root):

        def write(manifest: Manifest) -> None:
            write_manifest(root, manifest)
            (root / _JOURNAL).unlink(missing_ok=True)

        yield _read(root), write


@contextmanager
def _exclusive(root: Path) -> Iterator[None]:
    """Lock the folder and remove temporary files of a killed command."""
    busy = f"another ssdg web command is using '{root}'; wait for it or use another folder"
    with locked(root / ".lock", busy=busy):
        remove_leftovers(root / MANIFEST_NAME)
        yield


def _read(root: Path) -> Manifest:
    manifest = read_manifest(root) if (root / MANIFEST_NAME).exists() else Manifest()
    _replay(root / _JOURNAL, manifest)
    return manifest


def _replay(journal: Path, manifest: Manifest) -> None:
    """Add the rows of a journal to the manifest; truncated lines are ignored."""
    if not journal.exists():
        return
    for line in read_bytes(journal).split(b"\n"):
        with suppress(ValueError):
            manifest.put(from_cells(json.loads(line)))


def _drop_lost_rows(root: Path, manifest: Manifest) -> int:
    """Drop rows whose file is missing, truncated or damaged, and remove temporary files; return how many."""
    for folder in root.iterdir():  # a class may have lost its first image, so it has no rows
        if folder.is_dir() and not folder.is_symlink():
            remove_leftovers(folder / "*")
    lost = [row for row in manifest.kept if not _is_complete(root / row.path, row.bytes)]
    lost += [row for row in manifest.rows.values() if row.path and row.reason == DAMAGED]
    for row in lost:
        del manifest.rows[row.key]
    return len(lost)


def _is_complete(path: Path, num_bytes: int | None) -> bool:
    return path.is_file() and num_bytes in (None, path.stat().st_size)
