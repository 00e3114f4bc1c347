"""The output file while it is written: `OUT.part`, and `OUT.part.json`, which describes the job it belongs to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import locked, open_file, read_text, remove_leftovers, write_json
from .agreement import Decision
from .find_images import Entry
from .predictions import UNKNOWN, OutputFormat, Prediction, Record, column_names, find_format

Description = dict[str, Any]
DECISIONS = (None, "fp32", "bf16")
# key of the description: how a message names a different value
DIFFERENCES = {
    "model": "another model",
    "reject": "another --reject",
    "batch": "another --batch",
    "precision": "another --precision",
    "paths": "other paths",
}


@dataclass
class RowCounts:
    """Numbers of rows in a file, in total and by kind."""

    rows: int = 0
    unreadable: int = 0
    unknown: int = 0

    def add(self, record: Record) -> None:
        """Count a row."""
        self.rows += 1
        self.unreadable += bool(record["error"])
        self.unknown += "guess" in record and record["class"] == UNKNOWN


@dataclass
class PartialOutput:
    """The rows of OUT so far: complete batches and, after a kill, part of another, which `resume` cuts off."""

    out: Path
    rejecting: bool
    batch: int = 0  # rows per write
    is_new: bool = False  # no earlier process has written rows
    decision: Decision | None = None  # precision of the rows behind the sample; None until the sample has rows
    description: Description = field(default_factory=dict)
    counts: RowCounts = field(default_factory=RowCounts)

    @property
    def path(self) -> Path:
        """File of the rows until all are written."""
        return self.out.with_name(f"{self.out.name}.part")

    @property
    def description_path(self) -> Path:
        """File that describes the job of the rows."""
        return self.out.with_name(f"{self.out.name}.part.json")

    @property
    def format(self) -> OutputFormat:
        """Format of OUT, by its suffix."""
        return find_format(self.out)

    @property
    def columns(self) -> tuple[str, ...]:
        """Column names of the file."""
        return column_names(rejecting=self.rejecting)

    def begin(self, description: Description, batch: int | None, default_batch: int, *, anew: bool) -> None:
        """Adopt the rows of an earlier process with the same description, or start without any.

        Without a requested `batch`, use that of the earlier process, or `default_batch` for a new file.
        """
        if not anew and self.path.exists() and self.path.stat().st_size:
            self.batch, self.decision = self._check_description(description, batch)
            self.description = description | {"batch": self.batch}
            return
        self.batch, self.is_new = batch or default_batch, True
        self.description = description | {"batch": self.batch}
        self.path.write_bytes(b"")
        write_json(self.description_path, self.description)

    def save_decision(self, decision: Decision) -> None:
        """Store the precision of all further rows.

        Called after the rows of the sample are written: without a decision, a resumed process starts over.
        """
        self.decision = decision
        write_json(self.description_path, self.description | {"decision": decision})

    def _check_description(self, description: Description, batch: int | None) -> tuple[int, Decision | None]:
        """Reject rows of another job; return the batch size they were written with and the decision, if any."""
        try:
            stored = json.loads(read_text(self.description_path))
            current = description | {"batch": batch or stored["batch"]}
            different = [key for key in current if stored[key] != current[key]]
            decision = stored.get("decision")
            if not isinstance(current["batch"], int) or current["batch"] < 1 or decision not in DECISIONS:
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError):
            reason = f"cannot be resumed, because '{self.description_path.name}' is missing or damaged"
            raise self._not_resumable(reason) from None
        if different:
            raise self._not_resumable(f"was started with {DIFFERENCES.get(different[0], 'another version of ssdg')}")
        return int(current["batch"]), decision

    def _not_resumable(self, reason: str) -> UserError:
        return UserError(f"'{self.path}' {reason}; add --anew to start over, or choose another name with -o")

    def resume(self, entries: Iterator[Entry], *, from_start: bool = False) -> None:
        """Skip the images that have rows; cut off an incomplete batch, so that it is classified again.

        With `from_start`, cut off all rows: the sample that decides on the precision is not complete.
        """
        end, pending = 0, list[Record]()
        for record, record_end in () if from_start else self.format.rows.read(self.path, self.columns):
            pending.append(record)
            if len(pending) == self.batch:
                for row in pending:
                    self._check_path(row["path"], next(entries, None))
                    self.counts.add(row)
                end, pending = record_end, []
        with open_file(self.path, "rb+") as file:
            file.truncate(end)
        if not end:
            self._append(self.format.rows.header(self.columns))

    def _check_path(self, before: str, entry: Entry | None) -> None:
        if entry is None or entry.path != before:
            now = f"'{entry.path}'" if entry else "no image"
            difference = f"row {self.counts.rows + 1:,}: '{before}' before, {now} now"
            raise self._not_resumable(f"does not match the current images ({difference})")

    def append(self, rows: Sequence[Prediction]) -> None:
        """Write the rows of a batch."""
        records = [row.record(rejecting=self.rejecting) for row in rows]
        self._append(self.format.rows.encode(records))
        for record in records:
            self.counts.add(record)

    def _append(self, content: bytes) -> None:
        with open_file(self.path, "ab", buffering=0) as file:
            view = memoryview(content)
            while view:
                view = view[file.write(view) :]

    def finish(self) -> None:
        """Turn the complete rows into OUT."""
        with open_file(self.path, "rb+") as file:
            os.fsync(file.fileno())
        self.format.finish(self.path, self.out, self.columns)
        self.description_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete both files."""
        self.path.unlink(missing_ok=True)
        self.description_path.unlink(missing_ok=True)


@contextmanager
def open_partial_output(out: Path, *, rejecting: bool) -> Iterator[PartialOutput]:
    """Lock the partial output of a file; discard a new one if a `UserError` leaves it without rows."""
    part = PartialOutput(out, rejecting)
    out.parent.mkdir(parents=True, exist_ok=True)
    busy = f"another process is writing '{part.path}'; wait for it to finish, or choose another name with -o"
    with locked(out.with_name(f".{out.name}.lock"), busy=busy):
        remove_leftovers(out)
        try:
            yield part
        except UserError:
            if part.is_new and not part.counts.rows:
                part.discard()
            raise
