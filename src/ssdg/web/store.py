"""A folder of web images: files named by their content, the manifest, and a journal between two writings of it."""

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
    NAME,
    REFUSED,
    Manifest,
    Row,
    as_cells,
    from_cells,
    read_manifest,
    write_manifest,
)
from ..errors import UserError
from ..files import locked, remove_leftovers, write_bytes
from .untrusted import Picture, Refused, one_line

_JOURNAL = ".manifest.journal"  # a JSON object in each line
_RESERVED = frozenset({NAME, "thumbs.db", "desktop.ini", "__macosx", "$recycle.bin", "@eadir"})
DAMAGED = "damaged"  # the reason of an audit for a file that is not what it was
_NAME_LETTERS = 32  # of 64 in a sha256
_MOST_LABEL_LETTERS = 100


def check_label(label: str) -> str:
    """The class name, if it can be a folder; raise `UserError` for a path, a hidden name and the like."""
    is_path = "/" in label or "\\" in label or label.startswith(".")
    if not label or is_path or label != label.strip() or not label.isprintable() or label.lower() in _RESERVED:
        raise UserError(f"'{one_line(label)}' cannot be a class: its images go to a folder of that name; give a name")
    if len(label.encode()) > _MOST_LABEL_LETTERS:
        raise UserError(f"the class name '{label[:20]}...' is too long; {_MOST_LABEL_LETTERS} bytes are allowed")
    return label


@dataclass
class Store:
    """An open folder. Of one thread; other processes are kept out by a lock."""

    root: Path
    manifest: Manifest
    lost: int = 0  # rows whose file was not there any more, and which are forgotten
    _journal: TextIO | None = None
    _first: dict[str, Row] = field(default_factory=dict)  # sha256 -> the row of the file
    _known: dict[str, Row] = field(default_factory=dict)  # url -> a row
    _places: set[tuple[str, str, str]] = field(default_factory=set)  # of ingested files
    _kept: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for row in self.manifest.rows.values():
            self._index(row)

    def known(self, url: str) -> Row | None:
        """What is recorded of an address, under any class; the kept row if there is one."""
        return self._known.get(url)

    def has_place(self, row: Row) -> bool:
        """Whether an ingested file of this place and class is recorded, whatever it held."""
        return row.place in self._places

    def num_kept(self, label: str) -> int:
        """Images of a class that lie here."""
        return self._kept[label]

    def keep(self, row: Row, picture: Picture, link_to: Path | None = None) -> Row:
        """Write the picture and record it, or that its content is here already."""
        row = replace(row, sha256=picture.sha256, bytes=len(picture.data), width=picture.width, height=picture.height)
        first = self._first.get(picture.sha256)
        if first is not None:
            return self.refuse(row, Refused("duplicate", first.path))
        row = replace(row, path=f"{row.label}/{picture.sha256[:_NAME_LETTERS]}{picture.suffix}", state=KEPT)
        self._write(self.root / row.path, picture.data, link_to)
        return self._record(row)

    def refuse(self, row: Row, why: Refused) -> Row:
        """Record that a file is not kept."""
        return self._record(replace(row, state=REFUSED, reason=why.reason, detail=why.detail, path=""))

    def _write(self, path: Path, data: bytes, link_to: Path | None) -> None:
        if path.parent.is_symlink():
            raise UserError(f"'{path.parent}' is a link; nothing is written outside '{self.root}', remove the link")
        if link_to is None or not _linked(link_to, path):
            write_bytes(path, data)

    def _record(self, row: Row) -> Row:
        if row.ingested:  # an earlier row that knew no content of it, such as of a file that was missing
            self.manifest.rows.pop((*row.place, ""), None)
        row = replace(row, time=datetime.now(UTC).isoformat(timespec="seconds"))
        self.manifest.put(row)
        self._index(row)
        if self._journal is not None:
            self._journal.write(json.dumps(as_cells(row)) + "\n")
            self._journal.flush()
        return row

    def _index(self, row: Row) -> None:
        if row.path:  # also one that an audit or someone took out: it must not come back from elsewhere
            self._first[row.sha256] = row
        if row.kept:
            self._kept[row.label] += 1
        if row.ingested:
            self._places.add(row.place)
        if row.url and (row.kept or not row.ingested) and not (row.url in self._known and self._known[row.url].kept):
            self._known[row.url] = row


def _linked(file: Path, path: Path) -> bool:
    """Whether a hard link could be made; not to another disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a killed process
    try:
        os.link(file.resolve(), path)
    except OSError:
        return False
    return True


@contextmanager
def open_store(root: Path) -> Iterator[Store]:
    """Open a folder of web images, a new one or one that a killed process left; write the manifest in the end."""
    with _one_process(root):
        manifest = _read(root)
        lost = _forget_lost(root, manifest)
        write_manifest(root, manifest)
        journal = root / _JOURNAL
        with journal.open("w", encoding="utf-8") as file:
            store = Store(root, manifest, lost, file)
            try:
                yield store
            finally:
                write_manifest(root, manifest)
                journal.unlink()


@contextmanager
def open_manifest(root: Path, *, dry: bool = False) -> Iterator[tuple[Manifest, Callable[[Manifest], None]]]:
    """The manifest of a folder, and a function that replaces it; a dry one does not touch the folder at all."""
    if not (root / NAME).is_file():
        what = "has no manifest.csv" if root.is_dir() else "is no folder"
        raise UserError(f"'{root}' {what}; take it over with ssdg web ingest '{root}' --out DIR first, then give DIR")
    if dry:
        yield _read(root), lambda manifest: None
        return
    with _one_process(root):

        def write(manifest: Manifest) -> None:
            write_manifest(root, manifest)
            (root / _JOURNAL).unlink(missing_ok=True)

        yield _read(root), write


@contextmanager
def _one_process(root: Path) -> Iterator[None]:
    """Keep other commands out of the folder, and clear up after one that was killed."""
    busy = f"another ssdg web command works in '{root}'; wait for it or give another folder"
    with locked(root / ".lock", busy=busy):
        remove_leftovers(root / NAME)
        yield


def _read(root: Path) -> Manifest:
    manifest = read_manifest(root) if (root / NAME).exists() else Manifest()
    _replay(root / _JOURNAL, manifest)
    return manifest


def _replay(journal: Path, manifest: Manifest) -> None:
    """Take over the rows of a journal; a line that was cut off is as if never written."""
    if not journal.exists():
        return
    for line in journal.read_bytes().split(b"\n"):
        with suppress(ValueError):
            manifest.put(from_cells(json.loads(line)))


def _forget_lost(root: Path, manifest: Manifest) -> int:
    """Drop the rows whose file is gone, cut off or was found damaged, and what a killed process left half written."""
    for label in {row.label for row in manifest.kept}:
        remove_leftovers(root / label / "*")
    lost = [row for row in manifest.kept if not _is_whole(root / row.path, row.bytes)]
    lost += [row for row in manifest.rows.values() if row.path and row.reason == DAMAGED]
    for row in lost:
        del manifest.rows[row.key]
    return len(lost)


def _is_whole(path: Path, num_bytes: int | None) -> bool:
    return path.is_file() and num_bytes in (None, path.stat().st_size)
