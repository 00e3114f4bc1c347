"""The contact sheet as PNG pictures, several web-labels on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from .sheet_html import count_of

if TYPE_CHECKING:
    from .sheet import Block, Strip, Tile

_CELL, _GAP, _MARGIN = 116, 10, 24  # px
COLUMNS = 10
_WIDTH = 2 * _MARGIN + COLUMNS * (_CELL + _GAP) - _GAP
_BLOCK_HEAD, _STRIP_HEAD, _CAPTION = 40, 26, 40
_MOST_HEIGHT = 3000  # px of a page, unless one web-label alone needs more
_TEXT, _SOFT, _LINE, _TILE = "#1d2430", "#667085", "#e4e7ec", "#f5f6f8"
_TONES = {"good": "#2e9e6b", "doubt": "#d98a00", "strange": "#8a63d2", "out": "#d64545"}
_STRIP = _STRIP_HEAD + _CELL + _CAPTION


def pages(blocks: Sequence[Block]) -> Iterator[bytes]:
    """PNG files in order."""
    part: list[Block] = []
    for block in blocks:
        if part and sum(map(_height, [*part, block])) > _MOST_HEIGHT:
            yield _page(part)
            part = []
        part.append(block)
    if part:
        yield _page(part)


def _height(block: Block) -> int:
    return _BLOCK_HEAD + len(block.strips) * _STRIP


def _page(blocks: Sequence[Block]) -> bytes:
    image = Image.new("RGB", (_WIDTH, 2 * _MARGIN + sum(map(_height, blocks))), "white")
    draw, top = ImageDraw.Draw(image), _MARGIN
    for block in blocks:
        draw.line((_MARGIN, top, _WIDTH - _MARGIN, top), fill=_LINE)
        told = _write(draw, (_MARGIN, top + 10), block.label or "(none)", 18, _TEXT)
        _write(draw, (told + 10, top + 14), f"{block.images:,} images, {block.kept:,} kept", 13, _SOFT)
        for number, strip in enumerate(block.strips):
            _draw_strip(image, draw, strip, top + _BLOCK_HEAD + number * _STRIP)
        top += _height(block)
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _draw_strip(image: Image.Image, draw: ImageDraw.ImageDraw, strip: Strip, top: int) -> None:
    draw.rectangle((_MARGIN, top + 3, _MARGIN + 3, top + 18), fill=_TONES[strip.tone])
    told = _write(draw, (_MARGIN + 10, top + 2), strip.title, 13, _TEXT)
    _write(draw, (told + 6, top + 2), count_of(strip), 13, _SOFT)
    for column, tile in enumerate(strip.tiles):
        _draw_tile(image, draw, tile, _MARGIN + column * (_CELL + _GAP), top + _STRIP_HEAD)


def _draw_tile(image: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, left: int, top: int) -> None:
    draw.rounded_rectangle((left, top, left + _CELL - 1, top + _CELL - 1), 4, fill=_TILE)
    width, height = tile.picture.size
    image.paste(tile.picture, (left + (_CELL - width) // 2, top + (_CELL - height) // 2))
    for number, line in enumerate(_lines(draw, tile.caption)):
        _write(draw, (left, top + _CELL + 2 + 13 * number), line, 11, _SOFT)


def _write(draw: ImageDraw.ImageDraw, place: tuple[float, float], text: str, size: int, colour: str) -> float:
    """Write and return where the text ends."""
    font = ImageFont.load_default(size)
    draw.text(place, text, fill=colour, font=font)
    return place[0] + draw.textlength(text, font=font)


def _lines(draw: ImageDraw.ImageDraw, text: str, most: int = 2) -> list[str]:
    """The text in lines that fit below a picture; of one that is too long, the end, where file names differ."""
    font, lines = ImageFont.load_default(11), [""]
    for letter in text:
        if draw.textlength(lines[-1] + letter, font=font) > _CELL:
            lines.append("")
        lines[-1] += letter
    return lines if len(lines) <= most else [lines[0], f"…{lines[-2][len(lines[-1]) + 2 :]}{lines[-1]}"]
