"""Reads every image of an audit once: is it whole, is it what was recorded, and what does it look like."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data.decode import UnreadableError, decode_whole
from ..data.manifest import Row, is_inside
from ..data.progress import Progress, shown
from ..data.reader import Reader
from ..data.sources import Item
from ..data.threads import in_threads
from .refusal import one_line
from .signatures import SHAPE, Signatures, signature


@dataclass(frozen=True)
class Seen:
    """Images as they were found; `damage` says in words why one cannot be used."""

    signatures: Signatures  # zero where damaged
    hashes: tuple[str, ...]  # sha256 of the file, or of the pixels of a row; '' where damaged
    pixels: NDArray[np.int64]  # width times height
    damage: dict[int, str]


def inspect_rows(root: Path, rows: Sequence[Row], progress: Progress | None = None) -> Seen:
    """The files of a crawl, compared with what its manifest recorded."""
    inside = root.resolve()

    def check(number: int) -> str:
        row = rows[number]
        if not is_inside(row.path) or not (root / row.path).resolve().is_relative_to(inside):
            return "its path leads out of the folder"
        return "" if (root / row.path).is_file() else "the file is missing"

    items = [Item(row.path, str(root / row.path)) for row in rows]
    seen = inspect_items(items, "crawl", progress, check)
    for number, (row, found) in enumerate(zip(rows, seen.hashes, strict=True)):
        if row.sha256 and found and row.sha256 != found:
            seen.damage[number] = "the file is not the one that was recorded: its sha256 is another"
    return seen


def inspect_items(
    items: Sequence[Item],
    title: str,
    progress: Progress | None = None,
    check: Callable[[int], str] = lambda number: "",
) -> Seen:
    """Read and decode all of them, on every core; `check` may say beforehand why one cannot be used."""
    signatures = np.zeros((len(items), *SHAPE), np.float32)
    hashes, pixels = [""] * len(items), np.zeros(len(items), np.int64)
    damage: dict[int, str] = {}

    def work(numbers: range) -> None:
        for number in numbers:
            try:
                if told := check(number):
                    raise UnreadableError(told)
                content = reader.read(items[number])
                image = decode_whole(content) if isinstance(content, bytes) else content
                hashes[number] = hashlib.sha256(_bytes_of(content)).hexdigest()
                signatures[number], pixels[number] = signature(image), image.shape[0] * image.shape[1]
            except UnreadableError as why:
                damage[number] = one_line(str(why))
            except OSError as error:
                damage[number] = one_line(f"cannot be read: {error.strerror or error}")

    with Reader() as reader, shown(title, progress) as tell:
        for done in in_threads(work, len(items)):
            tell(done, len(items))
    return Seen(signatures, tuple(hashes), pixels, damage)


def _bytes_of(content: bytes | NDArray[np.uint8]) -> bytes:
    return content if isinstance(content, bytes) else content.tobytes()
