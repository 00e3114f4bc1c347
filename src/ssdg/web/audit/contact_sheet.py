"""The contact sheet of an audit: per web-label the selected images and the suspicious ones, as HTML or PNG."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from ...data.sources.decode import UnreadableError, decode_whole
from ...data.sources.tree import NO_IMAGES
from ...files import remove_leftovers, write_bytes, write_text
from .auditor import Audit
from .inspection import LEAK

FOLDER, NAME = "audit", "contact-sheet"
TILE = 112  # px, the longer side of a picture


@dataclass(frozen=True)
class Tile:
    """One picture and the words below it."""

    picture: Image.Image
    caption: str
    path: str


@dataclass(frozen=True)
class Strip:
    """Pictures of a kind; `total` counts also those that are not shown."""

    title: str
    tone: str  # good, doubt, strange or out
    total: int
    tiles: Sequence[Tile]


@dataclass(frozen=True)
class Block:
    """One web-label."""

    label: str
    images: int
    kept: int
    strips: Sequence[Strip]


def write_sheet(root: Path, told: Audit) -> Path:
    """Write `audit/contact-sheet.html` and pages of PNG beside it; returns the HTML file."""
    folder = root / FOLDER
    labels = sorted({row.label for row in told.rows})
    with ThreadPoolExecutor(4) as pool:
        blocks = [_block(root, told, label, pool) for label in labels]
    write_text(folder / NO_IMAGES, "")
    names = []
    for number, content in enumerate(pages(blocks), 1):
        names.append(f"{NAME}-{number}.png")
        write_bytes(folder / names[-1], content)
    for old in folder.glob(f"{NAME}-*.png"):
        if old.name not in names:  # of an audit with more classes
            old.unlink()
    remove_leftovers(folder / "*")
    write_text(folder / f"{NAME}.html", page(root.resolve().name, blocks))
    return folder / f"{NAME}.html"


def _block(root: Path, told: Audit, label: str, pool: ThreadPoolExecutor) -> Block:
    numbers = [number for number, row in enumerate(told.rows) if row.label == label]
    kept = [number for number in numbers if number not in told.taken]
    strips = [
        Strip(title, tone, len(chosen), list(_tiles(root, told, chosen, caption, pool)))
        for title, tone, chosen, caption in _choices(told, numbers, kept)
        if chosen
    ]
    return Block(label, len(numbers), len(kept), strips)


Choice = tuple[str, str, list[int], Callable[[int], str]]


def _choices(told: Audit, numbers: Sequence[int], kept: Sequence[int]) -> Iterator[Choice]:
    """The strips of a class: title, tone, the images with the most telling first, the caption of one."""
    marks = told.marks
    quality = [marks.quality[n] or 0.0 if marks else 0.0 for n in range(len(told.rows))]
    score = [marks.outlier_score[n] or 0.0 if marks else 0.0 for n in range(len(told.rows))]
    doubted = [n for n in numbers if n in told.labels or (marks and marks.issue[n])]
    strange = [n for n in numbers if marks and marks.outlier[n]]
    fine = [n for n in kept if n not in {*doubted, *strange}]
    yield "kept", "good", sorted(fine, key=lambda n: -quality[n]), lambda n: _fit(told, n)
    yield "web-label looks wrong", "doubt", sorted(doubted, key=lambda n: quality[n]), lambda n: _doubt(told, n)
    yield "looks like no class", "strange", sorted(strange, key=lambda n: -score[n]), lambda n: f"far {score[n]:.2f}"
    copied = [n for n in numbers if n in told.findings and told.findings[n].other]
    leaks = [n for n in copied if told.findings[n].kind == LEAK]
    yield "leak", "out", leaks, lambda n: f"is {told.findings[n].other}"
    yield "copy", "out", [n for n in copied if n not in leaks], lambda n: f"of {told.findings[n].other}"


def _doubt(told: Audit, number: int) -> str:
    if number in told.labels:
        return f"also {', '.join(told.labels[number])}"
    return f"{told.marks.suggested[number]}? {_fit(told, number)}" if told.marks else ""


def _fit(told: Audit, number: int) -> str:
    """How well the web-label fits, where it was looked at."""
    quality = told.marks.quality[number] if told.marks else None
    return "" if quality is None else f"fits {quality:.2f}"


def _tiles(
    root: Path, told: Audit, chosen: Sequence[int], caption: Callable[[int], str], pool: ThreadPoolExecutor
) -> Iterator[Tile]:
    shown = chosen[:COLUMNS]
    for number, picture in zip(shown, pool.map(lambda n: _picture(root / told.rows[n].path), shown), strict=True):
        if picture is not None:
            yield Tile(picture, caption(number), told.rows[number].path)


def _picture(path: Path) -> Image.Image | None:
    """A small picture; None if the file went away meanwhile."""
    with suppress(OSError, UnreadableError):
        picture = Image.fromarray(decode_whole(path.read_bytes()))
        scale = TILE / max(picture.size)
        size = tuple(max(1, round(side * scale)) for side in picture.size)
        return picture.resize((size[0], size[1]), Image.Resampling.LANCZOS)
    return None


_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1d2430; --soft: #667085; --line: #e4e7ec; --tile: #f5f6f8; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171c; --text: #e6e9ef; --soft: #98a2b3; --line: #2c313a; --tile: #1e232b; }
}
body { margin: 0 auto; padding: 24px; max-width: 1320px; background: var(--back); color: var(--text);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 0; }
section { border-top: 1px solid var(--line); padding: 18px 0 10px; }
.soft { color: var(--soft); font-weight: normal; font-size: 13px; }
h3 { font-size: 13px; margin: 12px 0 6px; padding-left: 8px; border-left: 4px solid var(--tone); }
.good { --tone: #2e9e6b; } .doubt { --tone: #d98a00; } .strange { --tone: #8a63d2; } .out { --tone: #d64545; }
.strip { display: grid; grid-template-columns: repeat(auto-fill, 116px); gap: 10px; }
figure { margin: 0; }
figure div { width: 116px; height: 116px; background: var(--tile); border-radius: 4px; display: flex;
  align-items: center; justify-content: center; }
figcaption { font-size: 11px; line-height: 1.3; color: var(--soft); margin-top: 3px; overflow-wrap: anywhere;
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
"""


def page(name: str, blocks: Sequence[Block]) -> str:
    """The whole page."""
    images, kept = sum(block.images for block in blocks), sum(block.kept for block in blocks)
    title = f"Audit of {escape(name)}"
    head = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    head += f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
    intro = (
        f'<h1>{title}</h1><p class="soft">{images:,} images, {kept:,} kept. Hover over a picture for its file.</p>'
    )
    return f"{head}\n{intro}\n{''.join(map(_section, blocks))}</body></html>\n"


def _section(block: Block) -> str:
    told = f'{escape(block.label or "(none)")} <span class="soft">{block.images:,} images, {block.kept:,} kept</span>'
    return f"<section><h2>{told}</h2>{''.join(map(_strip, block.strips))}</section>\n"


def _strip(strip: Strip) -> str:
    told = f"{escape(strip.title)} <span class='soft'>{count_of(strip)}</span>"
    return f'<h3 class="{strip.tone}">{told}</h3><div class="strip">{"".join(map(_figure, strip.tiles))}</div>\n'


def count_of(strip: Strip) -> str:
    """`12`, or `10 of 340` where not all are shown."""
    return f"{len(strip.tiles)} of {strip.total:,}" if strip.total > len(strip.tiles) else f"{strip.total}"


def _figure(tile: Tile) -> str:
    file = BytesIO()
    tile.picture.save(file, "JPEG", quality=85)
    data = b64encode(file.getvalue()).decode("ascii")
    about, caption = escape(f"{tile.path}: {tile.caption}" if tile.caption else tile.path), escape(tile.caption)
    width, height = tile.picture.size
    picture = f'<img src="data:image/jpeg;base64,{data}" width="{width}" height="{height}" alt="{about}">'
    return f'<figure title="{about}"><div>{picture}</div><figcaption>{caption}</figcaption></figure>'


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
