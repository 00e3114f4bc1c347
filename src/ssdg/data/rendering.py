"""Digits drawn with installed fonts, in the manner of the synthetic numbers of Ganin and Lempitsky (2015)."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from ..errors import UserError
from ..seeds import numpy_rng

SIDE = 32
NUM_CLASSES = 10
OVERSAMPLE = 3  # drawn this much larger, then reduced, so that edges are smooth
CANVAS = SIDE * OVERSAMPLE
SYMBOL_FONTS = ("cmex", "cmmi", "cmsy", "STIXNonUni", "STIXSiz", "LastResort")  # no upright digits in them
MIN_CONTRAST = 0.35  # between ink and paper, as a difference of luma in [0, 1]
LUMA = np.array([0.299, 0.587, 0.114])


def usable_fonts() -> list[Path]:
    """Fonts with all digits: matplotlib's text fonts, and those that packages register as `fonts_ttf`."""
    folder = installed("matplotlib") / "mpl-data" / "fonts" / "ttf"
    own = [path for path in sorted(folder.glob("*.ttf")) if not path.name.startswith(SYMBOL_FONTS)]
    fonts = [path for path in [*own, *_registered_fonts()] if has_digits(path)]
    if not fonts:
        raise UserError(f"no font with digits in {folder}: run pip install --force-reinstall matplotlib")
    return fonts


def installed(package: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _registered_fonts() -> list[Path]:
    """Font files that installed packages register, as one path or as a table of them by name."""
    found: list[Path] = []
    for entry in sorted(entry_points(group="fonts_ttf"), key=lambda e: e.name):
        try:
            value = entry.load()
        except (ImportError, AttributeError):  # a broken font package is no reason to stop
            continue
        named = value if isinstance(value, dict) else {entry.name: value}
        found += [Path(path) for _, path in sorted(named.items()) if isinstance(path, str | Path)]
    return found


def has_digits(path: Path) -> bool:
    """Whether the font draws ten different digits, none of them blank or its sign for a missing character."""
    return draws(path, "0123456789")


def draws(path: Path, characters: str) -> bool:
    """Whether the font draws these characters, all different, none blank or its sign for a missing one."""
    try:
        font = ImageFont.truetype(str(path), 24)
    except OSError:
        return False
    drawn = {bytes(font.getmask(character)) for character in characters}
    missing = bytes(font.getmask("\uffff"))
    return len(drawn) == len(characters) and missing not in drawn and all(any(mask) for mask in drawn)


def render_digits(fonts: list[Path], per_class: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """`per_class` images (32, 32, 3) of each digit, and their labels."""
    rng = numpy_rng("digits", seed, "syn")
    labels = np.repeat(np.arange(NUM_CLASSES), per_class)
    loaded = [ImageFont.truetype(str(path), 0.75 * CANVAS) for path in fonts]
    images = [render(int(digit), loaded[rng.integers(len(loaded))], rng) for digit in labels]
    return np.stack(images), labels


def render(digit: int, font: ImageFont.FreeTypeFont, rng: np.random.Generator) -> NDArray[np.uint8]:
    """One house number seen through a 32x32 window with `digit` in its middle."""
    ink, paper = _colours(rng)
    mask = _degraded(_warped(_number(digit, font, rng), rng), rng)
    noise = rng.normal(0, rng.uniform(0, 0.06), (SIDE, SIDE, 3))
    image: NDArray[np.float64] = paper + (ink - paper) * mask[..., None] + _lighting(rng) + noise
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _number(digit: int, font: ImageFont.FreeTypeFont, rng: np.random.Generator) -> Image.Image:
    """White on black, twice as large as the canvas: `digit` in the middle, with or without neighbours."""
    page = Image.new("L", (2 * CANVAS, 2 * CANVAS))
    draw = ImageDraw.Draw(page)
    draw.text((CANVAS, CANVAS), str(digit), 255, font, anchor="mm")
    reach = font.getlength(str(digit)) / 2 + rng.uniform(0, 0.06) * CANVAS
    for anchor, place in (("rm", CANVAS - reach), ("lm", CANVAS + reach)):
        neighbour, is_there = rng.integers(NUM_CLASSES), rng.random() < 0.5
        if is_there:
            draw.text((place, CANVAS), str(neighbour), 255, font, anchor=anchor)
    return page


def _warped(page: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Turn, slant, scale and move about the middle of the page; the middle part of it, 32x32."""
    turn, slant = rng.uniform(-0.25, 0.25), rng.uniform(-0.25, 0.25)  # radians, tangent
    scale = 1 / rng.uniform(0.8, 1.25, 2)
    turned = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    inverse = turned @ np.array([[1, slant], [0, 1]]) @ np.diag(scale)
    middle = np.array([CANVAS / 2, CANVAS / 2]) + rng.uniform(-0.06, 0.06, 2) * CANVAS
    offset = np.array([CANVAS, CANVAS]) - inverse @ middle
    data = (*inverse[0], offset[0], *inverse[1], offset[1])
    big = page.transform((CANVAS, CANVAS), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return big.reduce(OVERSAMPLE)


def _degraded(mask: Image.Image, rng: np.random.Generator) -> NDArray[np.float64]:
    """The mask out of focus, in [0, 1]."""
    return np.asarray(mask.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.0))), np.float64) / 255


def _colours(rng: np.random.Generator) -> NDArray[np.float64]:
    """Ink and paper (2, 3), uniform among the pairs that can be told apart in grey."""
    while True:
        pair = rng.random((2, 3))
        if abs(float((pair[0] - pair[1]) @ LUMA)) >= MIN_CONTRAST:
            return pair


def _lighting(rng: np.random.Generator) -> NDArray[np.float64]:
    """A slope of brightness across the image: (32, 32, 1)."""
    down, across = rng.uniform(-0.12, 0.12, 2)
    ramp = np.linspace(-1, 1, SIDE)
    slope: NDArray[np.float64] = down * ramp[:, None] + across * ramp
    return slope[..., None]
