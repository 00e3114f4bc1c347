"""Rows of a file that grows: written as bytes, and read back up to the last one that is whole."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any, Protocol

from ..engine.predictions import cells

Record = dict[str, Any]


class Rows(Protocol):
    """How the rows of a growing file are written and read."""

    def head(self, columns: tuple[str, ...]) -> bytes:
        """What stands before the first row."""

    def encode(self, records: Iterable[Record]) -> bytes:
        """Rows as they stand in the file."""

    def read(self, path: Path, columns: tuple[str, ...]) -> Iterator[tuple[Record, int]]:
        """Every whole row and where it ends in bytes; what comes after the first that is not whole is left out."""


class CsvRows:
    """Comma-separated, with a first line of names; numbers have six digits after the point, nothing is empty."""

    def head(self, columns: tuple[str, ...]) -> bytes:
        """The line of names."""
        return _csv_bytes([columns])

    def encode(self, records: Iterable[Record]) -> bytes:
        """Lines that end with CR LF."""
        return _csv_bytes(map(cells, records))

    def read(self, path: Path, columns: tuple[str, ...]) -> Iterator[tuple[Record, int]]:
        """Rows of text; a row may go over several lines where a path has line breaks."""
        lines = WholeLines(path)
        rows = csv.reader(lines, strict=True)
        try:
            if next(rows, None) != list(columns):
                return
            for row in rows:
                if len(row) != len(columns):
                    return
                yield dict(zip(columns, row, strict=True)), lines.end
        except (csv.Error, UnicodeDecodeError):  # cut off inside quotes, or overwritten
            return


class JsonRows:
    """A JSON object per line."""

    def head(self, columns: tuple[str, ...]) -> bytes:
        """Nothing: every line has the names."""
        return b""

    def encode(self, records: Iterable[Record]) -> bytes:
        """Lines that end with LF."""
        lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records]
        return "".join(f"{line}\n" for line in lines).encode()

    def read(self, path: Path, columns: tuple[str, ...]) -> Iterator[tuple[Record, int]]:
        """Objects that have the columns in their order."""
        lines = WholeLines(path)
        try:
            for line in lines:
                record = json.loads(line)
                if not isinstance(record, dict) or tuple(record) != columns:
                    return
                yield record, lines.end
        except ValueError:  # no JSON, or no text
            return


class WholeLines:
    """Iterates over the lines of a file that have an end, as text; `end` is where the last one ends in bytes."""

    def __init__(self, path: Path) -> None:
        self.path, self.end = path, 0

    def __iter__(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.end += len(line)
                yield line.decode()


def _csv_bytes(rows: Iterable[Iterable[str]]) -> bytes:
    text = StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
