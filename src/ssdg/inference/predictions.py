"""Predictions and the files they are written to: CSV, JSON lines, Parquet. Needs no torch."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ..files import atomic_path, open_file
from ..safe_csv import restore_cell, write_rows

COLUMNS = ("path", "class", "confidence", "second", "second_confidence", "error")
REJECT_COLUMNS = ("guess", "score")  # with --reject
NUMERIC_COLUMNS = frozenset({"confidence", "second_confidence", "score"})
UNKNOWN = "unknown"
NUM_DECIMALS = 6  # of a number in a file
ROW_GROUP = 1 << 16  # rows of a Parquet file in memory at once
Record = dict[str, Any]


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image, or why it could not be read."""

    path: str
    label: str = ""
    confidence: float = 0.0
    second: str = ""
    second_confidence: float = 0.0
    error: str = ""
    score: float | None = None  # with --reject: how known the image looks
    is_unknown: bool = False

    def record(self, *, rejecting: bool = False) -> Record:
        """Return the row by column name: text, rounded numbers, None for empty cells."""
        is_read = not self.error
        answers = (
            UNKNOWN if self.is_unknown else self.label,
            round(self.confidence, NUM_DECIMALS),
            self.second,
            round(self.second_confidence, NUM_DECIMALS),
        )
        row = dict(
            zip(COLUMNS, (self.path, *(a if is_read else None for a in answers), self.error or None), strict=True)
        )
        if rejecting:
            row["guess"] = self.label or None
            row["score"] = None if self.score is None else round(self.score, NUM_DECIMALS)
        return row


def column_names(*, rejecting: bool) -> tuple[str, ...]:
    """Return the column names of a file, in order."""
    return (*COLUMNS, *REJECT_COLUMNS) if rejecting else COLUMNS


def best_two(paths: Sequence[str], probs: NDArray[np.floating[Any]], classes: Sequence[str]) -> Iterator[Prediction]:
    """Yield the two most likely classes of each image; `probs` is (n, K)."""
    rows, rest = np.arange(len(probs)), probs.copy()
    first = rest.argmax(1)
    rest[rows, first] = -1  # below any probability
    second = rest.argmax(1)
    for path, a, b, p, q in zip(
        paths, first, second, probs[rows, first].tolist(), probs[rows, second].tolist(), strict=True
    ):
        yield Prediction(path, classes[a], p, classes[b], q)


def write_predictions(path: Path, rows: Iterable[Prediction]) -> None:
    """Write a stream of predictions as a CSV file, atomically."""
    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        write_rows(file, chain([COLUMNS], (csv_cells(row.record()) for row in rows)))


def csv_cells(record: Record) -> list[str]:
    """Return the cells of a row in a CSV file."""
    return [f"{v:.{NUM_DECIMALS}f}" if isinstance(v, float) else "" if v is None else str(v) for v in record.values()]


class RowFormat(Protocol):
    """How the rows of a growing file are written and read."""

    def header(self, columns: tuple[str, ...]) -> bytes:
        """Return the content before the first row."""

    def encode(self, records: Iterable[Record]) -> bytes:
        """Return the content of rows."""

    def read(self, path: Path, columns: tuple[str, ...]) -> Iterator[tuple[Record, int]]:
        """Yield each complete row and its end in bytes, up to the first incomplete or invalid row."""


class CsvRows:
    """Comma-separated rows after a header line; numbers have six decimals, missing values are empty."""

    def header(self, columns: tuple[str, ...]) -> bytes:
        """Return the header line."""
        return _csv_bytes([columns])

    def encode(self, records: Iterable[Record]) -> bytes:
        """Return lines that end with CR LF."""
        return _csv_bytes(map(csv_cells, records))

    def read(self, path: Path, columns: tuple[str, ...]) -> Iterator[tuple[Record, int]]:
        """Yield rows of text; a row spans several lines if its path contains line breaks."""
        lines = CompleteLines(path)
        rows = csv.reader(lines, strict=True)
        try:
            if next(rows, None) != list(columns):
                return
            for row in rows:
                if len(row) != len(columns):
                    return
                yield dict(zip(columns, map(restore_cell, row), strict=True)), lines.end
        except (csv.Error, UnicodeDecodeError):  # truncated inside quotes, or overwritten
            return


class JsonRows:
    """A JSON object per line."""

    def header(self, columns: tuple[str, ...]) -> bytes:
        """Return nothing: every line contains the names."""
        return b""

    def encode(self, records: Iterable[Record]) -> bytes:
        """Return lines that end with LF."""
        lines = [json.dumps(record, ensure_ascii=False, allow_nan=False) for record in records]
        return "".join(f"{line}\n" for line in lines).encode()

    def read(self, path: Path, columns: tuple[str, ...]) -> Iterator[tuple[Record, int]]:
        """Yield objects with exactly these columns, in this order."""
        lines = CompleteLines(path)
        try:
            for line in lines:
                record = json.loads(line)
                if not isinstance(record, dict) or tuple(record) != columns:
                    return
                yield record, lines.end
        except ValueError:  # not JSON, or not UTF-8
            return


class CompleteLines:
    """Iterator over the terminated lines of a file; `end` is the end of the last one in bytes."""

    def __init__(self, path: Path) -> None:
        self.path, self.end = path, 0

    def __iter__(self) -> Iterator[str]:
        with open_file(self.path) as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.end += len(line)
                yield line.decode()


def _csv_bytes(rows: Iterable[Sequence[Any]]) -> bytes:
    text = StringIO(newline="")
    write_rows(text, rows)
    return text.getvalue().encode()


@dataclass(frozen=True)
class OutputFormat:
    """The format of rows while the file grows, and whether the finished file is Parquet."""

    rows: RowFormat
    is_parquet: bool = False

    def finish(self, part: Path, out: Path, columns: tuple[str, ...]) -> None:
        """Turn the part with all rows into the finished file, and remove the part."""
        if self.is_parquet:
            with atomic_path(out) as temporary:
                write_parquet(temporary, (record for record, _ in self.rows.read(part, columns)), columns)
            part.unlink()
        else:
            part.replace(out)


FORMATS = {
    ".csv": OutputFormat(CsvRows()),
    ".jsonl": OutputFormat(JsonRows()),
    ".parquet": OutputFormat(JsonRows(), is_parquet=True),
}


def find_format(out: Path) -> OutputFormat:
    """Return the format for the file's suffix; raise `UserError` if such a file cannot be written here."""
    output_format = FORMATS.get(out.suffix.lower())
    if output_format is None:
        raise UserError(f"'{out}' has no known suffix; give -o a file name that ends with {', '.join(FORMATS)}")
    if out.is_dir():
        raise UserError(f"'{out}' is a folder; give -o a file name")
    if output_format.is_parquet:
        require_pyarrow()
    return output_format


def require_pyarrow() -> None:
    """Raise `UserError` if Parquet files cannot be written."""
    if find_spec("pyarrow") is None:
        raise UserError(
            "a .parquet file needs the package pyarrow, which is not installed; run pip install 'ssdg[parquet]'"
        )


def write_parquet(path: Path, records: Iterator[Record], columns: tuple[str, ...]) -> None:
    """Write a Parquet file with a row group for every 65,536 rows; only one group is in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    fields: list[Any] = [(name, pa.float64() if name in NUMERIC_COLUMNS else pa.string()) for name in columns]
    schema = pa.schema(fields)
    with parquet.ParquetWriter(path, schema) as writer:
        while group := list(islice(records, ROW_GROUP)):
            writer.write_table(pa.Table.from_pylist(group, schema=schema))
