"""Decode image files to uint8 (size, size, 3), or report in one line why that fails."""

from __future__ import annotations

import warnings
from io import BytesIO
from types import ModuleType
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

try:
    import simplejpeg
except ImportError:  # no wheel for this platform: Pillow decodes to the same pixels, more slowly
    simplejpeg = None

# The documented formats and their suffixes. Pillow tries no other: its reader of PostScript starts Ghostscript.
FORMATS = {
    "JPEG": ".jpg",
    "PNG": ".png",
    "GIF": ".gif",
    "WEBP": ".webp",
    "BMP": ".bmp",
    "TIFF": ".tif",
    "PPM": ".ppm",
}
ResizeMode = Literal["squash", "crop", "pad"]
DECODE_VERSION = 1  # increment it when any pixel changes: it is part of cache keys
MAX_PIXELS = 100_000_000
# Pillow warns at 89 million pixels; this module checks `MAX_PIXELS` before decoding.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
_ALPHA_MODES = frozenset({"RGBA", "LA", "PA", "RGBa", "La"})
_EXIF_WINDOW = 1 << 17  # an EXIF block is at most 64 KB and near the start


class UnreadableError(ValueError):
    """File that cannot be used as an image; the message is one line."""


def decode(data: bytes, size: int, mode: ResizeMode = "squash") -> NDArray[np.uint8]:
    """Decode and resize to (size, size, 3); raise `UnreadableError` on failure."""
    return resize(decode_whole(data), size, mode)


def resize_content(content: bytes | NDArray[np.uint8], size: int, mode: ResizeMode) -> NDArray[np.uint8]:
    """Return the bytes of an image file, or pixels (H, W, 3), at (size, size, 3)."""
    return decode(content, size, mode) if isinstance(content, bytes) else resize(content, size, mode)


def decode_whole(data: bytes) -> NDArray[np.uint8]:
    """Decode at the original size to (H, W, 3); raise `UnreadableError` on failure.

    Apply the stored orientation, put transparency on white, scale 16-bit values to 8 bits, and use the first frame of
    an animation.
    """
    if not data:
        raise UnreadableError("the file is empty")
    pixels = _decode_plain_jpeg(data)
    if pixels is not None:
        return pixels
    try:
        return _decode_with_pillow(data)
    except UnreadableError:
        raise
    except UnidentifiedImageError:
        raise UnreadableError("not an image in a known format") from None
    except Image.DecompressionBombError:
        raise UnreadableError(_too_large_message()) from None
    except Exception as error:  # Pillow's plugins raise almost any exception on a broken file
        raise UnreadableError(f"cannot be decoded: {_one_line(error)}") from None


def image_to_array(image: Image.Image) -> NDArray[np.uint8]:
    """Convert a PIL image to RGB (H, W, 3) exactly as `decode_whole` does; raise `UnreadableError` on failure."""
    try:
        return np.asarray(_to_rgb(ImageOps.exif_transpose(image)))
    except UnreadableError:
        raise
    except Exception as error:  # also of lazily opened files: Pillow's plugins raise almost any exception
        raise UnreadableError(f"cannot be decoded: {_one_line(error)}") from None


def resize(pixels: NDArray[np.uint8], size: int, mode: ResizeMode = "squash") -> NDArray[np.uint8]:
    """Resize (H, W, 3) to (size, size, 3), bilinear with antialiasing; return it unchanged at that size.

    `squash` changes the aspect ratio. `crop` resizes the central square: the shorter side becomes `size`, and the
    longer one is cropped. `pad` resizes the longer side and fills the rest with the image's mean color, which changes
    the statistics of the image less than black does.
    """
    height, width = pixels.shape[:2]
    if (height, width) == (size, size):
        return pixels
    image = Image.fromarray(pixels)
    if mode == "pad" and height != width:
        return _pad(image, size)
    # Cropped before it is resized: the longer side of a thin image would take all memory.
    side = min(height, width)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side) if mode == "crop" else None
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box))


def _pad(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Resize the longer side to `size` and center the result on a square of its mean color."""
    scale = size / max(image.size)
    width, height = (max(1, round(side * scale)) for side in image.size)
    part = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
    canvas = np.empty((size, size, 3), np.uint8)
    canvas[:] = part.mean((0, 1)).round()
    top, left = (size - height) // 2, (size - width) // 2
    canvas[top : top + height, left : left + width] = part
    return canvas


def open_image(data: bytes) -> Image.Image:
    """Open an image file of one of `FORMATS`; Pillow raises almost any exception on a broken one."""
    return Image.open(BytesIO(data), formats=tuple(FORMATS))


def image_size(data: bytes) -> tuple[int, int]:
    """Return width and height from the header, before orientation; raise `UnreadableError` if there is none."""
    try:
        with open_image(data) as image:
            return image.size
    except Exception as error:
        raise UnreadableError(_one_line(error)) from None


def _too_large_message(width: int = 0, height: int = 0) -> str:
    size = f"{width}x{height} pixels" if width else "too many pixels"
    return f"{size}, more than the limit of {MAX_PIXELS // 1_000_000} million"


def _one_line(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def _decode_plain_jpeg(data: bytes) -> NDArray[np.uint8] | None:
    """Decode gray and color JPEG files without EXIF orientation fast; return None for all other files."""
    if not data.startswith(b"\xff\xd8") or b"Exif\0\0" in data[:_EXIF_WINDOW]:
        return None
    try:
        return _decode_jpeg(data) if simplejpeg is None else _decode_jpeg_fast(data, simplejpeg)
    except UnreadableError:
        raise
    except Exception:  # `_decode_with_pillow` is more tolerant than simplejpeg and reports errors
        return None


def _decode_jpeg_fast(data: bytes, decoder: ModuleType) -> NDArray[np.uint8] | None:
    height, width, colorspace, _ = decoder.decode_jpeg_header(data)
    _check_pixels(width, height)
    if colorspace in ("CMYK", "YCCK"):
        return None
    pixels: NDArray[np.uint8] = decoder.decode_jpeg(data, "RGB")
    return pixels


def _decode_jpeg(data: bytes) -> NDArray[np.uint8] | None:
    """Decode what `_decode_jpeg_fast` decodes, to the same bytes; neither applies an orientation outside of EXIF."""
    with open_image(data) as image:
        _check_pixels(*image.size)
        return None if image.mode == "CMYK" else np.asarray(image.convert("RGB"))


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise UnreadableError(_too_large_message(width, height))


def _decode_with_pillow(data: bytes) -> NDArray[np.uint8]:
    with open_image(data) as image:
        _check_pixels(*image.size)
        return np.asarray(_to_rgb(ImageOps.exif_transpose(image)))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        return Image.fromarray(_gray16(image)).convert("RGB")
    if image.mode == "F":
        raise UnreadableError("floating-point pixels have no defined range; save it as 8 or 16 bit")
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def _gray16(image: Image.Image) -> NDArray[np.uint8]:
    """Scale 0..65535 to 0..255, rounded."""
    values = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
    return ((values + 128) // 257).astype(np.uint8)
