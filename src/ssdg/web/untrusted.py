"""Files from strangers: bytes into a picture or the reason to reject them, and text in any encoding."""

from __future__ import annotations

import codecs
import csv
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from ..data.sources.decode import MAX_PIXELS, UnreadableError, decode_whole
from ..errors import UserError

# fmt: off
REASONS = {
    "bad-url": "not an http or https address that can be asked for",
    "address": "leads to a private, loopback or otherwise not public address",
    "robots": "the robots.txt of its host forbids it",
    "unreachable": "no such host, no connection, or no HTTP answer",
    "busy": "the host answered 429 or 5xx",
    "status": "the host answered anything else than 200",
    "slow": "no whole answer in time",
    "redirects": "too many redirects, or a loop of them",
    "type": "not an image in one of the known formats",
    "too-large": "more bytes or pixels than allowed",
    "too-small": "fewer pixels on a side than asked for",
    "truncated": "the answer ended before its announced end",
    "broken": "cannot be decoded",
    "duplicate": "same content as the file that the detail names",
    "no-class": "its place or line tells no class",
    "not-asked": "of a class that --classes does not name",
    "outside": "its path leaves the given folder or archive",
    "unreadable": "the file is missing or cannot be read",
    "damaged": "its file is missing, cannot be decoded or is not the one that was recorded (audit)",
    "leak": "a copy of an image that it must not be trained with (audit)",
    "near-duplicate": "looks like the kept file that the detail names (audit)",
    "two-labels": "found by several keywords (audit --refuse two-labels)",
    "label-issue": "its web-label looks wrong (audit --refuse label-issues)",
    "outlier": "far from all other images (audit --refuse outliers)",
}
# fmt: on
PASSING = frozenset({"unreachable", "busy", "slow", "truncated"})  # may go better another time
_MOST_LETTERS = 300


class Refused(Exception):
    """This file cannot be kept; `reason` is one of `REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, one_line(detail)


class Spent(Exception):
    """A limit of the whole crawl is reached: nothing is wrong with the file that was being fetched."""


def one_line(text: str, most: int = _MOST_LETTERS) -> str:
    """The text in one line of printable letters: a server may have sent it."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return " ".join(shown.split())[:most]


# What Pillow calls a format -> the suffix. No other format is even tried: some of its readers start programs.
SUFFIXES = {
    "JPEG": ".jpg",
    "PNG": ".png",
    "GIF": ".gif",
    "WEBP": ".webp",
    "BMP": ".bmp",
    "TIFF": ".tif",
    "PPM": ".ppm",
}
_LARGE = 10_000_000  # pixels
_one_large = threading.Lock()  # a picture of the largest size allowed takes a gigabyte while it is decoded


@dataclass(frozen=True)
class Picture:
    """A whole picture, checked."""

    data: bytes
    sha256: str
    width: int
    height: int
    suffix: str


def sha256_of(data: bytes) -> str:
    """The hash that names a file."""
    return hashlib.sha256(data).hexdigest()


def check_picture(data: bytes, min_side: int = 1) -> Picture:
    """Decode it whole; raise `Refused` unless it is a picture of a known format, not too large and not too small."""
    form, width, height = _header(data)
    if width * height > MAX_PIXELS:
        limit = f"the limit of {MAX_PIXELS // 1_000_000} million"
        raise Refused("too-large", f"{width}x{height} pixels, more than {limit}")
    if min(width, height) < min_side:
        raise Refused("too-small", f"{width}x{height} pixels, fewer than {min_side} on a side")
    try:
        with _one_large if width * height > _LARGE else nullcontext():
            decode_whole(data)
    except UnreadableError as why:
        raise Refused("broken", str(why)) from None
    return Picture(data, sha256_of(data), width, height, SUFFIXES[form])


def _header(data: bytes) -> tuple[str, int, int]:
    try:
        with Image.open(BytesIO(data), formats=tuple(SUFFIXES)) as image:
            form = "JPEG" if image.format == "MPO" else str(image.format)  # several JPEG pictures in one file
            return form, image.width, image.height
    except UnidentifiedImageError:
        what = "the file is empty" if not data else f"not one of {', '.join(SUFFIXES)}"
        raise Refused("type", what) from None
    except Image.DecompressionBombError as error:
        raise Refused("too-large", one_line(str(error))) from None
    except Exception as error:  # Pillow's readers raise nearly anything on a broken file
        raise Refused("broken", str(error) or type(error).__name__) from None


PATH, CLASS, URL, LICENCE = "path", "class", "url", "licence"
_NAMES = {"file": PATH, "filename": PATH, "image": PATH, "label": CLASS, "license": LICENCE}  # others' names for them
ENCODINGS = ("utf-8", "gb18030", "latin-1")  # GB 18030 holds GBK; any bytes are Latin-1, so it comes last
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True)
class Table:
    """A CSV file: the columns by our names, each row by column."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, str]]


def decodings(path: Path, encoding: str | None) -> Iterator[tuple[str, str]]:
    """(encoding, text) for every encoding that fits the whole file, the likeliest first; a given one is the only."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"'{path}' cannot be read: {error.strerror}; give a file") from None
    marked = next((name for mark, name in _MARKS if data.startswith(mark)), None)
    fitting = False
    for name in (encoding,) if encoding else (marked,) if marked else ENCODINGS:
        try:
            text = data.decode(name)
        except LookupError:
            raise UserError(f"unknown encoding '{name}'; try utf-8, gbk or latin-1") from None
        except UnicodeError:
            continue
        fitting = True
        yield name, text
    if not fitting:
        raise UserError(
            f"'{path}' is not {encoding or marked}; give the right --encoding, such as utf-8, gbk or latin-1"
        )


def read_table(path: Path, encoding: str | None) -> Table:
    """A CSV file in the likeliest of its encodings."""
    _, text = next(decodings(path, encoding))
    return parse_table(text, path)


def parse_table(text: str, path: Path) -> Table:
    """The rows of a CSV text below its line of names; `path` is for messages."""
    reader = csv.reader(StringIO(text, newline=""))
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        columns = [_NAMES.get(name, name) for name in names]
        rows = []
        for cells in reader:
            if len(cells) > len(columns):
                raise UserError(f"line {reader.line_num} of '{path}' has more cells than its first line names")
            if any(cells):
                rows.append(dict.fromkeys(columns, "") | dict(zip(columns, cells, strict=False)))
    except csv.Error as error:
        raise UserError(f"line {reader.line_num} of '{path}' cannot be read as CSV: {error}") from None
    return Table(columns, rows)
