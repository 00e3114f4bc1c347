"""The files of a crawl that someone has: class folders, or a .zip archive of them. Nothing outside is read."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.sources import IMAGE_SUFFIXES, NO_IMAGES, Item, is_junk, printable
from ..errors import UserError
from .refusal import Refused
from .texts import ENCODINGS

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
