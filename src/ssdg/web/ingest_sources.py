"""List the files of an existing crawl: class folders, a .zip of them, a CSV file, or `path label` lines.

Nothing outside the source folder or archive is read.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.sources.manifest import REFUSED
from ..data.sources.tree import IMAGE_SUFFIXES, NO_IMAGES, TOO_DEEP, Item, is_folder, is_junk, loop_reason, printable
from ..data.sources.zip_entries import MAX_DEPTH, open_zip
from ..errors import UserError
from ..files import real_path
from .untrusted import CLASS, ENCODINGS, LICENCE, PATH, URL, Refused, parse_table, try_decodings

_DRIVE = re.compile(r"[A-Za-z]:")
_UTF8_NAME = 0x800  # flag of a .zip entry whose name is UTF-8


@dataclass(frozen=True)
class SourceFile:
    """A file with its web-label ('' if it has none); `refusal` is set if it must not be read."""

    item: Item  # its path is relative to the root of the source
    label: str = ""
    url: str = ""
    licence: str = ""
    refusal: Refused | None = None


def list_folder(root: Path, classes: Sequence[str]) -> list[SourceFile]:
    """List every file below a folder; links that leave it are refused, links to folders are not followed."""
    return _assign_labels(list(_walk(root, "", root.resolve())), classes)


def list_archive(archive: Path, classes: Sequence[str], encoding: str | None) -> list[SourceFile]:
    """List every file in a .zip archive; entries whose name leaves it are refused."""
    try:
        with open_zip(archive) as opened:
            infos = [info for info in opened.infolist() if not info.is_dir()]
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot read the archive '{archive}': {reason}; download or create it again") from None
    files = []
    for info in infos:
        path = _entry_name(info, encoding).replace("\\", "/")
        parts = [part for part in path.split("/") if part]
        if leaves_root(path):
            refusal = Refused("outside", "the entry name leaves the archive")
            files.append(SourceFile(Item(path, str(archive), info.filename), refusal=refusal))
        elif not any(map(is_junk, parts)):
            files.append(SourceFile(Item("/".join(parts), str(archive), info.filename)))
    return _assign_labels(files, classes)


def leaves_root(path: str) -> bool:
    """Return whether a path with '/' separators may lead outside its root."""
    return path.startswith("/") or ".." in path.split("/") or has_drive(path)


def has_drive(path: str) -> bool:
    """Return whether a path starts with a Windows drive."""
    return _DRIVE.match(path) is not None


def _walk(folder: Path, prefix: str, root: Path) -> Iterator[SourceFile]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise UserError(f"cannot read the folder '{folder}': {error.strerror}; check its permissions") from None
    if any(entry.name == NO_IMAGES for entry in entries):
        return
    for entry in entries:
        if is_junk(entry.name):
            continue
        path = f"{prefix}/{printable(entry.name)}" if prefix else printable(entry.name)
        item = Item(path, entry.path)
        if entry.is_symlink() and (refusal := _check_link(Path(entry.path), root)):
            yield SourceFile(item, refusal=refusal)
        elif is_folder(entry):
            if prefix.count("/") == MAX_DEPTH - 1:
                yield SourceFile(item, refusal=Refused("unreadable", TOO_DEEP))
            elif not entry.is_symlink():  # its target is listed where it is
                yield from _walk(Path(entry.path), path, root)
        else:
            yield SourceFile(item)


def _check_link(path: Path, root: Path) -> Refused | None:
    """Return why not to follow a link: it leads in circles or leaves the source."""
    if reason := loop_reason(str(path)):
        return Refused("unreadable", reason)
    return None if real_path(path).is_relative_to(root) else Refused("outside", "a link that leaves the source")


def _entry_name(info: zipfile.ZipInfo, encoding: str | None) -> str:
    """Decode the name of an entry; without the UTF-8 flag it is in the encoding of the machine that packed it."""
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


def _assign_labels(files: Sequence[SourceFile], classes: Sequence[str]) -> list[SourceFile]:
    """Label each file with the first folder below those that wrap all files."""
    paths = [file.item.parts for file in files if file.refusal is None]
    depth = _wrapper_depth([parts for parts in paths if _is_image_name(parts[-1])] or paths, classes)
    wrapper = next((parts[:depth] for parts in paths if len(parts) > depth), [])
    return [replace(file, label=_class_of(file.item.parts, wrapper)) for file in files]


def _wrapper_depth(paths: Sequence[Sequence[str]], classes: Iterable[str]) -> int:
    """Return how many nested folders contain all files without being their class; class/image remains below them."""
    depth = 0
    while paths and all(len(parts) >= depth + 3 for parts in paths):
        tops = {parts[depth] for parts in paths}
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
class ListEntry:
    """One entry of a list."""

    path: str
    label: str
    url: str = ""
    licence: str = ""


@dataclass(frozen=True)
class FileList:
    """The files of a list, and the encoding it was read in."""

    files: list[SourceFile]
    encoding: str


def read_list(path: Path, root: Path, classes: Sequence[str], encoding: str | None, first: int | None) -> FileList:
    """Read a list whose paths are below `root`; `first` is the number of the first class for numeric labels.

    Among the encodings that decode the list, choose the one with the most existing files, the likelier of ties.
    """
    best: tuple[int, str, list[ListEntry], list[Path | Refused]] | None = None
    for name, text in try_decodings(path, encoding):
        entries = _read_table(text, path) if path.suffix.lower() == ".csv" else _read_lines(text, classes)
        resolved = [_resolve(entry.path, root, name) for entry in entries]
        num_existing = sum(isinstance(result, Path) for result in resolved)
        if best is None or num_existing > best[0]:
            best = (num_existing, name, entries, resolved)
        if num_existing == len(entries):
            break
    assert best is not None  # try_decodings yields at least one
    _, used, entries, resolved = best
    labels = name_labels([entry.label for entry in entries], classes, first, path)
    rows = zip(entries, labels, resolved, strict=True)
    return FileList([_source_file(entry, label, result) for entry, label, result in rows], used)


def _source_file(entry: ListEntry, label: str, resolved: Path | Refused) -> SourceFile:
    item = Item(printable(entry.path), str(resolved) if isinstance(resolved, Path) else "")
    return SourceFile(item, label, entry.url, entry.licence, resolved if isinstance(resolved, Refused) else None)


def _read_table(text: str, path: Path) -> list[ListEntry]:
    table = parse_table(text, path)
    if PATH not in table.columns and URL in table.columns:
        raise UserError(f"'{path}' lists URLs, not files; fetch them with ssdg web crawl --urls '{path}'")
    if PATH not in table.columns or CLASS not in table.columns:
        raise UserError(f"'{path}' must have a header with the columns path and class")
    rows = [
        row for row in table.rows if row[PATH].strip() and row.get("state") != REFUSED
    ]  # the file may be a manifest
    return [ListEntry(row[PATH].strip(), row[CLASS].strip(), row.get(URL, ""), row.get(LICENCE, "")) for row in rows]


def _read_lines(text: str, classes: Sequence[str]) -> list[ListEntry]:
    return [ListEntry(*split_line(line.strip(), classes)) for line in text.splitlines() if line.strip()]


def split_line(line: str, classes: Sequence[str]) -> tuple[str, str]:
    """Split a line into path and label, both maybe with spaces: at a tab, before a known class or after a suffix."""
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
    """Replace numeric labels, which count `classes` from 0 or 1, by class names."""
    values = set(labels) - {""}
    if not values or values <= set(classes) or not all(value.isdecimal() for value in values):
        return list(labels)
    if not classes:
        raise UserError(f"the labels in '{path}' are numbers; set --classes to the class names in that order")
    numbers = {int(value) for value in values}
    start = _first_number(numbers, len(classes), path) if first is None else first
    if min(numbers) < start or max(numbers) >= start + len(classes):
        raise UserError(
            f"'{path}' has labels {min(numbers)} to {max(numbers)}, but --classes names {len(classes)} classes "
            f"starting at {start}; name all of them"
        )
    return [classes[int(label) - start] if label else "" for label in labels]


def _first_number(numbers: set[int], num_classes: int, path: Path) -> int:
    if 0 in numbers:
        return 0
    if max(numbers) >= num_classes:
        return 1
    raise UserError(f"the labels in '{path}' may start at 0 or 1; set --first-label 0 or 1")


def _resolve(path: str, root: Path, encoding: str) -> Path | Refused:
    """Find the file of a list entry; leading folders that do not exist below the root are skipped."""
    relative = path.replace("\\", "/")
    if "\0" in relative:
        return Refused("unreadable", "no such file")
    if has_drive(relative):
        return Refused("outside", "the path leaves the root")
    if leaves_root(relative):
        inside = real_path(root / relative)
        if not inside.is_relative_to(root.resolve()):
            return Refused("outside", "the path leaves the root")
        relative = inside.relative_to(root.resolve()).as_posix()
    parts = [part for part in relative.split("/") if part not in ("", ".")]
    for start in range(max(len(parts) - 1, 1)):
        for name in _spellings("/".join(parts[start:]), encoding):
            if os.path.lexists(root / name):
                return _check_link(root / name, root.resolve()) or root / name
    return Refused("unreadable", "no such file")


def _spellings(name: str, encoding: str) -> list[str]:
    """Return the name as text and as the raw bytes of the list: files of old archives may be named so."""
    raw = os.fsdecode(name.encode(encoding)) if encoding != "utf-16" else name
    return list(dict.fromkeys((name, raw)))
