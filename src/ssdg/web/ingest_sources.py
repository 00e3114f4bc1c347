"""The files of an existing crawl: class folders, a .zip of them, a CSV table, or `path label` lines.

Nothing outside the given folder or archive is read.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.sources.manifest import REFUSED
from ..data.sources.tree import IMAGE_SUFFIXES, NO_IMAGES, Item, is_junk, printable
from ..errors import UserError
from .untrusted import CLASS, ENCODINGS, LICENCE, PATH, URL, Refused, decodings, parse_table

_DRIVE = re.compile(r"[A-Za-z]:")
_UTF8_NAME = 0x800  # flag of a .zip entry


@dataclass(frozen=True)
class Given:
    """One file with its web-label, '' where none is told; `why` when it must not be read."""

    item: Item  # its path is from the root of what was given
    label: str = ""
    url: str = ""
    licence: str = ""
    why: Refused | None = None


def list_folder(root: Path, classes: Sequence[str]) -> list[Given]:
    """Every file below a folder; links out of it are listed as refused, links to folders are not followed."""
    return _labeled(list(_walk(root, "", root.resolve())), classes)


def list_archive(archive: Path, classes: Sequence[str], encoding: str | None) -> list[Given]:
    """Every file in a .zip archive; names that leave it are listed as refused."""
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = [info for info in opened.infolist() if not info.is_dir()]
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read the archive '{archive}': {error}; download or pack it again") from None
    listed = []
    for info in infos:
        path = _entry_name(info, encoding).replace("\\", "/")
        parts = [part for part in path.split("/") if part]
        if leaves(path):
            why = Refused("outside", "the name of the entry leaves the archive")
            listed.append(Given(Item(path, str(archive), info.filename), why=why))
        elif not any(map(is_junk, parts)):
            listed.append(Given(Item("/".join(parts), str(archive), info.filename)))
    return _labeled(listed, classes)


def leaves(path: str) -> bool:
    """Whether a path with '/' may lead out of where it starts."""
    return path.startswith("/") or ".." in path.split("/") or has_drive(path)


def has_drive(path: str) -> bool:
    """Whether a path names a drive, as Windows has them."""
    return _DRIVE.match(path) is not None


def _walk(folder: Path, at: str, root: Path) -> Iterator[Given]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(f"cannot read the folder '{folder}': {error.strerror}") from None
    if any(entry.name == NO_IMAGES for entry in entries):
        return
    for entry in entries:
        if is_junk(entry.name):
            continue
        path = f"{at}/{printable(entry.name)}" if at else printable(entry.name)
        item = Item(path, entry.path)
        if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root):
            yield Given(item, why=Refused("outside", "a link that leaves the folder"))
        elif entry.is_dir():
            if not entry.is_symlink():  # what it leads to is listed at its own place
                yield from _walk(Path(entry.path), path, root)
        else:
            yield Given(item)


def _entry_name(info: zipfile.ZipInfo, encoding: str | None) -> str:
    """The name of an entry; one without the mark of UTF-8 is in the encoding of who packed it."""
    if info.filename.isascii() or info.flag_bits & _UTF8_NAME:
        return info.filename
    raw = info.filename.encode("cp437")
    for name in (encoding,) if encoding else ENCODINGS:
        try:
            return raw.decode(name)
        except UnicodeError:
            continue
        except LookupError:
            raise UserError(f"unknown encoding '{name}'; try utf-8, gbk or latin-1") from None
    return info.filename


def _labeled(listed: Sequence[Given], classes: Sequence[str]) -> list[Given]:
    """The first folder below those that wrap everything is the class."""
    names = [given.item.parts for given in listed if given.why is None]
    depth = _wrappers([parts for parts in names if _is_image_name(parts[-1])] or names, classes)
    wrapper = next((parts[:depth] for parts in names if len(parts) > depth), [])
    return [replace(given, label=_class_of(given.item.parts, wrapper)) for given in listed]


def _wrappers(names: Sequence[Sequence[str]], classes: Iterable[str]) -> int:
    """How many folders hold all files without being their class: something/class/image is left below them."""
    depth = 0
    while names and all(len(parts) >= depth + 3 for parts in names):
        tops = {parts[depth] for parts in names}
        if len(tops) > 1 or not tops.isdisjoint(classes):
            break
        depth += 1
    return depth


def _is_image_name(name: str) -> bool:
    return Path(name).suffix.lower() in IMAGE_SUFFIXES


def _class_of(parts: Sequence[str], wrapper: Sequence[str]) -> str:
    below = parts[len(wrapper) :] if list(parts[: len(wrapper)]) == list(wrapper) else []
    return below[0] if len(below) > 1 else ""


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
