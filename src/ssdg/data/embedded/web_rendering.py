"""Rendering of simulated web search results: a character, or only a photograph, in typical styles of the web."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps, ImageStat

from ...errors import UserError
from ..sources.decode import open_image
from . import glyphs
from .digits import PHOTO_SIDE, load_photo, random_crop
from .glyphs import CANVAS, MIN_CONTRAST, OVERSAMPLE, has_glyphs

Color = tuple[int, int, int]

# Excluded, because rotated or in some font they look like digits: C D O Q U c o (0), I J L i j l t f (1), Z z (2),
# T (7), S s (5), G b (6), B (8), a d e g p q y (2, 6, 9).
LETTERS = "AEFHKMNPRVWXYhkmnruvwx"
SYMBOLS = "★☀☂☎✈✉✂♫☺☠⚓⚡⚙♥♠♣♦→←↑↓✓✗+=#@€π√∑*"
HAND_LETTERS = "".join(sorted(set(glyphs.STROKES) - set("0123456789")))
LIT_LETTERS = "".join(sorted(set(glyphs.SEGMENTS) - set("0123456789")))
STYLES, STYLE_RATES = ("printed", "handwritten", "lit"), (0.55, 0.33, 0.12)
CLOSE_UP = (48, PHOTO_SIDE)  # range of the side of a crop of a photograph, px
MAX_SPREAD = 35  # standard deviation of gray values behind a character; above it, the character gets an outline


@dataclass(frozen=True, eq=False)
class Assets:
    """Sources of images: fonts, the fonts with symbols, photographs."""

    fonts: tuple[ImageFont.FreeTypeFont, ...]
    symbol_fonts: tuple[ImageFont.FreeTypeFont, ...]
    photos: tuple[NDArray[np.uint8], ...]

    @classmethod
    def load(cls, fonts: list[Path], photos: list[Path]) -> Assets:
        """Load the files."""
        opened = {path: ImageFont.truetype(str(path), glyphs.HEIGHT) for path in fonts}
        symbols = tuple(font for path, font in opened.items() if has_glyphs(path, SYMBOLS))
        if not symbols:
            raise UserError("no font with symbols in matplotlib; run pip install --force-reinstall matplotlib")
        return cls(tuple(opened.values()), symbols, tuple(load_photo(path) for path in photos))


def draw_digit(digit: int, assets: Assets, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw an image (32, 32, 3) of a digit."""
    return _compose(_draw_character({style: str(digit) for style in STYLES}, assets, rng), assets, rng)


def draw_letter(assets: Assets, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw an image of a letter, in the styles of digits."""
    pools = {"printed": LETTERS, "handwritten": HAND_LETTERS, "lit": LIT_LETTERS}
    return _compose(_draw_character(pools, assets, rng), assets, rng)


def draw_symbol(assets: Assets, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw an image of a symbol that is neither letter nor digit."""
    font = assets.symbol_fonts[rng.integers(len(assets.symbol_fonts))]
    return _compose(glyphs.draw_printed(_choose(SYMBOLS, rng), font), assets, rng)


def draw_photo(assets: Assets, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw a photograph without a character."""
    return _finish(_crop_photo(assets, rng), rng)


def _choose(characters: str, rng: np.random.Generator) -> str:
    return characters[rng.integers(len(characters))]


def _draw_character(pools: dict[str, str], assets: Assets, rng: np.random.Generator) -> Image.Image:
    """Draw a random character of a random style; `pools` has the characters by style."""
    style = str(rng.choice(STYLES, p=STYLE_RATES))
    character = _choose(pools[style], rng)
    if style == "handwritten":
        return glyphs.draw_handwritten(character, rng)
    if style == "lit":
        return glyphs.draw_segments(character, rng)
    font = assets.fonts[rng.integers(len(assets.fonts))]
    return glyphs.draw_printed(character, font, hollow=bool(rng.random() < 0.15))


def _compose(glyph: Image.Image, assets: Assets, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Compose a character and a background in contrasting colors."""
    mask, page = _place_glyph(glyph, rng), _draw_background(assets, rng)
    for _ in range(int(rng.integers(1, 5)) if rng.random() < 0.45 else 0):
        _add_shape(page, rng)
    if rng.random() < 0.3:
        _add_plate(page, mask, rng)
    behind = ImageStat.Stat(page.convert("L"), mask)
    ink = _contrasting_color(behind.mean[0], rng)
    if rng.random() < 0.2 or behind.stddev[0] > MAX_SPREAD:
        page.paste(_contrasting_color(_luma(ink), rng), mask=mask.filter(ImageFilter.MaxFilter(7)))
    elif rng.random() < 0.25:  # a shadow
        page.paste((0, 0, 0), (OVERSAMPLE, OVERSAMPLE), mask.point(lambda value: value // 2))
    page.paste(ink, mask=mask)
    return _finish(page, rng)


def _place_glyph(glyph: Image.Image, rng: np.random.Generator) -> Image.Image:
    """Rotate, scale and shift a character to a random position where it fits; return a mask of the canvas."""
    rotated = glyphs.trim(glyph.rotate(rng.uniform(-12, 12), Image.Resampling.BILINEAR, expand=True))
    stretch = rng.uniform(0.85, 1.2)
    scale = min(rng.uniform(0.5, 0.92) * CANVAS / rotated.height, 0.92 * CANVAS / (rotated.width * stretch))
    size = (max(1, round(rotated.width * stretch * scale)), max(1, round(rotated.height * scale)))
    left, top = (int(rng.integers(CANVAS - side + 1)) for side in size)
    mask = Image.new("L", (CANVAS, CANVAS))
    mask.paste(rotated.resize(size, Image.Resampling.BILINEAR), (left, top))
    return mask


def _draw_background(assets: Assets, rng: np.random.Generator) -> Image.Image:
    """Draw a background: one color, a gradient of two, a pattern, or a photograph."""
    kind = rng.random()
    if kind < 0.4:
        return _crop_photo(assets, rng)
    first, second = _random_color(rng), _random_color(rng)
    if kind < 0.6:
        return Image.new("RGB", (CANVAS, CANVAS), first)
    if kind < 0.8:
        gradient = Image.linear_gradient("L").rotate(float(rng.uniform(0, 360)), Image.Resampling.BILINEAR)
        inside = gradient.crop((38, 38, 218, 218))  # of 256 px: excludes the corners of the rotated square
        return ImageOps.colorize(inside.resize((CANVAS, CANVAS)), first, second)
    return _draw_pattern(first, rng)


def _draw_pattern(background: Color, rng: np.random.Generator) -> Image.Image:
    """Draw ruled or squared paper, or stripes: lines slightly lighter or darker than the background."""
    page = Image.new("RGB", (CANVAS, CANVAS), background)
    step, shift = int(rng.integers(9, 30)), int(rng.integers(-60, 61))
    line: Color = tuple(int(np.clip(value + shift, 0, 255)) for value in background)  # type: ignore[assignment]
    width, draw = int(rng.integers(2, max(3, step // 2))), ImageDraw.Draw(page)
    is_horizontal, is_vertical = rng.random() < 0.7, rng.random() < 0.5
    for offset in range(int(rng.integers(step)), CANVAS, step):
        if is_horizontal:
            draw.line((0, offset, CANVAS, offset), line, width)
        if is_vertical or not is_horizontal:
            draw.line((offset, 0, offset, CANVAS), line, width)
    return page


def _crop_photo(assets: Assets, rng: np.random.Generator) -> Image.Image:
    """Return a crop of a photograph at a random scale, possibly mirrored or toned."""
    photo = assets.photos[rng.integers(len(assets.photos))]
    part = Image.fromarray(random_crop(photo, int(rng.integers(*CLOSE_UP)), rng))
    page = part.resize((CANVAS, CANVAS), Image.Resampling.BICUBIC)
    if rng.random() < 0.5:
        page = ImageOps.mirror(page)
    if rng.random() < 0.4:
        color = _random_color(rng)
        dark, light = sorted((color, _contrasting_color(_luma(color), rng)), key=_luma)
        page = ImageOps.colorize(ImageOps.autocontrast(page.convert("L")), dark, light)
    return page


def _add_shape(page: Image.Image, rng: np.random.Generator) -> None:
    """Add clutter: a disc, a box, a triangle or a line, anywhere."""
    draw, color = ImageDraw.Draw(page), _random_color(rng)
    corners = rng.integers(-CANVAS // 4, 5 * CANVAS // 4, (3, 2))
    low, high = corners[:2].min(0), corners[:2].max(0)
    box = (int(low[0]), int(low[1]), int(high[0]), int(high[1]))
    kind = int(rng.integers(4))
    if kind == 0:
        draw.ellipse(box, fill=color)
    elif kind == 1:
        draw.rectangle(box, fill=color)
    elif kind == 2:
        draw.polygon([(int(x), int(y)) for x, y in corners], fill=color)
    else:
        draw.line(box, color, int(rng.integers(2, 8)))


def _add_plate(page: Image.Image, mask: Image.Image, rng: np.random.Generator) -> None:
    """Add a sign behind the character: a rounded box or a disc, with or without an edge."""
    left, top, right, bottom = mask.getbbox() or (0, 0, CANVAS, CANVAS)
    margin, draw = int(rng.integers(4, 14)), ImageDraw.Draw(page)
    fill, edge, width = _random_color(rng), _random_color(rng), int(rng.integers(0, 6))
    if rng.random() < 0.5:
        box = (left - margin, top - margin, right + margin, bottom + margin)
        draw.rounded_rectangle(box, int(rng.integers(0, 16)), fill, edge, width)
    else:
        x, y = (left + right) / 2, (top + bottom) / 2
        reach = max(right - left, bottom - top) / 2 + margin
        draw.ellipse((x - reach, y - reach, x + reach, y + reach), fill, edge, width)


def _finish(page: Image.Image, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Add a frame or none, reduce to 32 px and compress as JPEG, like the thumbnails of a result page."""
    if rng.random() < 0.15:
        width = int(rng.integers(3, 9))
        ImageDraw.Draw(page).rectangle((0, 0, CANVAS - 1, CANVAS - 1), outline=_random_color(rng), width=width)
    buffer = BytesIO()
    page.reduce(OVERSAMPLE).save(buffer, "JPEG", quality=int(rng.integers(50, 96)))
    return np.asarray(open_image(buffer.getvalue()).convert("RGB"))


def _random_color(rng: np.random.Generator) -> Color:
    """Draw a color: often black or white, as on the web, else any."""
    if rng.random() < 0.25:
        return (255, 255, 255) if rng.random() < 0.6 else (0, 0, 0)
    red, green, blue = rng.integers(256, size=3)
    return int(red), int(green), int(blue)


def _contrasting_color(luma: float, rng: np.random.Generator) -> Color:
    """Draw a color whose gray value is far enough from `luma` (0 to 255)."""
    while True:
        color = _random_color(rng)
        if abs(_luma(color) - luma) >= 255 * MIN_CONTRAST:
            return color


def _luma(color: Color) -> float:
    red, green, blue = color
    return 0.299 * red + 0.587 * green + 0.114 * blue
