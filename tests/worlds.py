"""Tiny made-up domains for tests: coloured shapes in 32 px, two or more classes, quick to learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIZE = 32
CLASSES = ("bar", "disc", "ring")
TINTS = {"photo": (255, 200, 40), "sketch": (230, 230, 230), "neon": (40, 255, 220), "night": (120, 90, 255)}


def picture(kind: str, tint: tuple[int, int, int], rng: np.random.Generator) -> NDArray[np.uint8]:
    """One noisy image of a class in a domain's colour."""
    rows, columns = np.mgrid[:SIZE, :SIZE]
    y, x = rng.integers(12, 20, 2)
    distance = np.hypot(rows - y, columns - x)
    shape = {
        "bar": np.abs(rows - y) < 3,
        "disc": distance < 8,
        "ring": np.abs(distance - 8) < 2,
    }[kind]
    image = rng.integers(0, 60, (SIZE, SIZE, 3)) + shape[..., None] * (np.array(tint) // 2)
    return np.clip(image, 0, 255).astype(np.uint8)


def write_world(
    root: Path,
    domains: tuple[str, ...] = ("photo", "sketch", "neon", "night"),
    per_class: int = 8,
    classes: tuple[str, ...] = CLASSES,
) -> Path:
    """`root/domain/class/n.png` for every domain; the same call writes the same bytes."""
    for domain in domains:
        rng = np.random.default_rng(sum(map(ord, domain)))
        for name in classes:
            folder = root / domain / name
            folder.mkdir(parents=True, exist_ok=True)
            for number in range(per_class):
                Image.fromarray(picture(name, TINTS[domain], rng)).save(folder / f"{number}.png")
    return root
