"""A read-only tree of image files: folders and .zip archives look the same, and nothing is unpacked."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError

# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm",
})
# fmt: on
_OTHER_SUFFIXES = frozenset({".npz", ".txt"})
NO_IMAGES = ".nomedia"  # a folder that holds a file of this name is passed over
_JUNK = frozenset({"thumbs.db", "desktop.ini", "__macosx", "$recycle.bin", "@eadir"})


@dataclass(frozen=True, slots=True)
class Item:
    """One image: a file, an entry of a .zip archive, or a row of an .npz file."""

    path: str  # in the tree, '/' between the parts
    file: str  # the file on disk that holds it
    entry: str = ""  # its name inside a .zip archive
    row: int = -1  # its row inside an .npz file
    stamp: str = ""  # changes whenever the content may have changed

    @property
    def parts(self) -> list[str]:
        """The path's folder names, and the file name last."""
        return self.path.split("/")


@dataclass(frozen=True)
class Tree:
    """What lies under a root, by path from it; sorted."""

    images: tuple[Item, ...]
    arrays: tuple[Item, ...]  # .npz files
    texts: tuple[Item, ...]  # .txt files
    folders: frozenset[str]  # also those without any image


def read_tree(root: Path) -> Tree:
    """List a folder or a .zip archive; archives inside a folder are listed as if unpacked in place.

    An archive whose entries share one top folder appears as that folder, any other under its own name.
    """
    if not root.exists():
        raise UserError(f"'{root}' does not exist; give a folder of images or a .zip archive")
    found: list[Item] = []
    folders: set[str] = set()
    if root.is_dir():
        found.extend(_walk(root, "", folders, ancestors=frozenset()))
    elif zipfile.is_zipfile(root):
        found.extend(archive_items(root, "", folders, mount_at_stem=False))
    else:
        raise UserError(f"'{root}' is neither a folder nor a .zip archive; give one of these")
    return _sorted_tree(found, folders)


def _sorted_tree(found: list[Item], folders: set[str]) -> Tree:
    found.sort(key=lambda item: (item.path, item.entry))
    # an archive left beside its unpacked folder gives each path twice: the file comes first and counts
    found = list({item.path: item for item in reversed(found)}.values())[::-1]
    arrays = tuple(item for item in found if suffix_of(item.path) == ".npz")
    texts = tuple(item for item in found if suffix_of(item.path) == ".txt")
    others = {*arrays, *texts}
    images = tuple(item for item in found if item not in others) if others else tuple(found)
    return Tree(images, arrays, texts, frozenset(folders))


def suffix_of(name: str) -> str:
    """The ending of a name in small letters, with its dot, or nothing."""
    return name[name.rfind(".") :].lower() if "." in name else ""


def is_junk(name: str) -> bool:
    """Whether a file or folder of this name is passed over."""
    return name.startswith(".") or name.lower() in _JUNK


def is_wanted(name: str) -> bool:
    """Whether a file of this name is an image, an .npz file or a text."""
    suffix = suffix_of(name)
    return suffix in IMAGE_SUFFIXES or suffix in _OTHER_SUFFIXES


def _walk(folder: Path, at: str, folders: set[str], ancestors: frozenset[tuple[int, int]]) -> Iterator[Item]:
    """The files below `folder`; a link to one of its own ancestors is not followed, so a loop ends."""
    try:
        here = folder.stat()
        entries = list(os.scandir(folder))
    except OSError as error:
        raise UserError(f"cannot read the folder '{folder}': {error.strerror}") from None
    identity = (here.st_dev, here.st_ino)
    if identity in ancestors or any(entry.name == NO_IMAGES for entry in entries):
        return
    if at:
        folders.add(at)
    for entry in entries:
        if is_junk(entry.name):
            continue
        path = f"{at}/{printable(entry.name)}" if at else printable(entry.name)
        if entry.is_dir():
            yield from _walk(Path(entry.path), path, folders, ancestors | {identity})
        elif suffix_of(entry.name) == ".zip":
            yield from archive_items(Path(entry.path), at, folders, mount_at_stem=True)
        elif is_wanted(entry.name):
            yield Item(path, entry.path, stamp=_stamp(entry))


def printable(name: str) -> str:
    """The name with bytes that are not UTF-8 replaced, so that it can be shown and written."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "replace")


def _stamp(entry: os.DirEntry[str] | Path) -> str:
    try:
        stat = entry.stat()
    except OSError:  # a dangling link: reading it will tell the reason
        return "missing"
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def archive_items(archive: Path, at: str, folders: set[str], *, mount_at_stem: bool) -> Iterator[Item]:
    """The files of an archive below `at`, in the order of its own table; names of its folders go into `folders`."""
    try:
        with zipfile.ZipFile(archive) as opened:
            infos = {info.filename: info for info in opened.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read the archive '{archive}': {error}; download or pack it again") from None
    stamp = _stamp(archive)
    names = {name: tuple(filter(None, name.replace("\\", "/").split("/"))) for name in infos}
    names = {n: p for n, p in names.items() if p and ".." not in p and not any(map(is_junk, p))}
    tops = {parts[0] for parts in names.values()}
    wrapped = len(tops) == 1 and all(len(p) > 1 or infos[n].is_dir() for n, p in names.items())
    prefix = tuple(at.split("/")) if at else ()
    if mount_at_stem and not wrapped:
        prefix = (*prefix, printable(archive.stem))
    for name, parts in names.items():
        whole = (*prefix, *parts)
        is_folder = infos[name].is_dir()
        folders.update("/".join(whole[:n]) for n in range(1, len(whole) + is_folder))
        if not is_folder and is_wanted(name):
            info = infos[name]
            yield Item("/".join(whole), str(archive), name, stamp=f"{stamp} {info.file_size} {info.CRC}")
