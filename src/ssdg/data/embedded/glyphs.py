"""Rendering of characters: in installed fonts (after Ganin and Lempitsky, 2015), handwritten, or as segments."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

from ...errors import UserError
from ...seeds import numpy_rng

SIDE = 32
NUM_CLASSES = 10
OVERSAMPLE = 3  # drawn larger by this factor, then reduced for smooth edges
CANVAS = SIDE * OVERSAMPLE
SYMBOL_FONTS = ("cmex", "cmmi", "cmsy", "STIXNonUni", "STIXSiz", "LastResort")  # without upright digits
MIN_CONTRAST = 0.35  # between ink and background, as a difference of luma in [0, 1]
LUMA = np.array([0.299, 0.587, 0.114])


def find_fonts() -> list[Path]:
    """Find fonts with all digits: matplotlib's text fonts, and those that packages register as `fonts_ttf`."""
    folder = package_folder("matplotlib") / "mpl-data" / "fonts" / "ttf"
    text_fonts = [path for path in sorted(folder.glob("*.ttf")) if not path.name.startswith(SYMBOL_FONTS)]
    fonts = [path for path in [*text_fonts, *_find_registered_fonts()] if has_digits(path)]
    if not fonts:
        raise UserError(f"no font with digits in {folder}; run pip install --force-reinstall matplotlib")
    return fonts


def package_folder(package: str) -> Path:
    """Return the folder of an installed package without importing it."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _find_registered_fonts() -> list[Path]:
    """Find font files that installed packages register, as one path or as a dict of paths by name."""
    fonts: list[Path] = []
    for entry in sorted(entry_points(group="fonts_ttf"), key=lambda e: e.name):
        try:
            value = entry.load()
        except (ImportError, AttributeError):  # ignore a broken font package
            continue
        by_name = value if isinstance(value, dict) else {entry.name: value}
        fonts += [Path(path) for _, path in sorted(by_name.items()) if isinstance(path, str | Path)]
    return fonts


def has_digits(path: Path) -> bool:
    """Return whether the font draws ten different digits, none of them blank or its missing-glyph sign."""
    return has_glyphs(path, "0123456789")


def has_glyphs(path: Path, characters: str) -> bool:
    """Return whether the font draws these characters, all different, none blank or its missing-glyph sign."""
    try:
        font = ImageFont.truetype(str(path), 24)
    except OSError:
        return False
    masks = {bytes(font.getmask(character)) for character in characters}
    missing = bytes(font.getmask("\uffff"))
    return len(masks) == len(characters) and missing not in masks and all(any(mask) for mask in masks)


def render_digits(fonts: list[Path], per_class: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Render `per_class` images (32, 32, 3) of each digit; return them and their labels."""
    rng = numpy_rng("digits", seed, "syn")
    labels = np.repeat(np.arange(NUM_CLASSES), per_class)
    loaded = [ImageFont.truetype(str(path), 0.75 * CANVAS) for path in fonts]
    images = [render(int(digit), loaded[rng.integers(len(loaded))], rng) for digit in labels]
    return np.stack(images), labels


def render(digit: int, font: ImageFont.FreeTypeFont, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Render a house number cropped to a 32x32 window with `digit` in its center."""
    ink, background = _random_colors(rng)
    mask = _blur(_warp(_draw_number(digit, font, rng), rng), rng)
    noise = rng.normal(0, rng.uniform(0, 0.06), (SIDE, SIDE, 3))
    image: NDArray[np.float64] = background + (ink - background) * mask[..., None] + _lighting(rng) + noise
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _draw_number(digit: int, font: ImageFont.FreeTypeFont, rng: np.random.Generator) -> Image.Image:
    """Draw white on black, twice as large as the canvas: `digit` in the center, with or without neighbors."""
    page = Image.new("L", (2 * CANVAS, 2 * CANVAS))
    draw = ImageDraw.Draw(page)
    draw.text((CANVAS, CANVAS), str(digit), 255, font, anchor="mm")
    reach = font.getlength(str(digit)) / 2 + rng.uniform(0, 0.06) * CANVAS
    for anchor, x in (("rm", CANVAS - reach), ("lm", CANVAS + reach)):
        neighbor, has_neighbor = rng.integers(NUM_CLASSES), rng.random() < 0.5
        if has_neighbor:
            draw.text((x, CANVAS), str(neighbor), 255, font, anchor=anchor)
    return page


def _warp(page: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Rotate, shear, scale and shift about the center of the page; return its central part, 32x32."""
    angle, slant = rng.uniform(-0.25, 0.25), rng.uniform(-0.25, 0.25)  # radians, tangent
    scale = 1 / rng.uniform(0.8, 1.25, 2)
    rotation = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    inverse = rotation @ np.array([[1, slant], [0, 1]]) @ np.diag(scale)
    center = np.array([CANVAS / 2, CANVAS / 2]) + rng.uniform(-0.06, 0.06, 2) * CANVAS
    offset = np.array([CANVAS, CANVAS]) - inverse @ center
    data = (*inverse[0], offset[0], *inverse[1], offset[1])
    warped = page.transform((CANVAS, CANVAS), Image.Transform.AFFINE, data, Image.Resampling.BILINEAR)
    return warped.reduce(OVERSAMPLE)


def _blur(mask: Image.Image, rng: np.random.Generator) -> NDArray[np.float64]:
    """Blur the mask; return it in [0, 1]."""
    return np.asarray(mask.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.0))), np.float64) / 255


def _random_colors(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw ink and background (2, 3), uniform among the pairs with enough contrast in grayscale."""
    while True:
        pair = rng.random((2, 3))
        if abs(float((pair[0] - pair[1]) @ LUMA)) >= MIN_CONTRAST:
            return pair


def _lighting(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a random linear brightness gradient across the image: (32, 32, 1)."""
    down, across = rng.uniform(-0.12, 0.12, 2)
    ramp = np.linspace(-1, 1, SIDE)
    slope: NDArray[np.float64] = down * ramp[:, None] + across * ramp
    return slope[..., None]


Point = tuple[float, float]  # (x, y); a character spans 0 to 1 in both directions
HEIGHT = 96  # px

# A repeated point is a corner.
# fmt: off
STROKES: dict[str, tuple[tuple[Point, ...], ...]] = {
    "0": (((.5, 0), (.1, .1), (0, .5), (.1, .9), (.5, 1), (.9, .9), (1, .5), (.9, .1), (.5, 0)),),
    "1": (((.1, .3), (.5, 0), (.5, 0), (.5, 1)),),
    "2": (((.05, .25), (.2, 0), (.85, 0), (.95, .35), (.5, .7), (0, 1), (0, 1), (1, 1)),),
    "3": (((.05, .1), (.5, -.05), (1, .2), (.75, .47), (.35, .48), (.35, .48), (.8, .5), (1.05, .78), (.55, 1.05),
           (0, .88)),),
    "4": (((.6, 0), (0, .65), (0, .65), (1, .65)), ((.75, .3), (.72, 1))),
    "5": (((.95, 0), (.15, 0), (.15, 0), (.1, .45), (.1, .45), (.65, .33), (1.05, .65), (.65, 1.05), (0, .92)),),
    "6": (((.8, 0), (.3, .2), (0, .65), (.2, 1), (.8, 1), (1, .68), (.6, .48), (.05, .75)),),
    "7": (((0, 0), (1, 0), (1, 0), (.35, 1)),),
    "8": (((.5, .47), (0, .25), (.5, -.05), (1, .22), (.5, .47), (-.05, .78), (.5, 1.05), (1.05, .78), (.5, .47)),),
    "9": (((.92, .25), (.5, -.05), (.02, .25), (.4, .58), (.92, .3), (.92, .1), (.95, .5), (.75, 1)),),
    "A": (((0, 1), (.5, 0), (.5, 0), (1, 1)), ((.2, .62), (.8, .62))),
    "E": (((.95, 0), (0, 0), (0, 0), (0, 1), (0, 1), (1, 1)), ((0, .5), (.8, .5))),
    "F": (((.95, 0), (0, 0), (0, 0), (0, 1)), ((0, .5), (.8, .5))),
    "H": (((0, 0), (0, 1)), ((1, 0), (1, 1)), ((0, .5), (1, .5))),
    "K": (((0, 0), (0, 1)), ((.9, 0), (.05, .55), (.05, .55), (1, 1))),
    "M": (((0, 1), (.1, 0), (.1, 0), (.5, .7), (.5, .7), (.9, 0), (.9, 0), (1, 1)),),
    "N": (((0, 1), (0, 0), (0, 0), (1, 1), (1, 1), (1, 0)),),
    "R": (((0, 1), (0, 0), (0, 0), (.9, 0), (.95, .5), (0, .52), (0, .52), (.25, .52), (.25, .52), (1, 1)),),
    "W": (((0, 0), (.25, 1), (.25, 1), (.5, .3), (.5, .3), (.75, 1), (.75, 1), (1, 0)),),
    "X": (((0, 0), (1, 1)), ((1, 0), (0, 1))),
}
# fmt: on
SEGMENTS = {  # a: top, then clockwise to f; g: middle
    "0": "abcdef",
    "1": "bc",
    "2": "abged",
    "3": "abgcd",
    "4": "fgbc",
    "5": "afgcd",
    "6": "afgedc",
    "7": "abc",
    "8": "abcdefg",
    "9": "abcdfg",
    "E": "adefg",
    "F": "aefg",
    "H": "bcefg",
    "L": "def",
    "P": "abefg",
}
CORNERS: dict[str, tuple[Point, Point]] = {
    "a": ((0, 0), (1, 0)),
    "b": ((1, 0), (1, 0.5)),
    "c": ((1, 0.5), (1, 1)),
    "d": ((0, 1), (1, 1)),
    "e": ((0, 0.5), (0, 1)),
    "f": ((0, 0), (0, 0.5)),
    "g": ((0, 0.5), (1, 0.5)),
}


def draw_printed(character: str, font: ImageFont.FreeTypeFont, *, hollow: bool = False) -> Image.Image:
    """Draw a character in a font, filled or as an outline."""
    page = _new_page()
    center, draw = (page.width / 2, page.height / 2), ImageDraw.Draw(page)
    if not hollow:
        draw.text(center, character, 255, font, anchor="mm")
        return trim(page)
    edge = round(0.04 * HEIGHT)
    draw.text(center, character, 255, font, anchor="mm", stroke_width=edge)
    inside = _new_page()
    ImageDraw.Draw(inside).text(center, character, 255, font, anchor="mm")
    return trim(ImageChops.subtract(page, inside))


def draw_handwritten(character: str, rng: np.random.Generator) -> Image.Image:
    """Draw a character with pen strokes whose points are slightly displaced."""
    page, width = _new_page(), rng.uniform(0.5, 0.8) * HEIGHT
    pen = round(rng.uniform(0.07, 0.16) * HEIGHT)
    slant = rng.uniform(-0.1, 0.3)
    for stroke in STROKES[character]:
        points, corner = np.array(stroke), np.array([HEIGHT / 2 + width / 4, HEIGHT / 2])
        moved, inverse = np.unique(points, axis=0, return_inverse=True)
        moved = moved + rng.normal(0, 0.035, moved.shape)
        curve = smooth(moved[inverse.ravel()]) * [width, HEIGHT]
        curve[:, 0] += slant * (HEIGHT - curve[:, 1])
        _draw_line(page, curve + corner, pen)
    return trim(page)


def draw_segments(character: str, rng: np.random.Generator) -> Image.Image:
    """Draw a character with seven segments, as on a clock or a calculator."""
    page, width, bar = _new_page(), rng.uniform(0.45, 0.65) * HEIGHT, rng.uniform(0.08, 0.15) * HEIGHT
    gap, slant = rng.uniform(0, 0.45) * bar, rng.uniform(0, 0.15)
    for name in SEGMENTS[character]:
        start, end = (np.array(point) * [width, HEIGHT] for point in CORNERS[name])
        along = (end - start) / np.linalg.norm(end - start)
        line = np.stack([start + along * gap, end - along * gap])
        line[:, 0] += slant * (HEIGHT - line[:, 1])
        across = np.array([-along[1], along[0]]) * bar / 2
        corners = np.concatenate([line + across, (line - across)[::-1]]) + HEIGHT / 2
        ImageDraw.Draw(page).polygon([(float(x), float(y)) for x, y in corners], fill=255)
    return trim(page)


def smooth(points: NDArray[np.float64], times: int = 3) -> NDArray[np.float64]:
    """Smooth a polyline by repeated corner cutting (Chaikin); the ends stay, and repeated points almost do."""
    for _ in range(times):
        before, after = points[:-1], points[1:]
        cut = np.stack([0.75 * before + 0.25 * after, 0.25 * before + 0.75 * after], axis=1).reshape(-1, 2)
        points = np.concatenate([points[:1], cut, points[-1:]])
    return points


def trim(page: Image.Image) -> Image.Image:
    """Crop the empty margin of a page."""
    return page.crop(page.getbbox())


def _new_page() -> Image.Image:
    return Image.new("L", (2 * HEIGHT, 2 * HEIGHT))


def _draw_line(page: Image.Image, curve: Iterable[NDArray[np.float64]], pen: int) -> None:
    draw, points = ImageDraw.Draw(page), [(float(x), float(y)) for x, y in curve]
    draw.line(points, 255, pen, joint="curve")
    for x, y in (points[0], points[-1]):
        draw.ellipse((x - pen / 2, y - pen / 2, x + pen / 2, y + pen / 2), fill=255)
