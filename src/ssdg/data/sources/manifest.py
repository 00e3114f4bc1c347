"""`manifest.csv`: one row for every file that was kept or refused, with where it came from and why."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import UserError
from ...files import write_text

NAME = "manifest.csv"
KEPT, REFUSED = "kept", "refused"
INGEST = "ingest:"  # a source that begins so is a crawl of others; any other is an engine
MOST_LICENCE_LETTERS = 2000
# fmt: off
COLUMNS = (
    "path", "class", "state", "reason", "detail", "source", "origin", "url",
    "sha256", "bytes", "width", "height", "time", "licence",
)
# fmt: on
_NEEDED = ("path", "class", "state")
_NUMBERS = ("bytes", "width", "height")


@dataclass(frozen=True)
class Row:
    """One file. What is not known is '' or None; `extra` holds the columns that this module does not know."""

    label: str  # the web-label: column `class`
    state: str  # kept or refused
    path: str = ""  # from the manifest's folder, '/' between the parts; '' of a file that never lay there
    reason: str = ""  # of `REASONS`
    detail: str = ""
    source: str = ""  # the engine, or what was ingested
    origin: str = ""  # the keyword searched for, or the path in what was ingested
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
        """Whether it is to be used; the file of one that was taken out later lies in the folder, too."""
        return self.state == KEPT

    @property
    def key(self) -> tuple[str, ...]:
        """What makes it the same file: its address if it was fetched, else its place and content."""
        return (*self.place, self.sha256) if self.ingested else (self.label, self.url or self.path)

    @property
    def ingested(self) -> bool:
        """Whether it was taken over from a crawl of others."""
        return self.source.startswith(INGEST)

    @property
    def place(self) -> tuple[str, str, str]:
        """Where an ingested file lay, and under which class."""
        return (self.label, self.source, self.origin)


@dataclass
class Manifest:
    """The rows in the order they were recorded."""

    rows: dict[tuple[str, ...], Row] = field(default_factory=dict)
    extra_columns: tuple[str, ...] = ()

    @property
    def kept(self) -> list[Row]:
        """The rows of files that are to be used."""
        return [row for row in self.rows.values() if row.kept]

    def put(self, row: Row) -> None:
        """Record a row; one with the same key is replaced, and its extra columns stay."""
        before = self.rows.get(row.key)
        self.rows[row.key] = replace(row, extra={**before.extra, **row.extra}) if before else row

    def of(self, label: str) -> list[Row]:
        """The rows of one class."""
        return [row for row in self.rows.values() if row.label == label]


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder; raise `UserError` if there is none or it cannot be trusted."""
    path = folder / NAME
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            text = file.read()
    except FileNotFoundError:
        raise UserError(f"no {NAME} in '{folder}'; make one with ssdg web crawl or ssdg web ingest") from None
    except UnicodeDecodeError:
        raise UserError(f"'{path}' is not UTF-8; save it as CSV in UTF-8") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Manifest:
    """The manifest from its text; `path` is for messages."""
    reader = csv.DictReader(StringIO(text, newline=""), restval="")
    columns = reader.fieldnames or ()
    if lacking := [name for name in _NEEDED if name not in columns]:
        raise UserError(f"'{path}' lacks the column '{lacking[0]}'; a manifest has at least {', '.join(_NEEDED)}")
    manifest = Manifest(extra_columns=tuple(name for name in columns if name not in COLUMNS))
    try:
        for cells in reader:
            manifest.put(from_cells(cells))
    except (ValueError, csv.Error) as error:
        raise UserError(f"line {reader.line_num} of '{path}' cannot be used: {error}") from None
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder atomically, the columns of others after our own."""
    file = StringIO(newline="")
    columns = [*COLUMNS, *manifest.extra_columns]  # quoted, for a lone carriage return would end a row
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(as_cells(row) for row in manifest.rows.values())
    write_text(folder / NAME, file.getvalue())


def as_cells(row: Row) -> dict[str, str]:
    """The row by column name, as text."""
    own = {name: getattr(row, _attribute(name)) for name in COLUMNS}
    return {name: "" if value is None else str(value) for name, value in own.items()} | dict(row.extra)


def _attribute(column: str) -> str:
    return "label" if column == "class" else column


def from_cells(cells: Mapping[str, Any]) -> Row:
    """The row of `as_cells`; raise `ValueError` when it is none."""
    if None in cells:
        raise ValueError("it has more cells than the first line")
    values: dict[str, Any] = {_attribute(name): cells.get(name, "") for name in COLUMNS}
    for name in _NUMBERS:
        values[name] = int(values[name]) if values[name] else None
    row = Row(**values, extra={name: text for name, text in cells.items() if name not in COLUMNS})
    _check(row)
    return row


def _check(row: Row) -> None:
    if row.state not in (KEPT, REFUSED):
        raise ValueError(f"the state is '{row.state}', not {KEPT} or {REFUSED}")
    if row.kept and not is_inside(row.path):
        raise ValueError(f"the path '{row.path}' leaves the folder")


def is_inside(path: str) -> bool:
    """Whether a path with '/' stays below where it starts, by its words alone."""
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path
