"""Text files that others wrote, in whatever encoding: CSV tables, and lists of `path label` lines."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from ..errors import UserError

PATH, CLASS, URL, LICENCE = "path", "class", "url", "licence"
_NAMES = {"file": PATH, "filename": PATH, "image": PATH, "label": CLASS, "license": LICENCE}  # others' names for them
ENCODINGS = ("utf-8", "gb18030", "latin-1")  # GB 18030 holds GBK; any bytes are Latin-1, so it comes last
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True)
class Table:
    """A CSV file: the columns by our names, each row by column."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, str]]


def decodings(path: Path, encoding: str | None) -> Iterator[tuple[str, str]]:
    """(encoding, text) for every encoding that fits the whole file, the likeliest first; a given one is the only."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}; give a file") from None
    marked = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    fitting = False
    for name in (encoding,) if encoding else (marked,) if marked else ENCODINGS:
        try:
            text = data.decode(name)
        except LookupError:
            raise UserError(f"unknown encoding '{name}'; try utf-8, gbk or latin-1") from None
        except UnicodeError:
            continue
        fitting = True
        yield name, text
    if not fitting:
        raise UserError(
            f"'{path}' is not {encoding or marked}; give the right --encoding, such as utf-8, gbk or latin-1"
        )


def read_table(path: Path, encoding: str | None) -> Table:
    """A CSV file in the likeliest of its encodings."""
    _, text = next(decodings(path, encoding))
    return parse_table(text, path)


def parse_table(text: str, path: Path) -> Table:
    """The rows of a CSV text below its line of names; `path` is for messages."""
    reader = csv.reader(StringIO(text, newline=""))
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        columns = [_NAMES.get(name, name) for name in names]
        rows = []
        for cells in reader:
            if len(cells) > len(columns):
                raise UserError(f"line {reader.line_num} of '{path}' has more cells than its first line names")
            if any(cells):
                rows.append(dict.fromkeys(columns, "") | dict(zip(columns, cells, strict=False)))
    except csv.Error as error:
        raise UserError(f"line {reader.line_num} of '{path}' cannot be read as CSV: {error}") from None
    return Table(columns, rows)
