"""The file of predictions while it grows: `OUT.part`, and `OUT.part.json`, which says what it belongs to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import locked, write_json
from .find_images import Found
from .predictions import UNKNOWN, Format, Prediction, Record, columns, find_format

About = dict[str, Any]
# How a key of the description reads in a sentence.
NAMES = {"model": "another model", "reject": "another --reject", "batch": "another --batch", "paths": "other paths"}


@dataclass
class Written:
    """How many rows a file has, and of which kind."""

    rows: int = 0
    unreadable: int = 0
    unknown: int = 0

    def add(self, record: Record) -> None:
        """Count a row."""
        self.rows += 1
        self.unreadable += bool(record["error"])
        self.unknown += "guess" in record and record["class"] == UNKNOWN


@dataclass
class Part:
    """Rows of OUT so far. A kill leaves whole batches and perhaps a piece of one, which is cut off again."""

    out: Path
    rejecting: bool
    batch: int = 0  # rows that are written at once
    is_new: bool = False  # no process has written it before
    written: Written = field(default_factory=Written)

    @property
    def path(self) -> Path:
        """Where the rows are until all are there."""
        return self.out.with_name(f"{self.out.name}.part")

    @property
    def about(self) -> Path:
        """What the rows belong to."""
        return self.out.with_name(f"{self.out.name}.part.json")

    @property
    def format(self) -> Format:
        """By the suffix of the file."""
        return find_format(self.out)

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the file."""
        return columns(rejecting=self.rejecting)

    def begin(self, told: About, batch: int | None, usual: int, *, anew: bool) -> None:
        """Take over the rows of an earlier process with the same description, or start without any.

        `batch` is what was asked for; else it is that of the earlier process, or the `usual` one.
        """
        if not anew and self.path.stat().st_size:
            self.batch = self._known_batch(told, batch)
            return
        self.batch, self.is_new = batch or usual, True
        self.path.write_bytes(b"")
        write_json(self.about, told | {"batch": self.batch})

    def _known_batch(self, told: About, batch: int | None) -> int:
        """Refuse rows that belong to something else; how many images a batch of theirs has."""
        try:
            known = json.loads(self.about.read_text(encoding="utf-8"))
            given = told | {"batch": batch or known["batch"]}
            other = [key for key in given if known[key] != given[key]]
            if not isinstance(given["batch"], int) or given["batch"] < 1:
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError):
            raise self._refused("cannot be gone on with, for nothing tells what it belongs to") from None
        if other:
            raise self._refused(f"was begun with {NAMES.get(other[0], 'another version of ssdg')}")
        return int(given["batch"])

    def _refused(self, reason: str) -> UserError:
        return UserError(f"'{self.path}' {reason}; give --anew to begin again, or another name after -o")

    def resume(self, found: Iterator[Found]) -> None:
        """Go past the images that have their rows; a batch that is not whole is cut off and classified again."""
        end, pending = 0, list[Record]()
        for record, here in self.format.rows.read(self.path, self.columns):
            pending.append(record)
            if len(pending) == self.batch:
                for row in pending:
                    self._check_path(row["path"], next(found, None))
                    self.written.add(row)
                end, pending = here, []
        with self.path.open("rb+") as file:
            file.truncate(end)
        if not end:
            self._append(self.format.rows.head(self.columns))

    def _check_path(self, then: str, found: Found | None) -> None:
        if found is None or found.path != then:
            now = f"'{found.path}'" if found else "no image"
            place = f"row {self.written.rows + 1:,}: '{then}' then, {now} now"
            raise self._refused(f"does not fit the images that are there now ({place})")

    def append(self, rows: Sequence[Prediction]) -> None:
        """Write the rows of a batch at once."""
        records = [row.record(rejecting=self.rejecting) for row in rows]
        self._append(self.format.rows.encode(records))
        for record in records:
            self.written.add(record)

    def _append(self, content: bytes) -> None:
        with self.path.open("ab", buffering=0) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view) :]

    def finish(self) -> None:
        """All rows are there: the file gets its name."""
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        self.format.finish(self.path, self.out, self.columns)
        self.about.unlink(missing_ok=True)

    def discard(self) -> None:
        """Leave nothing behind."""
        self.path.unlink(missing_ok=True)
        self.about.unlink(missing_ok=True)


@contextmanager
def opened_part(out: Path, *, rejecting: bool) -> Iterator[Part]:
    """The part of a file, for this process alone; where a user's mistake left no row in a new one, it vanishes."""
    part = Part(out, rejecting)
    out.parent.mkdir(parents=True, exist_ok=True)
    with locked(
        part.path, busy=f"another process is writing '{part.path}'; wait for it, or give another name after -o"
    ):
        try:
            yield part
        except UserError:
            if part.is_new and not part.written.rows:
                part.discard()
            raise
