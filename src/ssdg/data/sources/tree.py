"""Read-only tree of image files, and a thread-safe reader of its items.

Folders and .zip archives look the same; nothing is unpacked.
"""

from __future__ import annotations

import os
import struct
import threading
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UserError
from ...files import pread

# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm",
})
# fmt: on
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


def read_tree(root: Path) -> Tree:
    """List a folder or a .zip archive; archives inside a folder are listed as if unpacked in place.

    An archive whose entries share one top folder appears as that folder, any other under the name of the archive.
    """
    if not root.exists():
        raise UserError(f"'{root}' does not exist; pass a folder of images or a .zip archive")
    items: list[Item] = []
    folders: set[str] = set()
    if root.is_dir():
        items.extend(_walk(root, "", folders, ancestors=frozenset()))
    elif zipfile.is_zipfile(root):
        items.extend(archive_items(root, "", folders, mount_at_stem=False))
    else:
        raise UserError(f"'{root}' is neither a folder nor a .zip archive; pass one of these")
    return _build_tree(items, folders)


def _build_tree(items: list[Item], folders: set[str]) -> Tree:
    items.sort(key=lambda item: (item.path, item.entry))
    # an archive next to its unpacked folder lists each path twice: the file sorts first and wins
    items = list({item.path: item for item in reversed(items)}.values())[::-1]
    arrays = tuple(item for item in items if suffix_of(item.path) == ".npz")
    texts = tuple(item for item in items if suffix_of(item.path) == ".txt")
    others = {*arrays, *texts}
    images = tuple(item for item in items if item not in others) if others else tuple(items)
    return Tree(images, arrays, texts, frozenset(folders))


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


def _walk(folder: Path, prefix: str, folders: set[str], ancestors: frozenset[tuple[int, int]]) -> Iterator[Item]:
    """Yield the files below `folder`; a link to an ancestor is not followed, so that a loop ends."""
    try:
        stat = folder.stat()
        entries = list(os.scandir(folder))
    except OSError as error:
        raise UserError(f"cannot read the folder '{folder}': {error.strerror}") from None
    identity = (stat.st_dev, stat.st_ino)
    if identity in ancestors or any(entry.name == NO_IMAGES for entry in entries):
        return
    if prefix:
        folders.add(prefix)
    for entry in entries:
        if is_junk(entry.name):
            continue
        path = f"{prefix}/{printable(entry.name)}" if prefix else printable(entry.name)
        if entry.is_dir():
            yield from _walk(Path(entry.path), path, folders, ancestors | {identity})
        elif suffix_of(entry.name) == ".zip":
            yield from archive_items(Path(entry.path), prefix, folders, mount_at_stem=True)
        elif is_data_file(entry.name):
            yield Item(path, entry.path, stamp=_stamp(entry))


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
        with zipfile.ZipFile(archive) as opened:
            infos = {info.filename: info for info in opened.infolist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read the archive '{archive}': {error}; download or pack it again") from None
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


WEB_LABELS = "web_labels"  # array of an .npz file with the keyword that found each image
_MAX_OPEN = 8  # archives that stay open while not in use
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, then the lengths of name and extra field


@dataclass
class Reader:
    """Thread-safe reader of items; keeps archives open until it is closed."""

    _archives: dict[str, _Archive] = field(default_factory=dict)
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
        """Return the bytes of the file or archive entry."""
        if not item.entry:
            with open(item.file, "rb", buffering=0) as file:  # noqa: PTH123 - a Path per image costs time
                return file.read()
        return self._archive(item).read(item.entry)

    def entry_bytes(self, item: Item) -> int:
        """Return the larger of the packed and unpacked size of an entry, the most memory that `content` takes."""
        return self._archive(item).size(item.entry)

    def _archive(self, item: Item) -> _Archive:
        with self._lock:
            if item.file not in self._archives:
                self._archives[item.file] = _Archive(item.file)
            return self._archives[item.file]

    def array(self, item: Item) -> NDArray[np.uint8]:
        """Return the validated `images` of the .npz file that contains `item`: uint8 (N, H, W, 3)."""
        key = (item.file, item.entry)
        with self._lock:
            if key not in self._arrays:
                with self._npz(item) as npz:
                    self._arrays[key] = npz["images"]
            return self._arrays[key]

    def npz_labels(self, item: Item) -> tuple[dict[str, NDArray[np.int64]], int]:
        """Return `labels` and, if present, `web_labels` of an .npz file, and the number of its unread images."""
        with self._npz(item) as npz:
            with npz.zip.open("images.npy") as file:
                shape, dtype = _npy_header(file)
            if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3:
                raise UserError(f"'images' in '{item.file}' is {dtype} {shape}; it must be uint8 (N, H, W, 3)")
            names = ["labels", *([WEB_LABELS] if WEB_LABELS in npz else [])]
            return {name: npz[name] for name in names}, shape[0]

    @contextmanager
    def _npz(self, item: Item) -> Iterator[Any]:
        """Open an .npz file; reject one that needs unpickling."""
        try:
            source = BytesIO(self.content(item)) if item.entry else item.file
            with np.load(source, allow_pickle=False) as npz:
                yield npz
        except KeyError:
            raise UserError(f"'{item.file}' must contain the two arrays 'images' and 'labels'") from None
        except UserError:
            raise
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UserError(f"cannot read '{item.file}' as an .npz file of plain arrays: {error}") from None


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


class _Archive:
    """Open .zip file with positioned reads, so that threads share neither lock nor file position."""

    def __init__(self, file: str) -> None:
        self._zip = zipfile.ZipFile(file)
        self._handle = os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def close(self) -> None:
        self._zip.close()
        os.close(self._handle)

    def size(self, name: str) -> int:
        info = self._zip.getinfo(name)
        return max(info.file_size, info.compress_size)

    def read(self, name: str) -> bytes:
        info = self._zip.getinfo(name)
        is_supported = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if info.flag_bits & 0x1:
            raise OSError("encrypted in its archive")
        if not is_supported:
            return self._zip.read(name)
        head = pread(self._handle, _LOCAL_HEADER.size, info.header_offset)
        if len(head) < _LOCAL_HEADER.size or not head.startswith(b"PK\x03\x04"):
            raise OSError("damaged archive entry")
        _, name_length, extra_length = _LOCAL_HEADER.unpack(head)
        start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        data = pread(self._handle, info.compress_size, start)
        if info.compress_type == zipfile.ZIP_DEFLATED:
            data = _inflate(data, info.file_size)
        if zlib.crc32(data) != info.CRC:
            raise OSError("damaged archive entry (checksum differs)")
        return data


def _inflate(data: bytes, expected: int) -> bytes:
    """Decompress deflate data, but never to more than one byte above the size that the archive declares."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, expected + 1)
    except zlib.error as error:
        raise OSError(f"damaged archive entry ({error})") from None
