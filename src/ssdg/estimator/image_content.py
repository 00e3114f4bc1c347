"""One image in any form that `ssdg.SSDG` accepts: a PIL image, an array, a tensor, a path or the bytes of a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ..data.sources.decode import ResizeMode, UnreadableError, image_to_array, resize_content
from ..data.sources.tree import Item, Reader
from ..errors import UserError

Content = NDArray[np.uint8] | bytes | Item  # pixels (H, W, 3), the bytes of an image file, or their location
ACCEPTED_IMAGE = "a uint8 array (H, W, 3) or (H, W), a PIL image, a path, or a tensor (C, H, W)"


def content_of(image: Any, where: str) -> Content:
    """Return the content of one image; `where` names it in error messages."""
    match image:
        case Image.Image():
            return _from_pillow(image, where)
        case np.ndarray():
            return to_rgb(image, where)
        case torch.Tensor():
            return to_rgb(_from_tensor(image, where), where)
        case str() | os.PathLike():
            return _from_path(Path(image), where)
        case Item() | bytes():
            return image
        case {"bytes": bytes() as data}:  # an undecoded image of a Hugging Face dataset
            return data
        case Mapping() if image.get("path"):
            return _from_path(Path(image["path"]), where)
    raise UserError(f"{where} is a {type(image).__name__}; pass {ACCEPTED_IMAGE}")


def to_rgb(pixels: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """Convert gray or color uint8 pixels to (H, W, 3)."""
    check_uint8(pixels.dtype, where)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3) or 0 in pixels.shape:
        raise UserError(f"{where} has the shape {pixels.shape}; pass (H, W, 3), or (H, W) for gray")
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def check_uint8(dtype: np.dtype[Any], where: str) -> None:
    """Reject other dtypes, whose value range is unknown."""
    if dtype != np.uint8:
        raise UserError(f"{where} has the dtype {dtype}; pass uint8 pixels from 0 to 255")


def _from_pillow(image: Image.Image, where: str) -> NDArray[np.uint8]:
    try:
        return image_to_array(image)
    except UnreadableError as error:
        raise UserError(f"{where} cannot be used: {error}") from None


def _from_tensor(tensor: torch.Tensor, where: str) -> NDArray[np.uint8]:
    """Convert (C, H, W) in [0, 1] or uint8 to (H, W, C); uint8 values divided by 255 are restored exactly."""
    if tensor.ndim == 2:
        tensor = tensor[None]
    if tensor.ndim != 3 or tensor.shape[0] not in (1, 3):
        raise UserError(f"{where} is a tensor of shape {tuple(tensor.shape)}; pass (3, H, W), or (1, H, W) for gray")
    values = tensor.detach().cpu()
    if values.is_floating_point():
        if not bool(((values >= 0) & (values <= 1)).all()):
            raise UserError(f"{where} is a tensor with values outside of [0, 1]; pass images before normalization")
        values = (values.double() * 255).round().to(torch.uint8)
    return np.asarray(values.permute(1, 2, 0).numpy())


def _from_path(path: Path, where: str) -> Item:
    if not path.is_file():
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise UserError(f"{where}, '{path}', {problem}; pass paths of image files")
    return Item(str(path), str(path))


def read_content(content: Content, reader: Reader, where: str) -> bytes | NDArray[np.uint8]:
    """Return the bytes of an image file, or pixels."""
    if not isinstance(content, Item):
        return content
    try:
        return reader.read(content)
    except OSError as error:
        raise UserError(f"{where}, '{content.path}', cannot be read: {error.strerror or error}") from None


def read_pixels(
    content: Content, size: int, reader: Reader, where: str, mode: ResizeMode = "squash"
) -> NDArray[np.uint8]:
    """Return the image at (size, size, 3), exactly as in training."""
    data = read_content(content, reader, where)
    try:
        return resize_content(data, size, mode)
    except UnreadableError as error:
        name = f", '{content.path}'," if isinstance(content, Item) else ""
        raise UserError(f"{where}{name} cannot be used: {error}") from None
