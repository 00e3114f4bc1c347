"""Bytes of an image file -> uint8 (size, size, 3), or one line that says why not."""

from __future__ import annotations

import warnings
from io import BytesIO

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

DECODE_VERSION = 1  # raise it when any pixel changes: caches are keyed by it
MAX_PIXELS = 100_000_000
# Pillow warns at 89 million pixels; `MAX_PIXELS` is checked here before anything is decoded.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "RGBa", "La"})
_EXIF_WINDOW = 1 << 17  # an EXIF block is at most 64 KB and stands near the start


class UnreadableError(ValueError):
    """This file cannot be used as an image; the message is one line."""


def decode(data: bytes, size: int) -> NDArray[np.uint8]:
    """Decode and squash to (size, size, 3); raise `UnreadableError` with a reason if that cannot be done."""
    return resize(decode_whole(data), size)


def decode_whole(data: bytes) -> NDArray[np.uint8]:
    """Decode at the image's own size to (H, W, 3); raise `UnreadableError` if that cannot be done.

    Orientation stored in the file is applied, transparency is put on white, 16-bit values are scaled to 8,
    and of an animation the first frame is taken.
    """
    if not data:
        raise UnreadableError("the file is empty")
    pixels = _plain_jpeg(data)
    if pixels is not None:
        return pixels
    try:
        return _with_pillow(data)
    except UnreadableError:
        raise
    except UnidentifiedImageError:
        raise UnreadableError("not an image in a known format") from None
    except Image.DecompressionBombError:
        raise UnreadableError(_too_large()) from None
    except Exception as error:  # Pillow's plugins raise nearly anything on a broken file
        raise UnreadableError(f"cannot be decoded: {_one_line(error)}") from None


def pixels_of(image: Image.Image) -> NDArray[np.uint8]:
    """An opened image as RGB (H, W, 3), treated as if it came from its file; `UnreadableError` if that cannot be."""
    try:
        return np.asarray(_to_rgb(ImageOps.exif_transpose(image)))
    except UnreadableError:
        raise
    except Exception as error:  # of lazily opened files too: Pillow's plugins raise nearly anything
        raise UnreadableError(f"cannot be decoded: {_one_line(error)}") from None


def resize(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Squash (H, W, 3) to (size, size, 3), bilinear with antialiasing; as it is when it has that size."""
    if pixels.shape[:2] == (size, size):
        return pixels
    image = Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR)
    return np.asarray(image)


def image_size(data: bytes) -> tuple[int, int]:
    """Width and height from the header, before any orientation; raise `UnreadableError` if there is none."""
    try:
        with Image.open(BytesIO(data)) as image:
            return image.size
    except Exception as error:
        raise UnreadableError(_one_line(error)) from None


def _too_large(width: int = 0, height: int = 0) -> str:
    size = f"{width}x{height} pixels" if width else "too many pixels"
    return f"{size}, more than the limit of {MAX_PIXELS // 1_000_000} million"


def _one_line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def _plain_jpeg(data: bytes) -> NDArray[np.uint8] | None:
    """The fast way, for grey and colour JPEG that need no turning; None for all else."""
    if not data.startswith(b"\xff\xd8") or b"Exif\0\0" in data[:_EXIF_WINDOW]:
        return None
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(data)
        if height * width > MAX_PIXELS:
            raise UnreadableError(_too_large(width, height))
        if colorspace in ("CMYK", "YCCK"):
            return None
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "RGB")
    except UnreadableError:
        raise
    except ValueError:  # Pillow is more tolerant, and says better what is wrong
        return None
    return pixels


def _with_pillow(data: bytes) -> NDArray[np.uint8]:
    with Image.open(BytesIO(data)) as image:
        width, height = image.size
        if width * height > MAX_PIXELS:
            raise UnreadableError(_too_large(width, height))
        return np.asarray(_to_rgb(ImageOps.exif_transpose(image)))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return Image.fromarray(_grey16(image)).convert("RGB")
    if image.mode == "F":
        raise UnreadableError("floating-point pixels have no defined range; save it as 8 or 16 bit")
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        colour = image.convert("RGBA")
        paper = Image.new("RGBA", colour.size, "white")
        return Image.alpha_composite(paper, colour).convert("RGB")
    return image.convert("RGB")


def _grey16(image: Image.Image) -> NDArray[np.uint8]:
    """0..65535 -> 0..255, rounded."""
    values = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
    return ((values + 128) // 257).astype(np.uint8)
