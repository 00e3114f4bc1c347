"""Pictures with detail, as photographs have: the smooth ones of other tests look like each other."""

from __future__ import annotations

import numpy as np
from PIL import Image


def scene(seed: int, side: int = 96) -> Image.Image:
    """A picture with detail in all sizes, as photographs have."""
    rng = np.random.default_rng(seed)
    layers = [np.asarray(_enlarged(rng, n, side), np.float64) / n**0.5 for n in (2, 4, 8, 16, 32)]
    mixed = sum(layers) / sum(n**-0.5 for n in (2, 4, 8, 16, 32))
    return Image.fromarray(np.clip((mixed - 128) * 1.8 + 128, 0, 255).astype(np.uint8))


def _enlarged(rng: np.random.Generator, cells: int, side: int) -> Image.Image:
    pixels = rng.integers(0, 256, (cells, cells, 3), np.uint8)
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)
