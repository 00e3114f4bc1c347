"""Small image files for the tests of reading data."""

from __future__ import annotations

import zipfile
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def picture(seed: int, width: int = 12, height: int = 10) -> Image.Image:
    """A smooth picture that differs by seed, so that JPEG keeps it nearly."""
    corners = np.random.default_rng(seed).integers(0, 256, (2, 2, 3), np.uint8)
    return Image.fromarray(corners).resize((width, height), Image.Resampling.BILINEAR)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    out = BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def png(seed: int) -> bytes:
    return encoded(picture(seed))


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def zip_files(archive: Path, files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", method) as opened:
        for name, data in files.items():
            opened.writestr(name, data)
    return archive


def class_folders(root: Path, counts: dict[str, int], start: int = 0) -> Path:
    """Different pictures in one folder per class; seeds continue from `start`."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for _ in range(count):
            write(root / name / f"{start:03}.png", png(start))
            start += 1
    return root


def benchmark(root: Path, domains: tuple[str, ...] = ("one", "two", "three"), per_class: int = 6) -> Path:
    for number, domain in enumerate(domains):
        class_folders(root / domain, {"cat": per_class, "dog": per_class}, start=1000 * number)
    return root


def write_splits(folder: Path, domain: str, **lists: list[str]) -> None:
    """Write split files of PACS: lines `path label` by split."""
    for split, lines in lists.items():
        write(folder / f"{domain}_{split}_kfold.txt", "".join(f"{line}\n" for line in lines).encode())


def npz(path: Path, labels: list[int], side: int = 4) -> Path:
    """Write random images with these labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(len(labels)).integers(0, 256, (len(labels), side, side, 3), np.uint8)
    np.savez(path, images=images, labels=np.array(labels))
    return path


def make_link_farm(root: Path) -> None:
    """Thirty folders with two links each to the next, and an image in the last: it has a billion paths."""
    folders = [root / f"f{level}" for level in range(30)]
    for folder in folders:
        folder.mkdir()
    for folder, following in pairwise(folders):
        (folder / "one").symlink_to(following)
        (folder / "two").symlink_to(following)
    write(folders[-1] / "a.png", png(1))
