"""Untrusted input: check image bytes, name the reason to refuse them, and decode text in any encoding."""

from __future__ import annotations

import codecs
import csv
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from ..data.sources.decode import FORMATS, MAX_PIXELS, UnreadableError, decode_whole, open_image
from ..errors import UserError, one_line
from ..files import read_bytes
from ..safe_csv import restore_cell

# fmt: off
REASONS = {
    "bad-url": "not a valid http or https URL",
    "address": "resolves to a private, loopback or otherwise non-public address",
    "robots": "disallowed by the robots.txt of its host",
    "unreachable": "unknown host, no connection, or no HTTP response",
    "busy": "the host returned 429 or 5xx",
    "status": "the host returned a status other than 200",
    "slow": "no complete response in time",
    "redirects": "too many redirects, or a redirect loop",
    "type": "not an image in a supported format",
    "too-large": "more bytes or pixels than allowed",
    "too-small": "a side has fewer pixels than the minimum",
    "truncated": "the response ended before its announced length",
    "broken": "cannot be decoded",
    "duplicate": "same content as the file named in the detail column",
    "no-class": "neither its folder nor its line names a class",
    "not-asked": "its class is not listed in --classes",
    "outside": "its path leaves the source folder or archive",
    "unreadable": "the file is missing or cannot be read",
    "damaged": "its file is missing, cannot be decoded or differs from the recorded one (audit)",
    "leak": "a copy of an image that must not be trained on (audit)",
    "near-duplicate": "looks like the kept file named in the detail column (audit)",
    "two-labels": "found for several keywords (audit --refuse two-labels)",
    "label-issue": "its web-label looks wrong (audit --refuse label-issues)",
    "outlier": "far from all other images (audit --refuse outliers)",
}
# fmt: on
TRANSIENT_REASONS = frozenset({"unreachable", "busy", "slow", "truncated"})  # a later attempt may succeed
MAX_URL_LENGTH = 4000


class Refused(Exception):
    """Raised for a file that cannot be kept; `reason` is a key of `REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, one_line(detail)


class LimitReached(Exception):
    """Raised when the whole crawl hits a limit; the file being fetched is not at fault."""


_LARGE_PIXELS = 10_000_000
_large_image_lock = threading.Lock()  # decoding an image of the maximum size takes a gigabyte


@dataclass(frozen=True)
class Picture:
    """A complete image that passed all checks."""

    data: bytes
    sha256: str
    width: int
    height: int
    suffix: str


def sha256_of(data: bytes) -> str:
    """Return the hash that a file is named after."""
    return hashlib.sha256(data).hexdigest()


def check_picture(data: bytes, min_side: int = 1) -> Picture:
    """Decode an image completely; raise `Refused` if its format or size is not allowed or it is broken."""
    form, width, height = _header(data)
    if width * height > MAX_PIXELS:
        limit = f"{MAX_PIXELS // 1_000_000} million"
        raise Refused("too-large", f"{width}x{height} pixels, more than the limit of {limit}")
    if min(width, height) < min_side:
        raise Refused("too-small", f"{width}x{height} pixels, fewer than {min_side} on a side")
    try:
        with _large_image_lock if width * height > _LARGE_PIXELS else nullcontext():
            decode_whole(data)
    except UnreadableError as error:
        raise Refused("broken", str(error)) from None
    return Picture(data, sha256_of(data), width, height, FORMATS[form])


def _header(data: bytes) -> tuple[str, int, int]:
    try:
        with open_image(data) as image:
            form = "JPEG" if image.format == "MPO" else str(image.format)  # several JPEG images in one file
            return form, image.width, image.height
    except UnidentifiedImageError:
        detail = "the file is empty" if not data else f"not one of {', '.join(FORMATS)}"
        raise Refused("type", detail) from None
    except Image.DecompressionBombError as error:
        raise Refused("too-large", one_line(str(error))) from None
    except Exception as error:  # Pillow's readers raise nearly anything on a broken file
        raise Refused("broken", str(error) or type(error).__name__) from None


PATH, CLASS, URL, LICENCE = "path", "class", "url", "licence"
_COLUMN_ALIASES = {"file": PATH, "filename": PATH, "image": PATH, "label": CLASS, "license": LICENCE}
ENCODINGS = ("utf-8", "gb18030", "latin-1")  # GB 18030 includes GBK; any bytes decode as Latin-1, so it comes last
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True)
class Table:
    """A CSV file with canonical column names; each row maps columns to cells."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, str]]


def try_decodings(path: Path, encoding: str | None) -> Iterator[tuple[str, str]]:
    """Yield (encoding, text) for every encoding that decodes the whole file, most likely first.

    An explicit `encoding` is the only one tried.
    """
    try:
        data = read_bytes(path)
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}; pass a readable file") from None
    marked_encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), None)
    is_decoded = False
    for name in (encoding,) if encoding else (marked_encoding,) if marked_encoding else ENCODINGS:
        try:
            text = data.decode(name)
        except LookupError:
            raise UserError(f"unknown encoding '{name}'; try utf-8, gbk or latin-1") from None
        except UnicodeError:
            continue
        is_decoded = True
        yield name, text
    if not is_decoded:
        raise UserError(
            f"'{path}' is not {encoding or marked_encoding}; set --encoding, for example to utf-8, gbk or latin-1"
        )


def read_table(path: Path, encoding: str | None) -> Table:
    """Read a CSV file in its most likely encoding."""
    _, text = next(try_decodings(path, encoding))
    return parse_table(text, path)


def parse_table(text: str, path: Path) -> Table:
    """Parse CSV text with a header line; `path` is used in error messages."""
    reader = csv.reader(StringIO(text, newline=""))
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        columns = [_COLUMN_ALIASES.get(name, name) for name in names]
        rows = []
        for cells in reader:
            if len(cells) > len(columns):
                raise UserError(f"line {reader.line_num} of '{path}' has more cells than the header")
            if any(cells):
                texts = map(restore_cell, cells)  # the file may be a manifest of ours
                rows.append(dict.fromkeys(columns, "") | dict(zip(columns, texts, strict=False)))
    except csv.Error as error:
        raise UserError(f"line {reader.line_num} of '{path}' cannot be read as CSV: {error}") from None
    return Table(columns, rows)
