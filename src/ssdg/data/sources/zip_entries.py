"""Read entries of .zip archives: by many threads, in bounded memory, whatever sizes the archive declares."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import ZIP_ERRORS, brief
from ...files import MAX_FILE_BYTES, open_file, pread, require_size

MAX_DEPTH = 64  # of nested folders; a name of 60 kB can have 30,000, whose paths take a gigabyte
MAX_ARRAY_RATIO = 100  # unpacked to packed size of larger .npz data; images of real data reach 10
_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, then the lengths of name and extra field
_PIECE = 4096  # packed bytes that zipfile unpacks at once, to at most 80 MB


def is_zip(path: Path) -> bool:
    """Return whether a regular file is a .zip archive."""
    with open_file(path) as file:
        return zipfile.is_zipfile(file)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive to list its entries; raise an `OSError` if that fails."""
    entries = ZipEntries(str(path))
    try:
        yield entries.zip
    finally:
        entries.close()


class ZipEntries:
    """Open .zip file with positioned reads, so that threads share neither lock nor file position."""

    def __init__(self, file: str) -> None:
        self._file = open_file(file)
        try:
            self.zip = zipfile.ZipFile(self._file)
            _check_depth(self.zip)
        except ZIP_ERRORS as error:
            self._file.close()
            raise OSError(str(error) or type(error).__name__) from None
        except BaseException:
            self._file.close()
            raise
        # An entry without a name cannot be a file, and zipfile fails when it is asked whether it is a folder.
        self.zip.filelist[:] = [info for info in self.zip.filelist if info.filename]
        self._num_bytes = os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the archive."""
        self.zip.close()
        self._file.close()

    def size(self, name: str) -> int:
        """Return the larger of the packed and unpacked size of an entry, as the archive declares them."""
        info = self._info(name)
        return max(info.file_size, info.compress_size)

    def read(self, name: str) -> bytes:
        """Return the content of an entry; raise an `OSError` if it is damaged, encrypted or too large."""
        info = self._info(name)
        if info.flag_bits & 0x1:
            raise OSError("encrypted in its archive")
        require_size(max(info.file_size, info.compress_size), max_unpacked(name, info.compress_size))
        if info.compress_size > self._num_bytes:
            raise OSError("damaged archive entry (larger than its archive)")
        try:
            if info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                return self._read_fast(info)
            return self._read_slowly(info)
        except ZIP_ERRORS as error:
            raise OSError(f"damaged archive entry ({error or type(error).__name__})") from None

    def _info(self, name: str) -> zipfile.ZipInfo:
        try:
            return self.zip.getinfo(name)
        except KeyError:
            raise OSError("no longer in its archive") from None

    def _read_slowly(self, info: zipfile.ZipInfo) -> bytes:
        try:
            with self.zip.open(info) as entry:
                return b"".join(iter(lambda: entry.read(_PIECE), b""))
        except OSError as error:
            if error.errno is not None:  # an error of the disk
                raise
            raise EOFError(str(error)) from None  # how bz2 reports damage

    def _read_fast(self, info: zipfile.ZipInfo) -> bytes:
        handle = self._file.fileno()
        head = pread(handle, _LOCAL_HEADER.size, info.header_offset)
        if len(head) < _LOCAL_HEADER.size or not head.startswith(b"PK\x03\x04"):
            raise OSError("damaged archive entry")
        _, name_length, extra_length = _LOCAL_HEADER.unpack(head)
        start = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        data = pread(handle, info.compress_size, start)
        if info.compress_type == zipfile.ZIP_DEFLATED:  # never to more than one byte above the declared size
            data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, info.file_size + 1)
        if zlib.crc32(data) != info.CRC:
            raise OSError("damaged archive entry (checksum differs)")
        return data


def _check_depth(archive: zipfile.ZipFile) -> None:
    for name in archive.namelist():
        if name.count("/") + name.count("\\") > MAX_DEPTH:
            raise zipfile.BadZipFile(f"{brief(name)} is more than {MAX_DEPTH} folders deep")


def max_unpacked(name: str, packed: int) -> int:
    """Return the most bytes that an entry may have: an image is small, but an .npz file holds a whole domain."""
    return (
        max(MAX_FILE_BYTES, MAX_ARRAY_RATIO * packed) if name.lower().endswith((".npz", ".npy")) else MAX_FILE_BYTES
    )
