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
from ..data.sources.decode import UnreadableError, decode, decode_whole, resize
from ..data.sources.tree import Item, Reader, read_tree
from ..errors import UserError
from .graph import PROBS, SCORE, Form
from .onnx_files import Outputs, Run

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


FIRST = (1, 7)  # images of the first batches: alone, and an odd number
BATCH = 32
CLOSE = 2e-4  # the two likeliest classes are no further apart: rounding may exchange them
Values = NDArray[np.float64]


@dataclass(frozen=True)
class Parity:
    """The largest differences, and how many images get the same class."""

    images: int
    probs: float
    score: float | None  # relative where the score is above 1
    same: int
    exchanged: int  # images of another class that was no close call

    @property
    def agreement(self) -> float:
        """The share of images that get the same class."""
        return self.same / self.images

    @property
    def worst(self) -> float:
        """The largest difference of all outputs; NaN and infinity count as such."""
        return max(self.probs, self.score or 0.0)


def as_taken(pixels: Pixels, form: Form) -> NDArray[Any]:
    """The images as the graph takes them."""
    if form.inside:
        return pixels
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2), dtype=np.float32) / np.float32(255)


def batches(pixels: Pixels) -> Iterator[Pixels]:
    """All images, repeated where they are few: one alone, an odd number, then plain batches."""
    whole = pixels[np.arange(max(len(pixels), sum(FIRST))) % len(pixels)]
    ends = np.cumsum([*FIRST, *[BATCH] * (len(whole) // BATCH + 1)])
    yield from (part for part in np.split(whole, ends[ends < len(whole)]) if len(part))


def torch_outputs(model: Model, pixels: Pixels, form: Form) -> Outputs:
    """What the model itself says, by its own code and in float64 after the networks."""
    parts: list[Outputs] = []
    for part in batches(pixels):
        logits = model.logits(part)
        logits = logits if form.row is None else logits[form.row : form.row + 1]
        scores = {SCORE: torch.from_numpy(known_scores(logits)).numpy()} if form.reject else {}
        parts.append({PROBS: model.probs(logits).numpy(), **scores})
    return joined(parts)


def outputs(run: Run, pixels: Pixels, form: Form) -> Outputs:
    """What a file says."""
    return joined([run(as_taken(part, form)) for part in batches(pixels)])


def joined(parts: list[Outputs]) -> Outputs:
    """Batches one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def compare(wanted: Outputs, found: Outputs) -> Parity:
    """A file against what it should say."""
    probs, others = wanted[PROBS], found[PROBS]
    same = probs.argmax(1) == others.argmax(1)
    best = np.sort(probs, 1)[:, -2:]
    score = None
    if SCORE in wanted:
        score = largest((found[SCORE] - wanted[SCORE]) / np.maximum(1, np.abs(wanted[SCORE])))
    exchanged = ~same & (best[:, 1] - best[:, 0] > CLOSE)
    return Parity(len(probs), largest(others - probs), score, int(same.sum()), int(exchanged.sum()))


def largest(differences: NDArray[Any]) -> float:
    """Of absolute values; infinite where one is not finite."""
    return float(np.nan_to_num(np.abs(differences), nan=np.inf, posinf=np.inf).max())
