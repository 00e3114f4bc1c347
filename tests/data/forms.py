"""Four images in every form in which a program may hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ssdg.data.sources.decode import decode_whole
from ssdg.data.sources.tree import Reader, read_tree
from ssdg.estimator.input_folders import write_once
from ssdg.estimator.inputs import Images, read_images

COLOR = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
GRAY = COLOR[..., 0]
Y = [3, 10, 3, 10]


class Pairs(torch.utils.data.Dataset[Any]):
    """A dataset of torch over a list."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, n: int) -> Any:
        return self.items[n]


class Column:
    """As much of a column of pandas as is needed."""

    def __init__(self, values: list[str]) -> None:
        self.values = values

    def to_numpy(self) -> Any:
        return np.array(self.values, dtype=object)


def pixels(images: Images) -> np.ndarray[Any, Any]:
    with Reader() as reader:
        arrays = [c if isinstance(c, np.ndarray) else decode_whole(reader.read(c)) for c, _ in images]
    return np.stack(arrays)


def written(folder: Path, inputs: Any, labels: Any = "required") -> list[tuple[str, Any]]:
    """Class folder and pixels of every file, in the order in which they were given."""
    write_once(read_images(inputs, "labeled", labels), folder, labels, may_replace=False)
    items = sorted(read_tree(folder).images, key=lambda item: item.parts[-1])
    with Reader() as reader:
        return [("/".join(item.parts[:-1]), decode_whole(reader.content(item))) for item in items]


def forms(folder: Path) -> dict[str, Any]:
    """The same four color images in every form."""
    paths = [folder / f"{n}.png" for n in range(4)]
    for path, image in zip(paths, COLOR, strict=True):
        Image.fromarray(image).save(path)
    tensors = torch.from_numpy(COLOR).permute(0, 3, 1, 2)
    return {
        "array": COLOR,
        "list of arrays": list(COLOR),
        "array in another order of bytes": np.asfortranarray(COLOR),
        "PIL": [Image.fromarray(image) for image in COLOR],
        "tuple of PIL": tuple(Image.fromarray(image) for image in COLOR),
        "paths": paths,
        "strings": list(map(str, paths)),
        "array of strings": np.array(list(map(str, paths))),
        "column of a table": Column(list(map(str, paths))),
        "uint8 tensors": tensors,
        "dataset of float tensors": Pairs(list(tensors / 255)),
        "dataset of PIL": Pairs([Image.fromarray(image) for image in COLOR]),
    }
