"""Unpack .npz files into folders of PNG files, one per class: the layout of custom data."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...errors import UserError
from ...files import locked


def unpack_arrays(root: Path, out_dir: Path, per_class: int | None = None) -> dict[str, int]:
    """Write DOMAIN.npz of `root` as `out_dir`/DOMAIN/CLASS/N.png, the first `per_class` of each; return the counts.

    A crawl is sorted by its `web_labels`. The folder appears complete or not at all.
    """
    files = sorted(root.glob("*.npz"))
    if not files:
        raise UserError(
            f"'{root}' contains no .npz file to unpack; pass digits, web-digits, or a folder of .npz files"
        )
    if out_dir.exists():
        raise UserError(f"'{out_dir}' already exists; choose another folder, or delete it")
    building = out_dir.with_name(f".{out_dir.name}.building")
    lock = out_dir.with_name(f".{out_dir.name}.lock")
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    with locked(lock):
        shutil.rmtree(building, ignore_errors=True)  # left behind by a killed process
        counts = {file.stem: _unpack_domain(file, building / file.stem, per_class) for file in files}
        building.replace(out_dir)
    lock.unlink(missing_ok=True)
    return counts


def _unpack_domain(file: Path, folder: Path, per_class: int | None) -> int:
    with np.load(file, allow_pickle=False) as arrays:
        labels: NDArray[np.int64] = arrays["web_labels" if "web_labels" in arrays else "labels"]
        images: NDArray[np.uint8] = arrays["images"]
    count = 0
    for label in np.unique(labels[labels >= 0]):
        (folder / str(label)).mkdir(parents=True)
        for row in np.flatnonzero(labels == label)[:per_class]:
            Image.fromarray(images[row]).save(folder / str(label) / f"{row:05}.png")
            count += 1
    return count
