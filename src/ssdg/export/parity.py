"""Compare an exported file with torch on real images: differences of probabilities and scores, changed classes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..artifact.calibration import known_scores
from ..artifact.load import Model, read_json
from ..data.sources.decode import ResizeMode, UnreadableError, decode_whole, resize, resize_content
from ..data.sources.tree import Item, Reader, read_tree
from ..errors import UserError
from ..files import read_bytes
from .graph import PROBS, SCORE, GraphOptions
from .onnx_files import Outputs, Runner

MAX_IMAGES = 512  # of the user
MAX_THUMBNAILS = 100  # per domain
NUM_NOISE = 64
FIRST_BATCHES = (1, 7)  # sizes of the first batches: a single image, and an odd number
BATCH = 32
TIE_MARGIN = 2e-4  # two top classes no further apart are a tie, which rounding may swap
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class CheckImages:
    """Images at the model's size for the check, with their classes if folders name them."""

    pixels: Pixels  # (n, size, size, 3)
    description: str
    truth: NDArray[np.int64] | None = None
    are_real: bool = True


def load_check_images(
    run: Path, paths: Sequence[Path], classes: Sequence[str], size: int, mode: ResizeMode
) -> CheckImages:
    """Load the images of the user, else thumbnails of the run, else noise."""
    if paths:
        return load_user_images(paths, classes, size, mode)
    return load_thumbnails(run / "samples", size) or make_noise(size)


def load_user_images(
    paths: Sequence[Path], classes: Sequence[str], size: int, mode: ResizeMode = "squash"
) -> CheckImages:
    """Load images, folders and archives; a folder named like a class labels the images in it."""
    items = [item for path in paths for item in list_items(path)]
    if not items:
        raise UserError(f"'{paths[0]}' contains no image; give --images images, folders or .zip archives")
    chosen = [items[row] for row in spread_evenly(len(items), MAX_IMAGES)]
    with Reader() as reader, ThreadPoolExecutor(os.cpu_count()) as pool:
        decoded = list(pool.map(lambda item: read_pixels(reader, item, size, mode), chosen))
    pixels = {row: image for row, image in enumerate(decoded) if image is not None}
    if not pixels:
        raise UserError(f"no image in '{paths[0]}' can be read; give other --images")
    index = {name: k for k, name in enumerate(classes)}
    labels = [next((index[part] for part in chosen[row].parts[-2::-1] if part in index), -1) for row in pixels]
    description = f"{len(pixels):,} of {len(items):,} images of {', '.join(path.name for path in paths)}"
    truth = np.array(labels) if min(labels) >= 0 else None
    return CheckImages(np.stack([*pixels.values()]), description, truth)


def spread_evenly(count: int, max_count: int) -> list[int]:
    """Return up to `max_count` evenly spaced integers below `count`."""
    num_chosen = min(count, max_count)
    return [n * count // num_chosen for n in range(num_chosen)]


def list_items(path: Path) -> Sequence[Item]:
    """List all images under a path."""
    if path.is_file() and path.suffix.lower() != ".zip":
        return [Item(str(path), str(path))]
    return read_tree(path).images


def read_pixels(reader: Reader, item: Item, size: int, mode: ResizeMode) -> Pixels | None:
    """Read an image at the model's size; return None if it cannot be read."""
    try:
        return resize_content(reader.read(item), size, mode)
    except (UnreadableError, OSError):
        return None


def load_thumbnails(folder: Path, size: int) -> CheckImages | None:
    """Load the thumbnails of a run at the model's size; return None if there are none."""
    try:
        index = read_json(folder / "index.json")
        tiles = [tile for domain in index["domains"].values() for tile in read_tiles(folder, index, domain)]
    except FileNotFoundError:
        return None
    except (UnreadableError, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise UserError(f"the thumbnails in '{folder}' are damaged ({type(error).__name__}); give --images") from None
    if not tiles:
        return None
    pixels = np.stack([resize(tile, size) for tile in tiles])
    return CheckImages(pixels, f"{len(tiles):,} thumbnails of the run's images")


def read_tiles(folder: Path, index: dict[str, Any], domain: dict[str, Any]) -> list[Pixels]:
    """Read some thumbnails of a domain, evenly spread over its sheet."""
    name, tile, columns = str(domain["sprite"]), int(index["tile"]), int(index["columns"])
    if Path(name).name != name or tile < 1 or columns < 1:
        raise ValueError("the sheet is outside of its folder, or its tiles have no size")
    sheet = decode_whole(read_bytes(folder / name))
    tiles = []
    for index_in_sheet in spread_evenly(len(domain["rows"]), MAX_THUMBNAILS):
        row, column = divmod(index_in_sheet, columns)
        pixels = sheet[row * tile : (row + 1) * tile, column * tile : (column + 1) * tile]
        if pixels.shape != (tile, tile, 3):
            raise ValueError("the sheet is too small")
        tiles.append(pixels)
    return tiles


def make_noise(size: int) -> CheckImages:
    """Return random colors, half of them in coarse blocks, which networks separate better than fine grain."""
    rng = np.random.default_rng(0)
    fine = rng.integers(0, 256, (NUM_NOISE // 2, size, size, 3), np.uint8)
    coarse = [resize(rng.integers(0, 256, (4, 4, 3), np.uint8), size) for _ in range(NUM_NOISE // 2)]
    return CheckImages(np.concatenate([fine, np.stack(coarse)]), f"{NUM_NOISE} images of noise", are_real=False)


@dataclass(frozen=True)
class Parity:
    """The largest differences from torch, and the number of images with the same class."""

    images: int
    probs: float
    score: float | None  # relative for scores above 1
    same: int
    exchanged: int  # images whose class changed without a tie

    @property
    def agreement(self) -> float:
        """Fraction of images with the same class."""
        return self.same / self.images

    @property
    def worst(self) -> float:
        """Largest difference of all outputs; infinite if a value is not finite."""
        return max(self.probs, self.score or 0.0)


def to_graph_input(pixels: Pixels, options: GraphOptions) -> NDArray[Any]:
    """Convert images to the format of the graph's input."""
    if options.has_preprocessing:
        return pixels
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)


def split_batches(pixels: Pixels) -> Iterator[Pixels]:
    """Yield all images, repeated if they are few: a single one, an odd number, then full batches."""
    repeated = pixels[np.arange(max(len(pixels), sum(FIRST_BATCHES))) % len(pixels)]
    ends = np.cumsum([*FIRST_BATCHES, *[BATCH] * (len(repeated) // BATCH + 1)])
    yield from (part for part in np.split(repeated, ends[ends < len(repeated)]) if len(part))


def torch_outputs(model: Model, pixels: Pixels, options: GraphOptions) -> Outputs:
    """Return the outputs of the model's own code, in float64 after the networks."""
    parts: list[Outputs] = []
    for part in split_batches(pixels):
        logits = model.logits(part)
        if options.network_index is not None:
            logits = logits[options.network_index : options.network_index + 1]
        scores = {SCORE: torch.from_numpy(known_scores(logits)).numpy()} if options.has_score else {}
        parts.append({PROBS: model.probs(logits).numpy(), **scores})
    return concat_outputs(parts)


def file_outputs(run: Runner, pixels: Pixels, options: GraphOptions) -> Outputs:
    """Return the outputs of an exported file."""
    return concat_outputs([run(to_graph_input(part, options)) for part in split_batches(pixels)])


def concat_outputs(parts: list[Outputs]) -> Outputs:
    """Concatenate the outputs of several batches."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compare(expected: Outputs, actual: Outputs) -> Parity:
    """Compare the outputs of a file with those of torch."""
    probs, other_probs = expected[PROBS], actual[PROBS]
    is_same = probs.argmax(1) == other_probs.argmax(1)
    top_two = np.sort(probs, 1)[:, -2:]
    score = None
    if SCORE in expected:
        score = max_abs((actual[SCORE] - expected[SCORE]) / np.maximum(1, np.abs(expected[SCORE])))
    is_exchanged = ~is_same & (top_two[:, 1] - top_two[:, 0] > TIE_MARGIN)
    return Parity(len(probs), max_abs(other_probs - probs), score, int(is_same.sum()), int(is_exchanged.sum()))


def max_abs(differences: NDArray[Any]) -> float:
    """Return the largest absolute value; infinite if one is not finite."""
    return float(np.nan_to_num(np.abs(differences), nan=np.inf, posinf=np.inf).max())
