"""The images that an exported file is checked on: the user's, a run's thumbnails, or noise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.decode import UnreadableError, decode, decode_whole, resize
from ..data.reader import Reader
from ..data.sources import Item, read_tree
from ..engine.reading import read_json
from ..errors import UserError

MOST = 512  # images that are looked at
MOST_OF_DOMAIN = 100  # thumbnails
NOISE = 64
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images as a model takes them, with their classes where folders tell them."""

    pixels: Pixels  # (n, size, size, 3)
    told: str  # what they are, in words
    truth: NDArray[np.int64] | None = None
    are_real: bool = True


def pictures(run: Path, given: Sequence[Path], classes: Sequence[str], size: int) -> Pictures:
    """Images of the user, else thumbnails of the run, else noise."""
    if given:
        return from_paths(given, classes, size)
    return from_samples(run / "samples", size) or noise(size)


def from_paths(paths: Sequence[Path], classes: Sequence[str], size: int) -> Pictures:
    """Images, folders and archives; a folder that is named like a class tells the class of what is in it."""
    items = [item for path in paths for item in items_of(path)]
    if not items:
        raise UserError(f"'{paths[0]}' holds no image; give --images images, folders or .zip archives")
    chosen = [items[row] for row in spread(len(items), MOST)]
    with Reader() as reader, ThreadPoolExecutor(os.cpu_count()) as pool:
        read = list(pool.map(lambda item: pixels_of(reader, item, size), chosen))
    good = [row for row, pixels in enumerate(read) if pixels is not None]
    if not good:
        raise UserError(f"no image in '{paths[0]}' can be read; give other --images")
    number = {name: k for k, name in enumerate(classes)}
    labels = [next((number[p] for p in chosen[row].parts[-2::-1] if p in number), -1) for row in good]
    told = f"{len(good):,} of {len(items):,} images of {', '.join(path.name for path in paths)}"
    truth = np.array(labels) if min(labels) >= 0 else None
    return Pictures(np.stack([read[row] for row in good]), told, truth)  # type: ignore[misc]


def spread(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers below `count`, evenly."""
    return [place * count // min(count, most) for place in range(min(count, most))]


def items_of(path: Path) -> Sequence[Item]:
    """All images under a path."""
    if path.is_file() and path.suffix.lower() != ".zip":
        return [Item(str(path), str(path))]
    return read_tree(path).images


def pixels_of(reader: Reader, item: Item, size: int) -> Pixels | None:
    """An image at the model's size; None if it cannot be read."""
    try:
        content = reader.read(item)
        return decode(content, size) if isinstance(content, bytes) else resize(content, size)
    except (UnreadableError, OSError):
        return None


def from_samples(folder: Path, size: int) -> Pictures | None:
    """Thumbnails that a run kept, at the model's size; None where there are none."""
    try:
        index = read_json(folder / "index.json")
        tiles = [tile for domain in index["domains"].values() for tile in tiles_of(folder, index, domain)]
    except FileNotFoundError:
        return None
    except (UnreadableError, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise UserError(f"the thumbnails in '{folder}' are damaged ({type(error).__name__}); give --images") from None
    if not tiles:
        return None
    return Pictures(
        np.stack([resize(tile, size) for tile in tiles]), f"{len(tiles):,} thumbnails of the run's images"
    )


def tiles_of(folder: Path, index: dict[str, Any], domain: dict[str, Any]) -> list[Pixels]:
    """Some thumbnails of a domain, spread over its sheet."""
    name, tile, columns = str(domain["sprite"]), int(index["tile"]), int(index["columns"])
    if Path(name).name != name or tile < 1 or columns < 1:
        raise ValueError("a sheet outside of its folder, or of no size")
    sheet = decode_whole((folder / name).read_bytes())
    count = len(domain["rows"])
    found = []
    for place in spread(count, MOST_OF_DOMAIN):
        line, column = divmod(place, columns)
        part = sheet[line * tile : (line + 1) * tile, column * tile : (column + 1) * tile]
        if part.shape != (tile, tile, 3):
            raise ValueError("a sheet that is too small")
        found.append(part)
    return found


def noise(size: int) -> Pictures:
    """Colours at random, half of them in coarse blocks, which networks tell better apart than fine grain."""
    rng = np.random.default_rng(0)
    fine = rng.integers(0, 256, (NOISE // 2, size, size, 3), np.uint8)
    coarse = [resize(rng.integers(0, 256, (4, 4, 3), np.uint8), size) for _ in range(NOISE // 2)]
    return Pictures(np.concatenate([fine, np.stack(coarse)]), f"{NOISE} pictures of noise", are_real=False)
