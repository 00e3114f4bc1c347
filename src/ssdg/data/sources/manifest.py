"""`manifest.csv`: one row for every file that was kept or refused, with its origin and the reason."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import UserError
from ...files import read_bytes, write_text
from ...safe_csv import restore_cell, write_rows

MANIFEST_NAME = "manifest.csv"
KEPT, REFUSED = "kept", "refused"
INGEST = "ingest:"  # prefix of the source of an ingested (third-party) crawl; any other source is an engine
MAX_LICENSE_CHARS = 2000
# fmt: off
COLUMNS = (
    "path", "class", "state", "reason", "detail", "source", "origin", "url",
    "sha256", "bytes", "width", "height", "time", "licence",
)
# fmt: on
_REQUIRED = ("path", "class", "state")
_NUMBERS = ("bytes", "width", "height")


@dataclass(frozen=True)
class Row:
    """Row of one file. Unknown values are '' or None; `extra` has the columns that this module does not define."""

    label: str  # the web-label: column `class`
    state: str  # kept or refused
    path: str = ""  # relative to the manifest's folder, with '/'; '' for a file that was never stored there
    reason: str = ""  # of `REASONS`
    detail: str = ""
    source: str = ""  # the engine, or the ingested crawl
    origin: str = ""  # the search keyword, or the path in the ingested crawl
    url: str = ""
    sha256: str = ""
    bytes: int | None = None
    width: int | None = None
    height: int | None = None
    time: str = ""  # UTC, ISO 8601
    licence: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether to use the file; a file that was removed from use later also remains in the folder."""
        return self.state == KEPT

    @property
    def key(self) -> tuple[str, ...]:
        """Identity of the file: its URL if it was fetched, else its origin and content."""
        return (*self.origin_key, self.sha256) if self.ingested else (self.label, self.url or self.path)

    @property
    def ingested(self) -> bool:
        """Whether the file comes from an ingested crawl."""
        return self.source.startswith(INGEST)

    @property
    def origin_key(self) -> tuple[str, str, str]:
        """Class, source and original path of an ingested file."""
        return (self.label, self.source, self.origin)


@dataclass
class Manifest:
    """Rows in the order they were recorded."""

    rows: dict[tuple[str, ...], Row] = field(default_factory=dict)
    extra_columns: tuple[str, ...] = ()

    @property
    def kept(self) -> list[Row]:
        """Rows of the files to use."""
        return [row for row in self.rows.values() if row.kept]

    def put(self, row: Row) -> None:
        """Record a row; replace one with the same key, but keep its extra columns."""
        previous = self.rows.get(row.key)
        self.rows[row.key] = replace(row, extra={**previous.extra, **row.extra}) if previous else row

    def rows_of(self, label: str) -> list[Row]:
        """Return the rows of one class."""
        return [row for row in self.rows.values() if row.label == label]


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder; raise `UserError` if it is missing or invalid."""
    path = folder / MANIFEST_NAME
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(
            f"no {MANIFEST_NAME} in '{folder}'; create one with ssdg web crawl or ssdg web ingest"
        ) from None
    except UnicodeDecodeError:
        raise UserError(f"'{path}' is not UTF-8; save it as CSV in UTF-8") from None
    return parse_manifest(text, path)


def parse_manifest(text: str, path: Path) -> Manifest:
    """Parse the text of a manifest; `path` is for error messages."""
    reader = csv.DictReader(StringIO(text, newline=""), restval="")
    columns = reader.fieldnames or ()
    if missing := [name for name in _REQUIRED if name not in columns]:
        raise UserError(f"'{path}' lacks the column '{missing[0]}'; required columns are {', '.join(_REQUIRED)}")
    manifest = Manifest(extra_columns=tuple(name for name in columns if name not in COLUMNS))
    try:
        for cells in reader:
            texts = {name: restore_cell(cell) for name, cell in cells.items() if name is not None}
            manifest.put(from_cells(texts if None not in cells else cells))
    except (ValueError, csv.Error) as error:
        raise UserError(f"line {reader.line_num} of '{path}' is invalid: {error}") from None
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder atomically, extra columns last."""
    file = StringIO(newline="")
    columns = [*COLUMNS, *manifest.extra_columns]  # quoted, because a lone carriage return would end a row
    cells = (as_cells(row) for row in manifest.rows.values())
    rows = [columns, *([row.get(name, "") for name in columns] for row in cells)]
    write_rows(file, rows, lineterminator="\n", quoting=csv.QUOTE_ALL)
    write_text(folder / MANIFEST_NAME, file.getvalue())


def as_cells(row: Row) -> dict[str, str]:
    """Return the values of a row as text, by column name."""
    values = {name: getattr(row, _attribute(name)) for name in COLUMNS}
    return {name: "" if value is None else str(value) for name, value in values.items()} | dict(row.extra)


def _attribute(column: str) -> str:
    return "label" if column == "class" else column


def from_cells(cells: Mapping[str, Any]) -> Row:
    """Return the row of the output of `as_cells`; raise `ValueError` if the cells are invalid."""
    if None in cells:
        raise ValueError("it has more cells than the header")
    values: dict[str, Any] = {_attribute(name): cells.get(name, "") for name in COLUMNS}
    for name in _NUMBERS:
        values[name] = int(values[name]) if values[name] else None
    row = Row(**values, extra={name: text for name, text in cells.items() if name not in COLUMNS})
    _check_row(row)
    return row


def _check_row(row: Row) -> None:
    if row.state not in (KEPT, REFUSED):
        raise ValueError(f"the state is '{row.state}'; use {KEPT} or {REFUSED}")
    if row.kept and not is_inside(row.path):
        raise ValueError(f"the path '{row.path}' leaves the folder")


def is_inside(path: str) -> bool:
    """Return whether a relative path with '/' stays below its start, judging by its text only."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path
