"""Bytes from a stranger -> a picture that training can read, or the reason why not."""

from __future__ import annotations

import hashlib
import threading
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO

from PIL import Image, UnidentifiedImageError

from ..data.decode import MAX_PIXELS, UnreadableError, decode_whole
from .refusal import Refused, one_line

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
