"""A read-only tree of image files, and a thread-safe reader of its items.

Folders and .zip archives look the same, and nothing is unpacked.
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


WEB_LABELS = "web_labels"  # the array of an .npz file with the keyword that each image was found by
_OPEN = 8  # archives that may stay open without a need
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, then the lengths of name and extra field


@dataclass
class Reader:
    """Reads items, from several threads at once; holds archives open until closed."""

    _archives: dict[str, _Archive] = field(default_factory=dict)
    _arrays: dict[tuple[str, str], NDArray[np.uint8]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)  # an .npz file may lie in an archive

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for archive in self._archives.values():
            archive.close()

    def close_all_but(self, files: Collection[str]) -> None:
        """Close archives that are not among `files`, but for a few: thousands that are read one by one stay few."""
        with self._lock:
            idle = [file for file in self._archives if file not in files]
            for file in idle[: max(len(self._archives) - _OPEN, 0)]:
                self._archives.pop(file).close()

    def read(self, item: Item) -> bytes | NDArray[np.uint8]:
        """The bytes of an image file, or the pixels (H, W, 3) of a row; `OSError` when it cannot be read."""
        if item.row >= 0:
            return np.asarray(self.array(item)[item.row])
        return self.content(item)

    def content(self, item: Item) -> bytes:
        """The bytes of the file or archive entry itself."""
        if not item.entry:
            with open(item.file, "rb", buffering=0) as file:  # noqa: PTH123 - a Path per image costs time
                return file.read()
        return self._archive(item).read(item.entry)

    def entry_bytes(self, item: Item) -> int:
        """What an archive claims of an entry, packed or unpacked; `content` takes no more memory than that."""
        return self._archive(item).size(item.entry)

    def _archive(self, item: Item) -> _Archive:
        with self._lock:
            if item.file not in self._archives:
                self._archives[item.file] = _Archive(item.file)
            return self._archives[item.file]

    def array(self, item: Item) -> NDArray[np.uint8]:
        """The checked `images` of the .npz file that holds `item`: uint8 (N, H, W, 3)."""
        key = (item.file, item.entry)
        with self._lock:
            if key not in self._arrays:
                with self._npz(item) as npz:
                    self._arrays[key] = npz["images"]
            return self._arrays[key]

    def npz_labels(self, item: Item) -> tuple[dict[str, NDArray[np.int64]], int]:
        """`labels` of an .npz file and `web_labels` where it has them; how many images, none of them read."""
        with self._npz(item) as npz:
            with npz.zip.open("images.npy") as file:
                shape, dtype = _npy_header(file)
            if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3:
                raise UserError(f"'images' in '{item.file}' is {dtype} {shape}; it must be uint8 (N, H, W, 3)")
            names = ["labels", *([WEB_LABELS] if WEB_LABELS in npz else [])]
            return {name: npz[name] for name in names}, shape[0]

    @contextmanager
    def _npz(self, item: Item) -> Iterator[Any]:
        """The opened .npz file; one that would need unpickling is refused."""
        try:
            source = BytesIO(self.content(item)) if item.entry else item.file
            with np.load(source, allow_pickle=False) as npz:
                yield npz
        except KeyError:
            raise UserError(f"'{item.file}' must hold the two arrays 'images' and 'labels'") from None
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
    """Entries of one .zip file by positioned reads: no lock and no seek between threads."""

    def __init__(self, file: str) -> None:
        self._zip = zipfile.ZipFile(file)
        self._handle = os.open(file, os.O_RDONLY)

    def close(self) -> None:
        self._zip.close()
        os.close(self._handle)

    def size(self, name: str) -> int:
        info = self._zip.getinfo(name)
        return max(info.file_size, info.compress_size)

    def read(self, name: str) -> bytes:
        info = self._zip.getinfo(name)
        plain = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if info.flag_bits & 0x1:
            raise OSError("encrypted in its archive")
        if not plain:
            return self._zip.read(name)
        head = os.pread(self._handle, _LOCAL_HEADER.size, info.header_offset)
        if len(head) < _LOCAL_HEADER.size or not head.startswith(b"PK\x03\x04"):
            raise OSError("damaged archive entry")
        _, name_length, extra_length = _LOCAL_HEADER.unpack(head)
        start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        data = os.pread(self._handle, info.compress_size, start)
        if info.compress_type == zipfile.ZIP_DEFLATED:
            data = _inflate(data, info.file_size)
        if zlib.crc32(data) != info.CRC:
            raise OSError("damaged archive entry (checksum differs)")
        return data


def _inflate(data: bytes, expected: int) -> bytes:
    """Undo deflate, never making more than the archive promised."""
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, expected + 1)
    except zlib.error as error:
        raise OSError(f"damaged archive entry ({error})") from None
