"""One result of a web search: a character, or nothing but a photograph, in one of the looks that the web has."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps, ImageStat

from ...errors import UserError
from . import glyphs
from .digits import PHOTO_SIDE, crop, scene
from .glyphs import CANVAS, MIN_CONTRAST, OVERSAMPLE, draws

Colour = tuple[int, int, int]

# Left out, for turned or in some font they may be read as digits: C D O Q U c o (0), I J L i j l t f (1), Z z (2),
# T (7), S s (5), G b (6), B (8), a d e g p q y (2, 6, 9).
LETTERS = "AEFHKMNPRVWXYhkmnruvwx"
SYMBOLS = "★☀☂☎✈✉✂♫☺☠⚓⚡⚙♥♠♣♦→←↑↓✓✗+=#@€π√∑*"
HAND_LETTERS = "".join(sorted(set(glyphs.STROKES) - set("0123456789")))
LIT_LETTERS = "".join(sorted(set(glyphs.SEGMENTS) - set("0123456789")))
STYLES, STYLE_RATES = ("printed", "handwritten", "lit"), (0.55, 0.33, 0.12)
CLOSE_UP = (48, PHOTO_SIDE)  # the sides of what is cut from a photograph
MAX_SPREAD = 35  # of the grey values below a character; where they spread more it gets a rim


@dataclass(frozen=True, eq=False)
class Supplies:
    """What images are made from: fonts, those of them that have the symbols, photographs."""

    fonts: tuple[ImageFont.FreeTypeFont, ...]
    symbol_fonts: tuple[ImageFont.FreeTypeFont, ...]
    photos: tuple[NDArray[np.uint8], ...]

    @classmethod
    def of(cls, fonts: list[Path], photos: list[Path]) -> Supplies:
        """Open the files."""
        opened = {path: ImageFont.truetype(str(path), glyphs.HEIGHT) for path in fonts}
        symbols = tuple(font for path, font in opened.items() if draws(path, SYMBOLS))
        if not symbols:
            raise UserError("no font with symbols in matplotlib: run pip install --force-reinstall matplotlib")
        return cls(tuple(opened.values()), symbols, tuple(scene(path) for path in photos))


def draw_digit(digit: int, supplies: Supplies, rng: np.random.Generator) -> NDArray[np.uint8]:
    """An image (32, 32, 3) of a digit."""
    return _composed(_character({style: str(digit) for style in STYLES}, supplies, rng), supplies, rng)


def draw_letter(supplies: Supplies, rng: np.random.Generator) -> NDArray[np.uint8]:
    """An image of a letter, in the looks that digits have."""
    pools = {"printed": LETTERS, "handwritten": HAND_LETTERS, "lit": LIT_LETTERS}
    return _composed(_character(pools, supplies, rng), supplies, rng)


def draw_symbol(supplies: Supplies, rng: np.random.Generator) -> NDArray[np.uint8]:
    """An image of a sign that is neither letter nor digit."""
    font = supplies.symbol_fonts[rng.integers(len(supplies.symbol_fonts))]
    return _composed(glyphs.printed(_one_of(SYMBOLS, rng), font), supplies, rng)


def draw_photo(supplies: Supplies, rng: np.random.Generator) -> NDArray[np.uint8]:
    """A photograph with nothing written on it."""
    return _finished(_photo(supplies, rng), rng)


def _one_of(characters: str, rng: np.random.Generator) -> str:
    return characters[rng.integers(len(characters))]


def _character(pools: dict[str, str], supplies: Supplies, rng: np.random.Generator) -> Image.Image:
    """One character in a random style, out of those that the style has."""
    style = str(rng.choice(STYLES, p=STYLE_RATES))
    character = _one_of(pools[style], rng)
    if style == "handwritten":
        return glyphs.handwritten(character, rng)
    if style == "lit":
        return glyphs.lit(character, rng)
    font = supplies.fonts[rng.integers(len(supplies.fonts))]
    return glyphs.printed(character, font, hollow=bool(rng.random() < 0.15))


def _composed(glyph: Image.Image, supplies: Supplies, rng: np.random.Generator) -> NDArray[np.uint8]:
    """The character on its ground, in a colour that can be told from it."""
    mask, page = _placed(glyph, rng), _ground(supplies, rng)
    for _ in range(int(rng.integers(1, 5)) if rng.random() < 0.45 else 0):
        _add_shape(page, rng)
    if rng.random() < 0.3:
        _add_plate(page, mask, rng)
    below = ImageStat.Stat(page.convert("L"), mask)
    ink = _colour_against(below.mean[0], rng)
    if rng.random() < 0.2 or below.stddev[0] > MAX_SPREAD:
        page.paste(_colour_against(_luma(ink), rng), mask=mask.filter(ImageFilter.MaxFilter(7)))
    elif rng.random() < 0.25:  # a shadow
        page.paste((0, 0, 0), (OVERSAMPLE, OVERSAMPLE), mask.point(lambda value: value // 2))
    page.paste(ink, mask=mask)
    return _finished(page, rng)


def _placed(glyph: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The character turned, scaled and moved to any place where it fits: a mask of the canvas."""
    turned = glyphs.cut_out(glyph.rotate(rng.uniform(-12, 12), Image.Resampling.BILINEAR, expand=True))
    stretch = rng.uniform(0.85, 1.2)
    scale = min(rng.uniform(0.5, 0.92) * CANVAS / turned.height, 0.92 * CANVAS / (turned.width * stretch))
    size = (max(1, round(turned.width * stretch * scale)), max(1, round(turned.height * scale)))
    left, top = (int(rng.integers(CANVAS - side + 1)) for side in size)
    mask = Image.new("L", (CANVAS, CANVAS))
    mask.paste(turned.resize(size, Image.Resampling.BILINEAR), (left, top))
    return mask


def _ground(supplies: Supplies, rng: np.random.Generator) -> Image.Image:
    """What the character stands on: paper of one colour, a blend of two, a pattern, or a photograph."""
    kind = rng.random()
    if kind < 0.4:
        return _photo(supplies, rng)
    first, second = _colour(rng), _colour(rng)
    if kind < 0.6:
        return Image.new("RGB", (CANVAS, CANVAS), first)
    if kind < 0.8:
        slope = Image.linear_gradient("L").rotate(float(rng.uniform(0, 360)), Image.Resampling.BILINEAR)
        inside = slope.crop((38, 38, 218, 218))  # of 256 px: no corner of the turned square is in it
        return ImageOps.colorize(inside.resize((CANVAS, CANVAS)), first, second)
    return _pattern(first, rng)


def _pattern(paper: Colour, rng: np.random.Generator) -> Image.Image:
    """Ruled or squared paper, or stripes: lines a little lighter or darker than the paper."""
    page = Image.new("RGB", (CANVAS, CANVAS), paper)
    step, shift = int(rng.integers(9, 30)), int(rng.integers(-60, 61))
    line: Colour = tuple(int(np.clip(value + shift, 0, 255)) for value in paper)  # type: ignore[assignment]
    width, draw = int(rng.integers(2, max(3, step // 2))), ImageDraw.Draw(page)
    across, down = rng.random() < 0.7, rng.random() < 0.5
    for at in range(int(rng.integers(step)), CANVAS, step):
        if across:
            draw.line((0, at, CANVAS, at), line, width)
        if down or not across:
            draw.line((at, 0, at, CANVAS), line, width)
    return page


def _photo(supplies: Supplies, rng: np.random.Generator) -> Image.Image:
    """A part of a photograph, near or far, mirrored or toned."""
    whole = supplies.photos[rng.integers(len(supplies.photos))]
    part = Image.fromarray(crop(whole, int(rng.integers(*CLOSE_UP)), rng))
    page = part.resize((CANVAS, CANVAS), Image.Resampling.BICUBIC)
    if rng.random() < 0.5:
        page = ImageOps.mirror(page)
    if rng.random() < 0.4:
        one = _colour(rng)
        dark, light = sorted((one, _colour_against(_luma(one), rng)), key=_luma)
        page = ImageOps.colorize(ImageOps.autocontrast(page.convert("L")), dark, light)
    return page


def _add_shape(page: Image.Image, rng: np.random.Generator) -> None:
    """Clutter: a disc, a box, a triangle or a line, anywhere."""
    draw, colour = ImageDraw.Draw(page), _colour(rng)
    corners = rng.integers(-CANVAS // 4, 5 * CANVAS // 4, (3, 2))
    low, high = corners[:2].min(0), corners[:2].max(0)
    box = (int(low[0]), int(low[1]), int(high[0]), int(high[1]))
    kind = int(rng.integers(4))
    if kind == 0:
        draw.ellipse(box, fill=colour)
    elif kind == 1:
        draw.rectangle(box, fill=colour)
    elif kind == 2:
        draw.polygon([(int(x), int(y)) for x, y in corners], fill=colour)
    else:
        draw.line(box, colour, int(rng.integers(2, 8)))


def _add_plate(page: Image.Image, mask: Image.Image, rng: np.random.Generator) -> None:
    """A sign below the character: a rounded box or a disc, with or without an edge."""
    left, top, right, bottom = mask.getbbox() or (0, 0, CANVAS, CANVAS)
    margin, draw = int(rng.integers(4, 14)), ImageDraw.Draw(page)
    fill, edge, width = _colour(rng), _colour(rng), int(rng.integers(0, 6))
    if rng.random() < 0.5:
        box = (left - margin, top - margin, right + margin, bottom + margin)
        draw.rounded_rectangle(box, int(rng.integers(0, 16)), fill, edge, width)
    else:
        x, y = (left + right) / 2, (top + bottom) / 2
        reach = max(right - left, bottom - top) / 2 + margin
        draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill, edge, width)


def _finished(page: Image.Image, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Framed or not, reduced to 32 px and packed as JPEG, as the small pictures of a result page are."""
    if rng.random() < 0.15:
        width = int(rng.integers(3, 9))
        ImageDraw.Draw(page).rectangle((0, 0, CANVAS - 1, CANVAS - 1), outline=_colour(rng), width=width)
    packed = BytesIO()
    page.reduce(OVERSAMPLE).save(packed, "JPEG", quality=int(rng.integers(50, 96)))
    return np.asarray(Image.open(packed).convert("RGB"))


def _colour(rng: np.random.Generator) -> Colour:
    """Black and white often, as on the web; else any."""
    if rng.random() < 0.25:
        return (255, 255, 255) if rng.random() < 0.6 else (0, 0, 0)
    red, green, blue = rng.integers(256, size=3)
    return int(red), int(green), int(blue)


def _colour_against(luma: float, rng: np.random.Generator) -> Colour:
    """A colour whose grey value is far enough from `luma` (0 to 255)."""
    while True:
        colour = _colour(rng)
        if abs(_luma(colour) - luma) >= 255 * MIN_CONTRAST:
            return colour


def _luma(colour: Colour) -> float:
    red, green, blue = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue
