"""Read-only tree of image files, and a thread-safe reader of its items.

Folders and .zip archives look the same; nothing is unpacked.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...files import open_file, read_bytes
from .npz import WEB_LABELS, Arrays, open_npz
from .zip_entries import MAX_DEPTH, ZipEntries, is_zip, open_zip

# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm",
})
# fmt: on
TOO_DEEP = f"cannot be read: more than {MAX_DEPTH} folders deep"
MAX_VISITS = 16  # of a folder through links: thirty folders with two links to the next have a billion paths
TOO_OFTEN = f"cannot be read: more than {MAX_VISITS} links lead to this folder"
Identity = tuple[int, int]  # device and inode of a folder
_OTHER_SUFFIXES = frozenset({".npz", ".txt"})
NO_IMAGES = ".nomedia"  # a folder that contains a file of this name is skipped
_JUNK = frozenset({"thumbs.db", "desktop.ini", "__macosx", "$recycle.bin", "@eadir"})


@dataclass(frozen=True, slots=True)
class Item:
    """Image: a file, an entry of a .zip archive, or a row of an .npz file."""

    path: str  # in the tree, with '/' between the parts
    file: str  # the file on disk that contains it
    entry: str = ""  # its name inside a .zip archive
    row: int = -1  # its row inside an .npz file
    stamp: str = ""  # changes whenever the content may have changed

    @property
    def parts(self) -> list[str]:
        """Folder names of the path, with the file name last."""
        return self.path.split("/")


@dataclass(frozen=True)
class Tree:
    """Files below a root, by path relative to it; sorted."""

    images: tuple[Item, ...]
    arrays: tuple[Item, ...]  # .npz files
    texts: tuple[Item, ...]  # .txt files
    folders: frozenset[str]  # including those without images
    skipped: tuple[tuple[str, str], ...] = ()  # (path, reason) of links that lead in circles and of too deep folders


def check_root(root: Path) -> None:
    """Raise an error if there is no folder or archive of this name."""
    if not root.exists():
        raise UserError(f"'{root}' does not exist; pass a folder of images or a .zip archive")


def read_tree(root: Path) -> Tree:
    """List a folder or a .zip archive; archives inside a folder are listed as if unpacked in place.

    An archive whose entries share one top folder appears as that folder, any other under the name of the archive.
    """
    check_root(root)
    items: list[Item] = []
    folders: set[str] = set()
    skipped: list[tuple[str, str]] = []
    if root.is_dir():
        items.extend(_walk(root, "", folders, skipped, frozenset(), Counter()))
    elif is_zip(root):
        items.extend(archive_items(root, "", folders, mount_at_stem=False))
    else:
        raise UserError(f"'{root}' is neither a folder nor a .zip archive; pass one of these")
    return _build_tree(items, folders, skipped)


def _build_tree(items: list[Item], folders: set[str], skipped: list[tuple[str, str]]) -> Tree:
    items.sort(key=lambda item: (item.path, item.entry))
    # an archive next to its unpacked folder lists each path twice: the file sorts first and wins
    items = list({item.path: item for item in reversed(items)}.values())[::-1]
    arrays = tuple(item for item in items if suffix_of(item.path) == ".npz")
    texts = tuple(item for item in items if suffix_of(item.path) == ".txt")
    others = {*arrays, *texts}
    images = tuple(item for item in items if item not in others) if others else tuple(items)
    return Tree(images, arrays, texts, frozenset(folders), tuple(sorted(skipped)))


def suffix_of(name: str) -> str:
    """Return the suffix of a name in lower case, with its dot, or an empty string."""
    return name[name.rfind(".") :].lower() if "." in name else ""


def is_junk(name: str) -> bool:
    """Return whether to skip a file or folder of this name."""
    return name.startswith(".") or name.lower() in _JUNK


def is_data_file(name: str) -> bool:
    """Return whether a file of this name is an image, an .npz file or a text file."""
    suffix = suffix_of(name)
    return suffix in IMAGE_SUFFIXES or suffix in _OTHER_SUFFIXES


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a folder is a folder or a link to one; a link to itself is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def loop_reason(path: str) -> str | None:
    """Return the system's message for a link that leads in circles; None for any other path."""
    try:
        os.stat(path)  # noqa: PTH116
    except OSError as error:
        return error.strerror if error.errno == errno.ELOOP else None
    return None


def _walk(
    folder: Path,
    prefix: str,
    folders: set[str],
    skipped: list[tuple[str, str]],
    ancestors: frozenset[Identity],
    visits: Counter[Identity],
) -> Iterator[Item]:
    """Yield the files below `folder`; a link to an ancestor is not followed, so that a loop ends.

    Folders below `MAX_DEPTH` are not listed, because a walk that recurses fails at a thousand, nor is a folder that
    more than `MAX_VISITS` links lead to.
    """
    try:
        stat = folder.stat()
        entries = list(os.scandir(folder))
    except OSError as error:
        raise UserError(f"cannot read the folder '{folder}': {error.strerror}") from None
    identity = (stat.st_dev, stat.st_ino)
    if identity in ancestors or any(entry.name == NO_IMAGES for entry in entries):
        return
    visits[identity] += 1
    if visits[identity] > MAX_VISITS:
        skipped.append((prefix, TOO_OFTEN))
        return
    if prefix:
        folders.add(prefix)
    for entry in entries:
        if is_junk(entry.name):
            continue
        path = f"{prefix}/{printable(entry.name)}" if prefix else printable(entry.name)
        if is_folder(entry):
            if len(ancestors) == MAX_DEPTH:
                skipped.append((path, TOO_DEEP))
                continue
            yield from _walk(Path(entry.path), path, folders, skipped, ancestors | {identity}, visits)
        elif suffix_of(entry.name) == ".zip":
            yield from archive_items(Path(entry.path), prefix, folders, mount_at_stem=True)
        elif is_data_file(entry.name):
            yield Item(path, entry.path, stamp=_stamp(entry))
        elif entry.is_symlink() and (reason := loop_reason(entry.path)):
            skipped.append((path, f"cannot be read: {reason}"))


def printable(name: str) -> str:
    """Replace bytes of a name that are not UTF-8, so that it can be printed and written."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "replace")


def _stamp(entry: os.DirEntry[str] | Path) -> str:
    try:
        stat = entry.stat()
    except OSError:  # a dangling link: reading it reports the reason
        return "missing"
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def archive_items(archive: Path, prefix: str, folders: set[str], *, mount_at_stem: bool) -> Iterator[Item]:
    """Yield the files of an archive below `prefix`, in archive order; add the names of its folders to `folders`."""
    try:
        with open_zip(archive) as opened:
            infos = {info.filename: info for info in opened.infolist()}
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot read the archive '{archive}': {reason}; download or pack it again") from None
    stamp = _stamp(archive)
    names = {name: tuple(filter(None, name.replace("\\", "/").split("/"))) for name in infos}
    names = {n: p for n, p in names.items() if p and ".." not in p and not any(map(is_junk, p))}
    tops = {parts[0] for parts in names.values()}
    is_wrapped = len(tops) == 1 and all(len(p) > 1 or infos[n].is_dir() for n, p in names.items())
    base = tuple(prefix.split("/")) if prefix else ()
    if mount_at_stem and not is_wrapped:
        base = (*base, printable(archive.stem))
    for name, parts in names.items():
        full_parts = (*base, *parts)
        is_folder = infos[name].is_dir()
        folders.update("/".join(full_parts[:n]) for n in range(1, len(full_parts) + is_folder))
        if not is_folder and is_data_file(name):
            info = infos[name]
            yield Item("/".join(full_parts), str(archive), name, stamp=f"{stamp} {info.file_size} {info.CRC}")


_MAX_OPEN = 8  # archives that stay open while not in use


@dataclass
class Reader:
    """Thread-safe reader of items; keeps archives open until it is closed."""

    _archives: dict[str, ZipEntries] = field(default_factory=dict)
    _arrays: dict[tuple[str, str], NDArray[np.uint8]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)  # reentrant: an .npz file may be in an archive

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for archive in self._archives.values():
            archive.close()

    def close_all_but(self, files: Collection[str]) -> None:
        """Close all but a few archives that are not in `files`, to limit open files when reading thousands."""
        with self._lock:
            idle = [file for file in self._archives if file not in files]
            for file in idle[: max(len(self._archives) - _MAX_OPEN, 0)]:
                self._archives.pop(file).close()

    def read(self, item: Item) -> bytes | NDArray[np.uint8]:
        """Return the bytes of an image file, or the pixels (H, W, 3) of a row; raise `OSError` if that fails."""
        if item.row >= 0:
            return np.asarray(self.array(item)[item.row])
        return self.content(item)

    def content(self, item: Item) -> bytes:
        """Return the bytes of the file or archive entry; raise `OSError` if that fails."""
        if not item.entry:
            return read_bytes(item.file)
        return self._archive(item).read(item.entry)

    def entry_bytes(self, item: Item) -> int:
        """Return the larger of the packed and unpacked size of an entry, the most memory that `content` takes."""
        return self._archive(item).size(item.entry)

    def _archive(self, item: Item) -> ZipEntries:
        with self._lock:
            if item.file not in self._archives:
                self._archives[item.file] = ZipEntries(item.file)
            return self._archives[item.file]

    def array(self, item: Item) -> NDArray[np.uint8]:
        """Return the validated `images` of the .npz file that contains `item`: uint8 (N, H, W, 3)."""
        key = (item.file, item.entry)
        with self._lock:
            if key not in self._arrays:
                with self._npz(item) as npz:
                    self._arrays[key] = npz.read("images")
            return self._arrays[key]

    def npz_labels(self, item: Item) -> tuple[dict[str, NDArray[np.int64]], int]:
        """Return `labels` and, if present, `web_labels` of an .npz file, and the number of its unread images."""
        with self._npz(item) as npz:
            shape, dtype = npz.header("images")
            if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3:
                raise UserError(f"'images' in '{item.file}' is {dtype} {shape}; it must be uint8 (N, H, W, 3)")
            names = ["labels", *([WEB_LABELS] if WEB_LABELS in npz else [])]
            return {name: npz.read(name) for name in names}, shape[0]

    def _npz(self, item: Item) -> AbstractContextManager[Arrays]:
        return open_npz(lambda: BytesIO(self.content(item)) if item.entry else open_file(item.file), item.file)
