"""Lists of files with their web-labels: a CSV table, or the paper's `all_list.txt` with `path label` lines."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.manifest import REFUSED
from ..data.sources import IMAGE_SUFFIXES, Item, printable
from ..errors import UserError
from .refusal import Refused
from .texts import CLASS, LICENCE, PATH, URL, decodings, parse_table
from .trees import Given, has_drive, leaves

_IMAGE_THEN_LABEL = re.compile(rf"(.*(?:{'|'.join(map(re.escape, sorted(IMAGE_SUFFIXES)))}))\s+(\S.*)", re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """One line of a list."""

    path: str
    label: str
    url: str = ""
    licence: str = ""


@dataclass(frozen=True)
class Listed:
    """What a list names, and the encoding it was read in."""

    files: list[Given]
    encoding: str


def read_list(path: Path, root: Path, classes: Sequence[str], encoding: str | None, first: int | None) -> Listed:
    """Read a list whose paths are below `root`; `first` is the number of the first class where labels are numbers.

    Of several encodings that fit, the one under which most files are there is taken, the likelier of equals.
    """
    best: tuple[int, str, list[Line], list[Path | Refused]] | None = None
    for name, text in decodings(path, encoding):
        lines = _table_lines(text, path) if path.suffix.lower() == ".csv" else _plain_lines(text, classes)
        places = [_place(line.path, root, name) for line in lines]
        there = sum(isinstance(place, Path) for place in places)
        if best is None or there > best[0]:
            best = (there, name, lines, places)
        if there == len(lines):
            break
    assert best is not None  # decodings gives at least one
    _, used, lines, places = best
    labels = name_labels([line.label for line in lines], classes, first, path)
    rows = zip(lines, labels, places, strict=True)
    return Listed([_given(line, label, place) for line, label, place in rows], used)


def _given(line: Line, label: str, place: Path | Refused) -> Given:
    item = Item(printable(line.path), str(place) if isinstance(place, Path) else "")
    return Given(item, label, line.url, line.licence, place if isinstance(place, Refused) else None)


def _table_lines(text: str, path: Path) -> list[Line]:
    table = parse_table(text, path)
    if PATH not in table.columns and URL in table.columns:
        raise UserError(f"'{path}' names addresses and no files; fetch them with ssdg web crawl --urls '{path}'")
    if PATH not in table.columns or CLASS not in table.columns:
        raise UserError(f"'{path}' must have the columns path and class in its first line")
    rows = [row for row in table.rows if row[PATH].strip() and row.get("state") != REFUSED]  # it may be a manifest
    return [Line(row[PATH].strip(), row[CLASS].strip(), row.get(URL, ""), row.get(LICENCE, "")) for row in rows]


def _plain_lines(text: str, classes: Sequence[str]) -> list[Line]:
    return [Line(*split_line(line.strip(), classes)) for line in text.splitlines() if line.strip()]


def split_line(line: str, classes: Sequence[str]) -> tuple[str, str]:
    """Path and label, both maybe with spaces: a tab, a known class or the suffix of an image tells them apart."""
    if "\t" in line:
        path, _, label = line.rpartition("\t")
        return path.strip(), label.strip()
    for name in sorted(classes, key=len, reverse=True):
        if line.endswith(f" {name}"):
            return line[: -len(name)].strip(), name
    if match := _IMAGE_THEN_LABEL.fullmatch(line):
        return match[1].strip(), match[2].strip()
    path, _, label = line.rpartition(" ")
    return (path.strip(), label) if path else (line, "")


def name_labels(labels: Sequence[str], classes: Sequence[str], first: int | None, path: Path) -> list[str]:
    """Names for labels that are numbers: they count the classes from 0 or 1."""
    told = set(labels) - {""}
    if not told or told <= set(classes) or not all(label.isdecimal() for label in told):
        return list(labels)
    if not classes:
        raise UserError(f"the labels in '{path}' are numbers; give --classes with their names in that order")
    numbers = {int(label) for label in told}
    start = _first_number(numbers, len(classes), path) if first is None else first
    if min(numbers) < start or max(numbers) >= start + len(classes):
        raise UserError(
            f"'{path}' has the labels {min(numbers)} to {max(numbers)}, but --classes names {len(classes)} classes "
            f"from {start} on; name all of them"
        )
    return [classes[int(label) - start] if label else "" for label in labels]


def _first_number(numbers: set[int], num_classes: int, path: Path) -> int:
    if 0 in numbers:
        return 0
    if max(numbers) >= num_classes:
        return 1
    raise UserError(f"the labels in '{path}' may count from 0 or from 1; tell it with --first-label 0 or 1")


def _place(path: str, root: Path, encoding: str) -> Path | Refused:
    """The file that a list means; leading folders that do not exist below the root are passed over."""
    words = path.replace("\\", "/")
    if "\0" in words:
        return Refused("unreadable", "no such file")
    if has_drive(words):
        return Refused("outside", "the path leaves the root")
    if leaves(words):
        inside = (root / words).resolve()
        if not inside.is_relative_to(root.resolve()):
            return Refused("outside", "the path leaves the root")
        words = inside.relative_to(root.resolve()).as_posix()
    parts = [part for part in words.split("/") if part not in ("", ".")]
    for start in range(max(len(parts) - 1, 1)):
        for name in _spellings("/".join(parts[start:]), encoding):
            if os.path.lexists(root / name):
                is_inside = (root / name).resolve().is_relative_to(root.resolve())
                return root / name if is_inside else Refused("outside", "a link that leaves the root")
    return Refused("unreadable", "no such file")


def _spellings(name: str, encoding: str) -> list[str]:
    """As text, and as the very bytes of the list: files unpacked from an old archive may be named so."""
    raw = os.fsdecode(name.encode(encoding)) if encoding != "utf-16" else name
    return list(dict.fromkeys((name, raw)))
