"""Predictions and the files they are written to: CSV, JSON lines, Parquet. Needs no torch."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import atomic_path

COLUMNS = ("path", "class", "confidence", "second", "second_confidence", "error")
MORE_COLUMNS = ("guess", "score")  # where a model may answer 'unknown'
UNKNOWN = "unknown"
DIGITS = 6  # of a number in a file, after the point


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image, or why it could not be read."""

    path: str
    label: str = ""
    confidence: float = 0.0
    second: str = ""
    second_confidence: float = 0.0
    error: str = ""
    score: float | None = None  # where the model may answer 'unknown': how known the image looks
    is_unknown: bool = False

    def record(self, *, rejecting: bool = False) -> dict[str, Any]:
        """The row by the names of its columns: text, numbers rounded, None where there is nothing."""
        is_read = not self.error
        answers = (
            UNKNOWN if self.is_unknown else self.label,
            round(self.confidence, DIGITS),
            self.second,
            round(self.second_confidence, DIGITS),
        )
        row = dict(
            zip(COLUMNS, (self.path, *(a if is_read else None for a in answers), self.error or None), strict=True)
        )
        if rejecting:
            row["guess"] = self.label or None
            row["score"] = None if self.score is None else round(self.score, DIGITS)
        return row


def cells(record: dict[str, Any]) -> list[str]:
    """The row of a CSV file."""
    return [f"{v:.{DIGITS}f}" if isinstance(v, float) else "" if v is None else str(v) for v in record.values()]


def columns(*, rejecting: bool) -> tuple[str, ...]:
    """The names of a file's columns, in order."""
    return (*COLUMNS, *MORE_COLUMNS) if rejecting else COLUMNS


def best_two(paths: Sequence[str], probs: NDArray[np.floating[Any]], classes: Sequence[str]) -> Iterator[Prediction]:
    """The two likeliest classes of each image; `probs` is (n, K)."""
    rows, rest = np.arange(len(probs)), probs.copy()
    first = rest.argmax(1)
    rest[rows, first] = -1  # no probability is so small
    second = rest.argmax(1)
    for path, a, b, p, q in zip(
        paths, first, second, probs[rows, first].tolist(), probs[rows, second].tolist(), strict=True
    ):
        yield Prediction(path, classes[a], p, classes[b], q)


def write_predictions(path: Path, rows: Iterable[Prediction]) -> None:
    """Write the rows as they come into a CSV file, atomically."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(cells(row.record()) for row in rows)


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


GROUP = 1 << 16  # rows of a Parquet file that are in memory at once
NUMBERS = frozenset({"confidence", "second_confidence", "score"})


@dataclass(frozen=True)
class Format:
    """How rows are kept while they are written; whether the file is another one in the end."""

    rows: Rows
    is_parquet: bool = False

    def finish(self, part: Path, out: Path, columns: tuple[str, ...]) -> None:
        """Make the whole file of the part; the part vanishes."""
        if self.is_parquet:
            with atomic_path(out) as temporary:
                write_parquet(temporary, (record for record, _ in self.rows.read(part, columns)), columns)
            part.unlink()
        else:
            part.replace(out)


FORMATS = {".csv": Format(CsvRows()), ".jsonl": Format(JsonRows()), ".parquet": Format(JsonRows(), is_parquet=True)}


def find_format(out: Path) -> Format:
    """The format by the file's suffix; refused before time is spent if it cannot be written here."""
    chosen = FORMATS.get(out.suffix.lower())
    if chosen is None:
        raise UserError(
            f"'{out}' has no suffix that tells its format; give -o a name that ends with {', '.join(FORMATS)}"
        )
    if out.is_dir():
        raise UserError(f"'{out}' is a folder; give -o the name of a file")
    if chosen.is_parquet and find_spec("pyarrow") is None:
        raise UserError(
            "a .parquet file needs the package pyarrow, which is not installed; run pip install 'ssdg[parquet]'"
        )
    return chosen


def write_parquet(path: Path, records: Iterator[Record], columns: tuple[str, ...]) -> None:
    """A row group for every 65,536 rows; nothing is in memory but one of them."""
    import pyarrow as pa
    from pyarrow import parquet

    fields: list[Any] = [(name, pa.float64() if name in NUMBERS else pa.string()) for name in columns]
    schema = pa.schema(fields)
    with parquet.ParquetWriter(path, schema) as writer:
        while group := list(islice(records, GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
