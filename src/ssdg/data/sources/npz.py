"""Unpack .npz files into folders of PNG files, one per class: the layout of custom data."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ...errors import UserError
from ...files import atomic_folder, locked, write_json

RECORD = "unpacked.json"  # in the output folder


def unpack_arrays(root: Path, out_dir: Path, per_class: int | None = None) -> dict[str, int]:
    """Write DOMAIN.npz of `root` as `out_dir`/DOMAIN/CLASS/N.png, the first `per_class` of each; return the counts.

    A crawl is sorted by its `web_labels`. The folder appears complete or not at all; if it already has these images,
    nothing is written.
    """
    files = sorted(root.glob("*.npz"))
    if not files:
        raise UserError(
            f"'{root}' contains no .npz file to unpack; pass digits, web-digits, or a folder of .npz files"
        )
    job = {"sha256": {file.stem: _digest(file) for file in files}, "per_class": per_class}
    with locked(out_dir.with_name(f".{out_dir.name}.lock")):
        if out_dir.exists():
            return _read_counts(out_dir, job)
        with atomic_folder(out_dir) as temporary:
            counts = {file.stem: _unpack_domain(file, temporary / file.stem, per_class) for file in files}
            write_json(temporary / RECORD, job | {"images": counts})
    return counts


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _read_counts(out_dir: Path, job: dict[str, Any]) -> dict[str, int]:
    """Return the counts of a folder that the same job wrote; reject any other."""
    try:
        record = json.loads((out_dir / RECORD).read_text(encoding="utf-8"))
        counts = {name: sum(1 for _ in (out_dir / name).rglob("*.png")) for name in record["images"]}
        if record == job | {"images": counts}:
            return counts
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(f"'{out_dir}' already exists; choose another folder, or delete it")


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
