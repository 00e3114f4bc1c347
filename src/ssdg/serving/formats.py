"""The files that predictions are written to, by their suffix: CSV, JSON lines, Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import atomic_path
from .rows import CsvRows, JsonRows, Record, Rows

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
