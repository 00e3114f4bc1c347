"""Images that are given to a trained estimator, with or without labels, and what its networks say of them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.elements import pixels_at
from ..data.folders import read_class_folder
from ..data.inputs import Images, Row, is_path, read_images, read_unlabeled_place
from ..data.reader import Reader
from ..data.threads import num_cores
from ..data.written import checked_labels, class_folder
from ..errors import UserError
from ..inference import BATCH, Model


def read_plain(given: Any) -> Images:
    """Images to be predicted."""
    return read_unlabeled_place(given, "images") if is_path(given) else read_images(given, "images", "dropped")


def read_scored(given: Any, names: Sequence[str]) -> tuple[Images, NDArray[np.int64]]:
    """Images to be scored, and the place of each one's class among `names`."""
    labels: Sequence[Any]
    if is_path(given):
        domain = read_class_folder(Path(given), "labeled")
        images = Images("labeled", len(domain.items), lambda n: (domain.items[n], domain.labels[n]))
        labels = domain.labels
    else:
        images = read_images(given, "labeled", "needed")
        labels = [label for _, label in images]
        checked_labels(list(labels), "labeled", "needed")
    if not images.count:
        raise UserError(f"'{given}' holds no image; give a folder whose sub-folders are among {', '.join(names)}")
    place = {name: number for number, name in enumerate(names)}
    found = [place.get(str(label), place.get(class_folder(label), -1)) for label in labels]
    if -1 in found:
        odd = labels[found.index(-1)]
        raise UserError(f"{odd!r} is no class of this model; give labels among {', '.join(names)}")
    return images, np.array(found, np.int64)


def logits_of(model: Model, images: Images) -> Tensor:
    """(networks, n, K), batch by batch: no more than a batch of images is in memory."""
    parts, rows = [], enumerate(images)
    with Reader() as reader, ThreadPoolExecutor(num_cores()) as pool:

        def decode(row: tuple[int, Row]) -> NDArray[np.uint8]:
            return pixels_at(row[1][0], model.size, reader, f"image {row[0]} of {images.role}")

        while batch := list(islice(rows, BATCH)):
            parts.append(model.logits(np.stack(list(pool.map(decode, batch)))))
    return torch.cat(parts, dim=1)
