"""One image of whatever kind a Python program holds -> pixels, or the file that has them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ..errors import UserError
from .decode import UnreadableError, decode, pixels_of, resize
from .reader import Reader
from .sources import Item

Content = NDArray[np.uint8] | bytes | Item  # pixels (H, W, 3), the bytes of an image file, or where these lie
KINDS = "a uint8 array (H, W, 3) or (H, W), a PIL image, a path, or a tensor (C, H, W)"


def content_of(image: Any, where: str) -> Content:
    """The content of one image; `where` names it in refusals."""
    match image:
        case Image.Image():
            return _of_pillow(image, where)
        case np.ndarray():
            return rgb(image, where)
        case torch.Tensor():
            return rgb(_of_tensor(image, where), where)
        case str() | os.PathLike():
            return _of_path(Path(image), where)
        case Item() | bytes():
            return image
        case {"bytes": bytes() as data}:  # an undecoded image of Hugging Face's datasets
            return data
        case Mapping() if image.get("path"):
            return _of_path(Path(image["path"]), where)
    raise UserError(f"{where} is a {type(image).__name__}; give {KINDS}")


def rgb(pixels: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """Grey or colour uint8 pixels as (H, W, 3)."""
    check_uint8(pixels.dtype, where)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3) or 0 in pixels.shape:
        raise UserError(f"{where} has the shape {pixels.shape}; give (H, W, 3), or (H, W) if it is grey")
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3)))


def check_uint8(dtype: np.dtype[Any], where: str) -> None:
    """Pixels of any other type have no range that could be known."""
    if dtype != np.uint8:
        raise UserError(f"{where} has the type {dtype}; give uint8 pixels from 0 to 255")


def _of_pillow(image: Image.Image, where: str) -> NDArray[np.uint8]:
    try:
        return pixels_of(image)
    except UnreadableError as error:
        raise UserError(f"{where} cannot be used: {error}") from None


def _of_tensor(tensor: torch.Tensor, where: str) -> NDArray[np.uint8]:
    """(C, H, W) in [0, 1] or uint8 -> (H, W, C); what was uint8 before it was divided by 255 is so again."""
    if tensor.ndim == 2:
        tensor = tensor[None]
    if tensor.ndim != 3 or tensor.shape[0] not in (1, 3):
        raise UserError(f"{where} is a tensor of shape {tuple(tensor.shape)}; give (3, H, W), or (1, H, W) if grey")
    values = tensor.detach().cpu()
    if values.is_floating_point():
        if not bool(((values >= 0) & (values <= 1)).all()):
            raise UserError(f"{where} is a tensor with values outside of [0, 1]; give images before normalization")
        values = (values.double() * 255).round().to(torch.uint8)
    return np.asarray(values.permute(1, 2, 0).numpy())


def _of_path(path: Path, where: str) -> Item:
    if not path.is_file():
        kind = "is a folder" if path.is_dir() else "does not exist"
        raise UserError(f"{where}, '{path}', {kind}; give paths of image files")
    return Item(str(path), str(path))


def raw(content: Content, reader: Reader, where: str) -> bytes | NDArray[np.uint8]:
    """The bytes of an image file, or pixels."""
    if not isinstance(content, Item):
        return content
    try:
        return reader.read(content)
    except OSError as error:
        raise UserError(f"{where}, '{content.path}', cannot be read: {error.strerror or error}") from None


def pixels_at(content: Content, size: int, reader: Reader, where: str) -> NDArray[np.uint8]:
    """The image at (size, size, 3), as training sees it."""
    found = raw(content, reader, where)
    try:
        return decode(found, size) if isinstance(found, bytes) else resize(found, size)
    except UnreadableError as error:
        name = f", '{content.path}'," if isinstance(content, Item) else ""
        raise UserError(f"{where}{name} cannot be used: {error}") from None
