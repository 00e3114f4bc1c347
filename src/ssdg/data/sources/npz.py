"""Read .npz files of images and labels, and unpack them into class folders, the layout of custom data."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...errors import ZIP_ERRORS, UserError
from ...files import (
    atomic_folder,
    locked,
    open_file,
    parse_json,
    read_bytes,
    remove_leftovers,
    require_size,
    sha256_of,
    write_json,
)
from .zip_entries import max_unpacked

WEB_LABELS = "web_labels"  # array of an .npz file with the keyword that found each image
RECORD = "unpacked.json"  # in the output folder


class Arrays:
    """Arrays of an open .npz file, each compared with the size of its data before memory is allocated for it."""

    def __init__(self, npz: Any, num_bytes: int) -> None:
        self._npz, self._num_bytes = npz, num_bytes

    def __contains__(self, name: str) -> bool:
        return name in self._npz

    def header(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and type of an array; raise `ValueError` or `OSError` if its data cannot have them."""
        info = self._npz.zip.getinfo(f"{name}.npy")
        with self._npz.zip.open(info) as file:
            shape, dtype = _npy_header(file)
            num_data_bytes = info.file_size - file.tell()
        is_plain = not dtype.hasobject  # `read` rejects pickled objects
        is_consistent = math.prod(shape) * dtype.itemsize == num_data_bytes and info.compress_size <= self._num_bytes
        if is_plain and not is_consistent:
            raise ValueError(f"'{name}' claims the shape {shape}, which does not match its data")
        require_size(info.file_size, max_unpacked(info.filename, info.compress_size))
        return shape, dtype

    def read(self, name: str) -> NDArray[Any]:
        """Return an array."""
        self.header(name)
        array: NDArray[Any] = self._npz[name]
        return array


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


@contextmanager
def open_arrays(source: IO[bytes]) -> Iterator[Arrays]:
    """Open an .npz file of plain arrays; damage and impossible sizes are an `OSError` or one of `ZIP_ERRORS`.

    `numpy.load` would first read all of a file that holds a single array, whatever size it claims.
    """
    num_bytes = source.seek(0, os.SEEK_END)
    if not zipfile.is_zipfile(source):
        raise ValueError("it is not an archive of arrays; write it with numpy.savez")
    source.seek(0)
    with np.load(source, allow_pickle=False) as npz:
        yield Arrays(npz, num_bytes)


@contextmanager
def open_npz(open_source: Callable[[], IO[bytes]], name: str) -> Iterator[Arrays]:
    """Open an .npz file of plain arrays; report damage and pickled content in one sentence about the file `name`."""
    try:
        with open_source() as source, open_arrays(source) as arrays:
            yield arrays
    except KeyError:
        raise UserError(f"'{name}' must contain the two arrays 'images' and 'labels'") from None
    except UserError:
        raise
    except (OSError, *ZIP_ERRORS) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"cannot read '{name}' as an .npz file of plain arrays: {reason}") from None


def unpack_arrays(root: Path, out_dir: Path, per_class: int | None = None) -> dict[str, int]:
    """Write DOMAIN.npz of `root` as `out_dir`/DOMAIN/CLASS/N.png, the first `per_class` of each; return the counts.

    A crawl is sorted by its `web_labels`. The folder appears complete or not at all; if it already has these images,
    nothing is written.
    """
    files = sorted(root.glob("*.npz"))
    if not files:
        raise UserError(
            f"'{root}' contains no .npz file to unpack; pass digits, web-digits, or a folder of .npz files"
        )
    job = {"sha256": {file.stem: sha256_of(file) for file in files}, "per_class": per_class}
    with locked(out_dir.with_name(f".{out_dir.name}.lock")):
        remove_leftovers(out_dir)
        if out_dir.exists():
            return _read_counts(out_dir, job)
        with atomic_folder(out_dir) as temporary:
            counts = {file.stem: _unpack_domain(file, temporary / file.stem, per_class) for file in files}
            write_json(temporary / RECORD, job | {"images": counts})
    return counts


def _read_counts(out_dir: Path, job: dict[str, Any]) -> dict[str, int]:
    """Return the counts of a folder that the same job wrote; reject any other."""
    try:
        record = parse_json(read_bytes(out_dir / RECORD))
        counts = {name: sum(1 for _ in (out_dir / name).rglob("*.png")) for name in record["images"]}
        if record == job | {"images": counts}:
            return counts
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(f"'{out_dir}' already exists; choose another folder, or delete it")


def _unpack_domain(file: Path, folder: Path, per_class: int | None) -> int:
    with open_npz(lambda: open_file(file), str(file)) as arrays:
        labels: NDArray[np.int64] = arrays.read(WEB_LABELS if WEB_LABELS in arrays else "labels")
        images: NDArray[np.uint8] = arrays.read("images")
    count = 0
    for label in np.unique(labels[labels >= 0]):
        (folder / str(label)).mkdir(parents=True)
        for row in np.flatnonzero(labels == label)[:per_class]:
            Image.fromarray(images[row]).save(folder / str(label) / f"{row:05}.png")
            count += 1
    return count
