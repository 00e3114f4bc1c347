"""The style of a domain, measured on its thumbnails: brightness, colorfulness, contrast and texture.

No network and no label is involved, so domains that training has aligned still count as different.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from ..files import read_bytes
from ..schema import Index, SampledDomain, damaged
from .run_folder import Run

NUM_SCALES = 3  # each halves the side of the one before
MIN_TILE = 16  # pixels: the coarsest scale still has a texture
LOG_FLOOR = 0.01  # added before a logarithm: values below it are noise
MIN_SPREAD = 1e-3  # a statistic that varies less is constant, such as the colorfulness of gray images
MIN_IMAGES = 30  # of a domain: below it, the sampling error of a mean is as large as a small difference
Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Style:
    """Mean and variance of every style statistic over the sampled images of a domain."""

    mean: Floats
    variance: Floats
    images: int


def styles(run: Run) -> dict[str, Style]:
    """Return the styles of all domains with enough thumbnails."""
    index = run.samples
    if index is None or index.tile < MIN_TILE:
        return {}
    paths = {name: run.folder / "samples" / domain.sprite for name, domain in index.domains.items()}
    return {
        name: style_of(paths[name], index, domain)
        for name, domain in index.domains.items()
        if len(domain.rows) >= MIN_IMAGES and paths[name].exists()
    }


def style_of(path: Path, index: Index, domain: SampledDomain) -> Style:
    """Return the style of a sheet of thumbnails."""
    state = path.stat()
    return _style(path, state.st_mtime_ns, state.st_size, index.tile, index.columns, len(domain.rows))


@lru_cache(maxsize=256)
def _style(path: Path, changed: int, size: int, tile: int, columns: int, count: int) -> Style:
    """Measure a sheet in its state of that time; a page that is refreshed measures every sheet once."""
    values = statistics(thumbnails(path, tile, columns, count))
    return Style(values.mean(0), values.var(0, ddof=1), count)


def thumbnails(path: Path, tile: int, columns: int, count: int) -> Floats:
    """Return the thumbnails of a sheet, (count, tile, tile, 3) in [0, 1]."""
    lines = -(-count // columns)
    pixels = _decoded(path, (columns * tile, lines * tile))
    return pixels.reshape(lines, tile, columns, tile, 3).swapaxes(1, 2).reshape(-1, tile, tile, 3)[:count]


def _decoded(path: Path, size: tuple[int, int]) -> Floats:
    try:
        with Image.open(BytesIO(read_bytes(path)), formats=["WEBP"]) as sheet:
            if sheet.size == size:  # else no pixel is decoded
                return np.asarray(sheet.convert("RGB"), np.float32) / 255
            width, height = sheet.size
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
        raise damaged(path, "it is not a WebP image") from None
    raise damaged(path, f"it has {width} × {height} pixels")


def statistics(images: Floats) -> Floats:
    """Compute 28 statistics of each image (n, H, W, 3): those of `models.styles.plain_statistics`, without torch.

    Of brightness and colorfulness (largest minus smallest channel): mean and deviation, and at three scales those of
    the gradient magnitude and the Laplacian. Logarithms, because contrasts differ by factors.
    """
    gray, color = images.mean(3), images.max(3) - images.min(3)
    maps = np.stack([gray, color], axis=1)
    mean, deviation = _moments(maps)
    parts = [mean[:, :1], _log(deviation[:, :1]), _log(mean[:, 1:]), _log(deviation[:, 1:])]
    for _ in range(NUM_SCALES):
        for edges in (_gradient(maps), np.abs(_laplacian(maps))):
            parts += [_log(moment) for moment in _moments(edges)]
        maps = _halved(maps)
    return np.concatenate(parts, axis=1)


def _moments(maps: Floats) -> tuple[Floats, Floats]:
    return maps.mean((2, 3)), maps.std((2, 3), ddof=1)


def _log(values: Floats) -> Floats:
    return np.asarray(np.log(values + LOG_FLOOR))


def _gradient(maps: Floats) -> Floats:
    inner = maps[..., 1:, 1:]
    return np.asarray(np.sqrt((inner - maps[..., 1:, :-1]) ** 2 + (inner - maps[..., :-1, 1:]) ** 2))


def _laplacian(maps: Floats) -> Floats:
    neighbors = maps[..., 2:, 1:-1] + maps[..., :-2, 1:-1] + maps[..., 1:-1, 2:] + maps[..., 1:-1, :-2]
    return 4 * maps[..., 1:-1, 1:-1] - neighbors


def _halved(maps: Floats) -> Floats:
    height, width = (side // 2 for side in maps.shape[2:])
    even = maps[..., : 2 * height, : 2 * width]
    return np.asarray(even.reshape(*maps.shape[:2], height, 2, width, 2).mean((3, 5)))


def distances(known: dict[str, Style]) -> dict[frozenset[str], float]:
    """Return the distance of every two domains, in standard deviations within a domain.

    Root mean square over the statistics that vary, less what the sampling error of the two means adds to it.
    """
    spread = np.mean([style.variance for style in known.values()], axis=0) if known else np.zeros(0)
    varies = spread > MIN_SPREAD**2
    names = list(known)
    pairs = [(a, b) for n, a in enumerate(names) for b in names[n + 1 :]]
    return {frozenset((a, b)): _distance(known[a], known[b], spread, varies) for a, b in pairs}


def _distance(a: Style, b: Style, spread: Floats, varies: NDArray[np.bool_]) -> float:
    if not varies.any():
        return 0.0
    squares = (a.mean - b.mean)[varies] ** 2 - a.variance[varies] / a.images - b.variance[varies] / b.images
    return math.sqrt(max(0.0, float(np.mean(squares / spread[varies]))))
