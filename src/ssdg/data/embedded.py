"""Images made on this machine: folders in the cache that are made once, and the photographs packages carry."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import UserError
from ..files import atomic_path, locked
from .rendering import installed

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
