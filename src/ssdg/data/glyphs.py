"""Characters as a web search shows them: set in a font, drawn by hand, lit on a display. White on black, cut out."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageDraw, ImageFont

Point = tuple[float, float]  # across, down; a character fills 0 to 1 both ways
HEIGHT = 96  # px

# A point that stands twice is a corner.
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
SEGMENTS = {  # a: top, then clockwise to f; g: the middle
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


def printed(character: str, font: ImageFont.FreeTypeFont, *, hollow: bool = False) -> Image.Image:
    """Set in a font, whole or as its outline."""
    page = _page()
    middle, draw = (page.width / 2, page.height / 2), ImageDraw.Draw(page)
    if not hollow:
        draw.text(middle, character, 255, font, anchor="mm")
        return cut_out(page)
    edge = round(0.04 * HEIGHT)
    draw.text(middle, character, 255, font, anchor="mm", stroke_width=edge)
    inside = _page()
    ImageDraw.Draw(inside).text(middle, character, 255, font, anchor="mm")
    return cut_out(ImageChops.subtract(page, inside))


def handwritten(character: str, rng: np.random.Generator) -> Image.Image:
    """Strokes of a pen whose points miss their places a little."""
    page, width = _page(), rng.uniform(0.5, 0.8) * HEIGHT
    pen = round(rng.uniform(0.07, 0.16) * HEIGHT)
    slant = rng.uniform(-0.1, 0.3)
    for stroke in STROKES[character]:
        points, corner = np.array(stroke), np.array([HEIGHT / 2 + width / 4, HEIGHT / 2])
        moved, places = np.unique(points, axis=0, return_inverse=True)
        moved = moved + rng.normal(0, 0.035, moved.shape)
        curve = smoothed(moved[places.ravel()]) * [width, HEIGHT]
        curve[:, 0] += slant * (HEIGHT - curve[:, 1])
        _draw_line(page, curve + corner, pen)
    return cut_out(page)


def lit(character: str, rng: np.random.Generator) -> Image.Image:
    """Seven segments, as on a clock or a calculator."""
    page, width, bar = _page(), rng.uniform(0.45, 0.65) * HEIGHT, rng.uniform(0.08, 0.15) * HEIGHT
    gap, slant = rng.uniform(0, 0.45) * bar, rng.uniform(0, 0.15)
    for name in SEGMENTS[character]:
        start, end = (np.array(point) * [width, HEIGHT] for point in CORNERS[name])
        along = (end - start) / np.linalg.norm(end - start)
        line = np.stack([start + along * gap, end - along * gap])
        line[:, 0] += slant * (HEIGHT - line[:, 1])
        across = np.array([-along[1], along[0]]) * bar / 2
        corners = np.concatenate([line + across, (line - across)[::-1]]) + HEIGHT / 2
        ImageDraw.Draw(page).polygon([(float(x), float(y)) for x, y in corners], fill=255)
    return cut_out(page)


def smoothed(points: NDArray[np.float64], times: int = 3) -> NDArray[np.float64]:
    """Corners cut off again and again (Chaikin); the ends stay, and corners that stand twice nearly do."""
    for _ in range(times):
        before, after = points[:-1], points[1:]
        cut = np.stack([0.75 * before + 0.25 * after, 0.25 * before + 0.75 * after], axis=1).reshape(-1, 2)
        points = np.concatenate([points[:1], cut, points[-1:]])
    return points


def cut_out(page: Image.Image) -> Image.Image:
    """The page without its empty margin."""
    return page.crop(page.getbbox())


def _page() -> Image.Image:
    return Image.new("L", (2 * HEIGHT, 2 * HEIGHT))


def _draw_line(page: Image.Image, curve: Iterable[NDArray[np.float64]], pen: int) -> None:
    draw, points = ImageDraw.Draw(page), [(float(x), float(y)) for x, y in curve]
    draw.line(points, 255, pen, joint="curve")
    for x, y in (points[0], points[-1]):
        draw.ellipse((x - pen / 2, y - pen / 2, x + pen / 2, y + pen / 2), fill=255)
