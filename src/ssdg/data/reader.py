"""Reads the items of a tree, from several threads at once."""

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
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .sources import Item

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
