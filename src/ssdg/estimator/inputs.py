"""Images held by a Python program, in every form that `ssdg.SSDG` accepts, as one sequence type."""

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

from ..data.sources.decode import UnreadableError, decode, pixels_of, resize
from ..data.sources.tree import Item, Reader, read_tree
from ..errors import UserError

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


Labels = Literal["needed", "allowed", "dropped"]
Row = tuple[Content, Any]  # an image and its label, None where it has none
NO_IMAGES = (
    "give a folder or .zip archive, a uint8 array (N, H, W, 3), a list of PIL images or of paths, a "
    "torch.utils.data.Dataset or a datasets.Dataset"
)


@dataclass(frozen=True, eq=False)
class Images:
    """Images one after the other, each made when it is asked for."""

    role: str
    count: int
    row: Callable[[int], Row]

    def __iter__(self) -> Iterator[Row]:
        return map(self.row, range(self.count))


def is_path(given: object) -> bool:
    """Whether this names a file, a folder or an archive."""
    return isinstance(given, str | os.PathLike)


def is_place(given: object) -> bool:
    """Whether this names a folder or an archive that is there, and not an image."""
    return is_path(given) and (Path(str(given)).is_dir() or str(given).lower().endswith(".zip"))


def read_images(given: Any, role: str, labels: Labels) -> Images:
    """The images, and their labels where these are wanted; `role` names them in refusals."""
    if isinstance(given, tuple) and len(given) == 2 and not all(map(_is_image, given)):
        if labels == "dropped":
            raise UserError(f"{role} is a pair, as of images and labels; give the images alone")
        return _with_labels(_plain(given[0], role), given[1])
    dataset = _dataset(given, role)
    found = _plain(given, role) if dataset is None else dataset
    if dataset is None and labels == "needed":
        raise UserError(
            f"{role} has no labels; give (images, labels), a dataset of both or a folder of class folders"
        )
    if labels == "dropped":
        return Images(role, found.count, lambda n: (found.row(n)[0], None))
    return found


def read_unlabeled_place(place: Any, role: str) -> Images:
    """All images of a folder or archive, in the order of their paths."""
    items = read_tree(Path(place)).images
    if not items:
        raise UserError(f"'{place}' holds no image; give a folder or an archive with images")
    return Images(role, len(items), lambda n: (items[n], None))


def _is_image(given: object) -> bool:
    """Whether this alone is one image: two of them are two images, and not images and labels."""
    return isinstance(given, Image.Image) or is_path(given) or getattr(given, "ndim", 0) == 3


def _plain(given: Any, role: str) -> Images:
    """Images without labels: an array, a tensor, a sequence of single images or a column of pandas with such."""
    if hasattr(given, "to_numpy"):
        given = given.to_numpy()
    if isinstance(given, np.ndarray) and given.dtype.kind not in "UO":
        return _array(given, role)
    if is_place(given):
        return read_unlabeled_place(given, role)
    if is_path(given):
        raise UserError(f"{role} is '{given}', and no such folder or archive is there; {NO_IMAGES}")
    is_list = isinstance(given, Sequence | np.ndarray) and not isinstance(given, bytes)
    if not is_list and not (isinstance(given, torch.Tensor) and given.ndim == 4):
        raise UserError(f"{role} is a {type(given).__name__}; {NO_IMAGES}")
    _check_some(len(given), role)
    return Images(role, len(given), lambda n: (content_of(given[n], f"image {n} of {role}"), None))


def _array(array: NDArray[Any], role: str) -> Images:
    if array.ndim == 1:
        raise UserError(f"{role} is a row of {len(array):,} numbers; give images, and labels as (images, labels)")
    check_uint8(array.dtype, role)
    if array.ndim == 3 and array.shape[-1] == 3:
        raise UserError(f"{role} has the shape {array.shape} of a single image; put images into a list")
    if array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[-1] not in (1, 3)):
        raise UserError(f"{role} has the shape {array.shape}; give (N, H, W, 3), or (N, H, W) if images are grey")
    _check_some(len(array), role)
    return Images(role, len(array), lambda n: (rgb(array[n], f"image {n} of {role}"), None))


def _check_some(count: int, role: str) -> None:
    if count == 0:
        raise UserError(f"{role} has no image; give one or more")


def _with_labels(images: Images, y: Any) -> Images:
    labels = label_array(y, images.role)
    if len(labels) != images.count:
        raise UserError(
            f"{images.role} has {images.count:,} images and {len(labels):,} labels; each image needs one label"
        )
    values = labels.tolist()
    return Images(images.role, images.count, lambda n: (images.row(n)[0], values[n]))


def label_array(y: Any, role: str) -> NDArray[Any]:
    """Labels as one row of whole numbers, switches or strings, of one kind."""
    if isinstance(y, list | tuple) and len({isinstance(label, str) for label in y}) > 1:
        raise UserError(f"the labels of {role} are strings and others mixed; give labels of one kind")
    try:
        labels = np.asarray(y)
    except ValueError:
        labels = np.zeros((0, 0))
    if labels.ndim != 1:
        raise UserError(f"the labels of {role} have the shape {labels.shape}; give one row, a label for each image")
    is_text = labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels)
    is_whole = labels.dtype.kind == "f" and bool((labels == np.floor(labels)).all())
    if labels.dtype.kind not in "biuU" and not is_text and not is_whole:
        raise UserError(f"the labels of {role} are {labels.dtype}; give whole numbers or strings")
    return labels


def _dataset(given: Any, role: str) -> Images | None:
    """The items of a dataset of torch or of Hugging Face; None for anything else."""
    if hasattr(given, "features") and hasattr(given, "column_names"):
        return _hugging_face(given, role)
    if not isinstance(given, torch.utils.data.Dataset):
        return None
    if not hasattr(given, "__len__"):
        raise UserError(f"{role} is a dataset without a length; give one whose items can be counted")
    dataset: Any = given
    _check_some(len(dataset), role)

    def row(n: int) -> Row:
        item = dataset[n]
        image, label = item if isinstance(item, tuple | list) and len(item) == 2 else (item, None)
        label = label.item() if isinstance(label, torch.Tensor | np.generic) else label
        return content_of(image, f"image {n} of {role}"), label

    return Images(role, len(dataset), row)


def _hugging_face(dataset: Any, role: str) -> Images:
    """The image column is found by its type, the label by its type or the name `label`; names stand for numbers."""
    if not hasattr(dataset, "__len__") or dataset.features is None:
        raise UserError(f"{role} is a dataset that is streamed; give one that is loaded whole")
    kinds = {name: type(feature).__name__ for name, feature in dataset.features.items()}
    pictures = [name for name, kind in kinds.items() if kind == "Image"]
    if len(pictures) != 1:
        told = f"{len(pictures)} image columns" if pictures else "no image column"
        raise UserError(f"{role} has {told} among {', '.join(kinds) or 'none'}; select one image column")
    tags = [name for name, kind in kinds.items() if kind == "ClassLabel"] or [n for n in kinds if n == "label"]
    if len(tags) > 1:
        raise UserError(f"{role} has {len(tags)} label columns ({', '.join(tags)}); remove all but one")
    _check_some(len(dataset), role)
    picture, tag = pictures[0], tags[0] if tags else None
    rows = _undecoded(dataset, picture)
    names = getattr(dataset.features[tag], "names", None) if tag else None

    def row(n: int) -> Row:
        found = rows[n]
        label = found[tag] if tag else None
        if names is not None:
            label = names[label] if label is not None and label >= 0 else None  # -1 says that none is known
        return content_of(found[picture], f"image {n} of {role}"), label

    return Images(role, len(dataset), row)


def _undecoded(dataset: Any, column: str) -> Any:
    """The rows with the files' own bytes, where the dataset can give them: nothing is packed anew then."""
    if not hasattr(dataset, "cast_column"):
        return dataset
    feature = type(dataset.features[column])
    return dataset.with_format(None).cast_column(column, feature(decode=False))
