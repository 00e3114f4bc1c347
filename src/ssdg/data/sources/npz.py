"""Images of .npz files as folders of PNG files, one per class: what data of one's own look like."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...errors import UserError
from ...files import locked


def unpack_arrays(root: Path, to: Path, per_class: int | None = None) -> dict[str, int]:
    """Write DOMAIN.npz of `root` as `to`/DOMAIN/CLASS/N.png, the first `per_class` of each; returns the numbers.

    A crawl, which has `web_labels`, is sorted by these. The folder appears whole or not at all.
    """
    files = sorted(root.glob("*.npz"))
    if not files:
        raise UserError(f"'{root}' holds no .npz file to unpack; give digits, web-digits, or a folder of such files")
    if to.exists():
        raise UserError(f"'{to}' exists already; give a folder that does not, or delete it")
    building = to.with_name(f".{to.name}.building")
    to.parent.mkdir(parents=True, exist_ok=True)
    with locked(to.with_name(f".{to.name}.lock")):
        shutil.rmtree(building, ignore_errors=True)  # of a killed process
        counts = {file.stem: _unpack_domain(file, building / file.stem, per_class) for file in files}
        building.replace(to)
    to.with_name(f".{to.name}.lock").unlink(missing_ok=True)
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
