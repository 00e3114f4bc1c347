"""The typical size of a domain's images, from a few of them, before any is decoded for training."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

import numpy as np

from .sources.decode import UnreadableError, decode_whole
from .sources.tree import Item, Reader

NUM_SAMPLED = 16
SMALL_SIDE = 40  # px: smaller images are taken for characters, and pretrained networks see little in them


def typical_side(items: Sequence[Item]) -> int | None:
    """Return the median of the longer side, in pixels, of a few images; None if none of them is readable.

    They are spread evenly over `items`. The median ignores a few thumbnails or scans of another size.
    """
    sides = []
    with Reader() as reader:
        for index in np.unique(np.linspace(0, len(items) - 1, NUM_SAMPLED).round().astype(int)) if items else ():
            try:
                content = reader.read(items[index])
                pixels = decode_whole(content) if isinstance(content, bytes) else content
            except (OSError, UnreadableError):
                continue  # reported when all images are decoded
            sides.append(max(pixels.shape[:2]))
    return median_low(sides) if sides else None
