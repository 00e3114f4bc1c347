"""Input images in every form that `ssdg.SSDG` accepts, converted to one sequence type."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from ..data.sources.decode import ResizeMode, UnreadableError, image_to_array, resize_content
from ..data.sources.tree import Item, Reader, read_tree
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


LabelMode = Literal["required", "optional", "ignored"]
Row = tuple[Content, Any]  # an image and its label, None without a label
ACCEPTED_IMAGES = (
    "pass a folder or .zip archive, a uint8 array (N, H, W, 3), a list of PIL images or of paths, a "
    "torch.utils.data.Dataset or a datasets.Dataset"
)


@dataclass(frozen=True, eq=False)
class Images:
    """Sequence of images that are read on access."""

    role: str
    count: int
    row: Callable[[int], Row]

    def __iter__(self) -> Iterator[Row]:
        return map(self.row, range(self.count))


def is_path(value: object) -> bool:
    """Return whether the value is a path of a file, a folder or an archive."""
    return isinstance(value, str | os.PathLike)


def is_source(value: object) -> bool:
    """Return whether the value is a path of an existing folder or of a .zip archive, not of an image."""
    return is_path(value) and (Path(str(value)).is_dir() or str(value).lower().endswith(".zip"))


def read_images(inputs: Any, role: str, mode: LabelMode) -> Images:
    """Read images, and their labels unless `mode` ignores them; `role` names the images in error messages."""
    if isinstance(inputs, tuple) and len(inputs) == 2 and not all(map(_is_image, inputs)):
        if mode == "ignored":
            raise UserError(f"{role} is a pair, like (images, labels); pass only the images")
        return _with_labels(_read_unlabeled(inputs[0], role), inputs[1])
    dataset = _read_dataset(inputs, role)
    images = _read_unlabeled(inputs, role) if dataset is None else dataset
    if dataset is None and mode == "required":
        raise UserError(
            f"{role} has no labels; pass (images, labels), a dataset of both or a folder of class folders"
        )
    if mode == "ignored":
        return Images(role, images.count, lambda n: (images.row(n)[0], None))
    return images


def read_folder(path: Any, role: str) -> Images:
    """Read all images of a folder or archive, ordered by path."""
    items = read_tree(Path(path)).images
    if not items:
        raise UserError(f"'{path}' contains no images; pass a folder or an archive with images")
    return Images(role, len(items), lambda n: (items[n], None))


def _is_image(value: object) -> bool:
    """Return whether the value is a single image: a pair of those is two images, not images and labels."""
    return isinstance(value, Image.Image) or is_path(value) or getattr(value, "ndim", 0) == 3


def _read_unlabeled(inputs: Any, role: str) -> Images:
    """Read images without labels: an array, a tensor, a sequence of single images, or a pandas column of these."""
    if hasattr(inputs, "to_numpy"):
        inputs = inputs.to_numpy()
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind not in "UO":
        return _read_array(inputs, role)
    if is_source(inputs):
        return read_folder(inputs, role)
    if is_path(inputs):
        raise UserError(f"{role} is '{inputs}', but this folder or archive does not exist; {ACCEPTED_IMAGES}")
    is_list = isinstance(inputs, Sequence | np.ndarray) and not isinstance(inputs, bytes)
    if not is_list and not (isinstance(inputs, torch.Tensor) and inputs.ndim == 4):
        raise UserError(f"{role} is a {type(inputs).__name__}; {ACCEPTED_IMAGES}")
    _check_not_empty(len(inputs), role)
    return Images(role, len(inputs), lambda n: (content_of(inputs[n], f"image {n} of {role}"), None))


def _read_array(array: NDArray[Any], role: str) -> Images:
    if array.ndim == 1:
        raise UserError(
            f"{role} is a 1-D array of {len(array):,} values; pass images, and labels as (images, labels)"
        )
    check_uint8(array.dtype, role)
    if array.ndim == 3 and array.shape[-1] == 3:
        raise UserError(f"{role} has the shape {array.shape} of a single image; put images into a list")
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[-1] not in (1, 3)):
        raise UserError(f"{role} has the shape {array.shape}; pass (N, H, W, 3), or (N, H, W) for gray images")
    _check_not_empty(len(array), role)
    return Images(role, len(array), lambda n: (to_rgb(array[n], f"image {n} of {role}"), None))


def _check_not_empty(count: int, role: str) -> None:
    if count == 0:
        raise UserError(f"{role} has no images; pass at least one")


def _with_labels(images: Images, y: Any) -> Images:
    labels = label_array(y, images.role)
    if len(labels) != images.count:
        raise UserError(
            f"{images.role} has {images.count:,} images and {len(labels):,} labels; each image needs one label"
        )
    values = labels.tolist()
    return Images(images.role, images.count, lambda n: (images.row(n)[0], values[n]))


def label_array(y: Any, role: str) -> NDArray[Any]:
    """Return labels as a 1-D array of integers, booleans or strings, all of one type."""
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) > 1:
        raise UserError(f"the labels of {role} mix strings and other types; pass labels of one type")
    try:
        labels = np.asarray(y)
    except ValueError:
        labels = np.zeros((0, 0))
    if labels.ndim != 1:
        raise UserError(
            f"the labels of {role} have the shape {labels.shape}; pass a 1-D array with a label for each image"
        )
    is_text = labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels)
    is_integral = labels.dtype.kind == "f" and bool((labels == np.floor(labels)).all())
    if labels.dtype.kind not in "biuU" and not is_text and not is_integral:
        raise UserError(f"the labels of {role} are {labels.dtype}; pass integers or strings")
    return labels


def _read_dataset(inputs: Any, role: str) -> Images | None:
    """Read a torch or Hugging Face dataset; return None for anything else."""
    if hasattr(inputs, "features") and hasattr(inputs, "column_names"):
        return _read_hugging_face(inputs, role)
    if not isinstance(inputs, torch.utils.data.Dataset):
        return None
    if not hasattr(inputs, "__len__"):
        raise UserError(f"{role} is a dataset without a length; pass a map-style dataset")
    dataset: Any = inputs
    _check_not_empty(len(dataset), role)

    def row(n: int) -> Row:
        item = dataset[n]
        image, label = item if isinstance(item, tuple | list) and len(item) == 2 else (item, None)
        label = label.item() if isinstance(label, torch.Tensor | np.generic) else label
        return content_of(image, f"image {n} of {role}"), label

    return Images(role, len(dataset), row)


def _read_hugging_face(dataset: Any, role: str) -> Images:
    """Read the image column by its type and the label column by its type or the name `label`; use class names."""
    if not hasattr(dataset, "__len__") or dataset.features is None:
        raise UserError(f"{role} is a streaming dataset; pass a loaded one")
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}
    image_columns = [name for name, kind in kinds.items() if kind == "Image"]
    if len(image_columns) != 1:
        number = f"{len(image_columns)} image columns" if image_columns else "no image column"
        raise UserError(f"{role} has {number} among {', '.join(kinds) or 'none'}; select one image column")
    label_columns = [name for name, kind in kinds.items() if kind == "ClassLabel"] or [
        n for n in kinds if n == "label"
    ]
    if len(label_columns) > 1:
        raise UserError(
            f"{role} has {len(label_columns)} label columns ({', '.join(label_columns)}); remove all but one"
        )
    _check_not_empty(len(dataset), role)
    image_column, label_column = image_columns[0], label_columns[0] if label_columns else None
    rows = _without_decoding(dataset, image_column)
    names = getattr(dataset.features[label_column], "names", None) if label_column else None

    def row(n: int) -> Row:
        values = rows[n]
        label = values[label_column] if label_column else None
        if names is not None:
            label = names[label] if label is not None and label >= 0 else None  # -1 means an unknown label
        return content_of(values[image_column], f"image {n} of {role}"), label

    return Images(role, len(dataset), row)


def _without_decoding(dataset: Any, column: str) -> Any:
    """Return the dataset with the original bytes of files if possible, so that nothing is re-encoded."""
    if not hasattr(dataset, "cast_column"):
        return dataset
    feature = type(dataset.features[column])
    return dataset.with_format(None).cast_column(column, feature(decode=False))
