"""The contact sheet of an audit: sample images of every web-label, as one HTML file and as PNG pages.

`_build_block` decides which images, captions and counts appear; both renderers share it, the sizes and the colors.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from string import Template

from PIL import Image, ImageDraw, ImageFont

from ...data.sources.decode import UnreadableError, decode_whole
from ...data.sources.tree import NO_IMAGES
from ...files import read_bytes, remove_leftovers, write_bytes, write_text
from .auditor import AuditResult
from .inspection import LEAK

FOLDER, NAME = "audit", "contact-sheet"
COLUMNS = 10  # images per strip
_IMAGE, _CELL, _GAP, _MARGIN = 112, 116, 10, 24  # px; _IMAGE is the longer side of an image, _CELL the box around it
_COLORS = {"text": "#1d2430", "soft": "#667085", "line": "#e4e7ec", "tile": "#f5f6f8"}
_TONES = {"good": "#2e9e6b", "doubt": "#d98a00", "strange": "#8a63d2", "out": "#d64545"}


@dataclass(frozen=True)
class Tile:
    """One image and its caption."""

    image: Image.Image
    caption: str
    path: str


@dataclass(frozen=True)
class Strip:
    """Images of the same kind; `total` includes those that are not shown."""

    title: str
    tone: str  # key of `_TONES`
    total: int
    tiles: Sequence[Tile]

    @property
    def counts(self) -> str:
        """`12`, or `10 of 340` if not all are shown."""
        return f"{len(self.tiles)} of {self.total:,}" if self.total > len(self.tiles) else f"{self.total}"


@dataclass(frozen=True)
class Block:
    """The strips of one web-label."""

    label: str
    num_images: int
    num_kept: int
    strips: Sequence[Strip]

    @property
    def title(self) -> str:
        """The web-label, or a placeholder for images without one."""
        return self.label or "(none)"

    @property
    def counts(self) -> str:
        """The number of images and how many are kept."""
        return _format_counts(self.num_images, self.num_kept)


def _format_counts(num_images: int, num_kept: int) -> str:
    return f"{num_images:,} images, {num_kept:,} kept"


def write_contact_sheet(root: Path, result: AuditResult) -> Path:
    """Write `audit/contact-sheet.html` and the PNG pages next to it; return the HTML file."""
    folder = root / FOLDER
    labels = sorted({row.label for row in result.rows})
    with ThreadPoolExecutor(4) as pool:
        blocks = [_build_block(root, result, label, pool) for label in labels]
    write_text(folder / NO_IMAGES, "")
    names = []
    for number, content in enumerate(render_png_pages(blocks), 1):
        names.append(f"{NAME}-{number}.png")
        write_bytes(folder / names[-1], content)
    for old in folder.glob(f"{NAME}-*.png"):
        if old.name not in names:  # from an audit with more classes
            old.unlink()
    remove_leftovers(folder / "*")
    write_text(folder / f"{NAME}.html", render_html(root.resolve().name, blocks))
    return folder / f"{NAME}.html"


def _build_block(root: Path, result: AuditResult, label: str, pool: ThreadPoolExecutor) -> Block:
    indices = [index for index, row in enumerate(result.rows) if row.label == label]
    kept = [index for index in indices if index not in result.removed]
    strips = [
        Strip(title, tone, len(selected), list(_load_tiles(root, result, selected, caption, pool)))
        for title, tone, selected, caption in _select_images(result, indices, kept)
        if selected
    ]
    return Block(label, len(indices), len(kept), strips)


Selection = tuple[str, str, list[int], Callable[[int], str]]


def _select_images(result: AuditResult, indices: Sequence[int], kept: Sequence[int]) -> Iterator[Selection]:
    """Yield the strips of a class: title, tone, images with the clearest cases first, and a caption function."""
    marks, findings = result.marks, result.findings
    quality = [marks.quality[n] or 0.0 if marks else 0.0 for n in range(len(result.rows))]
    score = [marks.outlier_score[n] or 0.0 if marks else 0.0 for n in range(len(result.rows))]
    doubtful = [n for n in indices if n in result.other_labels or (marks and marks.issue[n])]
    outliers = [n for n in indices if marks and marks.outlier[n]]
    good = [n for n in kept if n not in {*doubtful, *outliers}]
    yield "kept", "good", sorted(good, key=lambda n: -quality[n]), lambda n: _format_quality(result, n)
    yield (
        "web-label looks wrong",
        "doubt",
        sorted(doubtful, key=lambda n: quality[n]),
        lambda n: _format_doubt(result, n),
    )
    yield "looks like no class", "strange", sorted(outliers, key=lambda n: -score[n]), lambda n: f"far {score[n]:.2f}"
    copies = [n for n in indices if n in findings and findings[n].other]
    leaks = [n for n in copies if findings[n].kind == LEAK]
    yield "leak", "out", leaks, lambda n: f"is {findings[n].other}"
    yield "copy", "out", [n for n in copies if n not in leaks], lambda n: f"of {findings[n].other}"


def _format_doubt(result: AuditResult, index: int) -> str:
    if index in result.other_labels:
        return f"also {', '.join(result.other_labels[index])}"
    return f"{result.marks.suggested[index]}? {_format_quality(result, index)}" if result.marks else ""


def _format_quality(result: AuditResult, index: int) -> str:
    """Return how well the web-label fits, '' if it was not checked."""
    quality = result.marks.quality[index] if result.marks else None
    return "" if quality is None else f"fits {quality:.2f}"


def _load_tiles(
    root: Path, result: AuditResult, selected: Sequence[int], caption: Callable[[int], str], pool: ThreadPoolExecutor
) -> Iterator[Tile]:
    visible = selected[:COLUMNS]
    images = pool.map(lambda n: _load_thumbnail(root / result.rows[n].path), visible)
    for index, image in zip(visible, images, strict=True):
        if image is not None:
            yield Tile(image, caption(index), result.rows[index].path)


def _load_thumbnail(path: Path) -> Image.Image | None:
    """Return a thumbnail, or None if the file has disappeared since the audit."""
    with suppress(OSError, UnreadableError):
        image = Image.fromarray(decode_whole(read_bytes(path)))
        scale = _IMAGE / max(image.size)
        size = tuple(max(1, round(side * scale)) for side in image.size)
        return image.resize((size[0], size[1]), Image.Resampling.LANCZOS)
    return None


_STYLE = Template("""
:root { color-scheme: light dark; --back: #fff; --text: $text; --soft: $soft; --line: $line; --tile: $tile; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171c; --text: #e6e9ef; --soft: #98a2b3; --line: #2c313a; --tile: #1e232b; }
}
body { margin: 0 auto; padding: ${margin}px; max-width: 1320px; background: var(--back); color: var(--text);
  font: 14px/1.45 system-ui, sans-serif; }
h1 { font-size: 20px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 0; }
section { border-top: 1px solid var(--line); padding: 18px 0 10px; }
.soft { color: var(--soft); font-weight: normal; font-size: 13px; }
h3 { font-size: 13px; margin: 12px 0 6px; padding-left: 8px; border-left: 4px solid var(--tone); }
$tones
.strip { display: grid; grid-template-columns: repeat(auto-fill, ${cell}px); gap: ${gap}px; }
figure { margin: 0; }
figure div { width: ${cell}px; height: ${cell}px; background: var(--tile); border-radius: 4px; display: flex;
  align-items: center; justify-content: center; }
figcaption { font-size: 11px; line-height: 1.3; color: var(--soft); margin-top: 3px; overflow-wrap: anywhere;
  display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 2; overflow: hidden; }
""").substitute(
    _COLORS,
    tones=" ".join(f".{name} {{ --tone: {color}; }}" for name, color in _TONES.items()),
    cell=_CELL,
    gap=_GAP,
    margin=_MARGIN,
)


def render_html(name: str, blocks: Sequence[Block]) -> str:
    """Render all blocks as one self-contained HTML page."""
    counts = _format_counts(sum(block.num_images for block in blocks), sum(block.num_kept for block in blocks))
    title = f"Audit of {escape(name)}"
    head = f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    head += f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>'
    intro = f'<h1>{title}</h1><p class="soft">{counts}. Hover over a picture for its file.</p>'
    return f"{head}\n{intro}\n{''.join(map(_html_block, blocks))}</body></html>\n"


def _html_block(block: Block) -> str:
    heading = f'{escape(block.title)} <span class="soft">{block.counts}</span>'
    return f"<section><h2>{heading}</h2>{''.join(map(_html_strip, block.strips))}</section>\n"


def _html_strip(strip: Strip) -> str:
    heading = f"{escape(strip.title)} <span class='soft'>{strip.counts}</span>"
    tiles = "".join(map(_html_tile, strip.tiles))
    return f'<h3 class="{strip.tone}">{heading}</h3><div class="strip">{tiles}</div>\n'


def _html_tile(tile: Tile) -> str:
    file = BytesIO()
    tile.image.save(file, "JPEG", quality=85)
    data = b64encode(file.getvalue()).decode("ascii")
    title, caption = escape(f"{tile.path}: {tile.caption}" if tile.caption else tile.path), escape(tile.caption)
    width, height = tile.image.size
    image = f'<img src="data:image/jpeg;base64,{data}" width="{width}" height="{height}" alt="{title}">'
    return f'<figure title="{title}"><div>{image}</div><figcaption>{caption}</figcaption></figure>'


_PAGE_WIDTH = 2 * _MARGIN + COLUMNS * (_CELL + _GAP) - _GAP
_BLOCK_HEADING, _STRIP_HEADING, _CAPTION = 40, 26, 40  # px, heights
_STRIP = _STRIP_HEADING + _CELL + _CAPTION
_MAX_PAGE_HEIGHT = 3000  # px, unless a single web-label needs more


def render_png_pages(blocks: Sequence[Block]) -> Iterator[bytes]:
    """Render the blocks as PNG pages, in order."""
    page: list[Block] = []
    for block in blocks:
        if page and sum(map(_block_height, [*page, block])) > _MAX_PAGE_HEIGHT:
            yield _render_png(page)
            page = []
        page.append(block)
    if page:
        yield _render_png(page)


def _block_height(block: Block) -> int:
    return _BLOCK_HEADING + len(block.strips) * _STRIP


def _render_png(blocks: Sequence[Block]) -> bytes:
    page = Image.new("RGB", (_PAGE_WIDTH, 2 * _MARGIN + sum(map(_block_height, blocks))), "white")
    draw, top = ImageDraw.Draw(page), _MARGIN
    for block in blocks:
        draw.line((_MARGIN, top, _PAGE_WIDTH - _MARGIN, top), fill=_COLORS["line"])
        right = _draw_text(draw, (_MARGIN, top + 10), block.title, 18, "text")
        _draw_text(draw, (right + 10, top + 14), block.counts, 13, "soft")
        for number, strip in enumerate(block.strips):
            _draw_strip(page, draw, strip, top + _BLOCK_HEADING + number * _STRIP)
        top += _block_height(block)
    file = BytesIO()
    page.save(file, "PNG")
    return file.getvalue()


def _draw_strip(page: Image.Image, draw: ImageDraw.ImageDraw, strip: Strip, top: int) -> None:
    draw.rectangle((_MARGIN, top + 3, _MARGIN + 3, top + 18), fill=_TONES[strip.tone])
    right = _draw_text(draw, (_MARGIN + 10, top + 2), strip.title, 13, "text")
    _draw_text(draw, (right + 6, top + 2), strip.counts, 13, "soft")
    for column, tile in enumerate(strip.tiles):
        _draw_tile(page, draw, tile, _MARGIN + column * (_CELL + _GAP), top + _STRIP_HEADING)


def _draw_tile(page: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, left: int, top: int) -> None:
    draw.rounded_rectangle((left, top, left + _CELL - 1, top + _CELL - 1), 4, fill=_COLORS["tile"])
    width, height = tile.image.size
    page.paste(tile.image, (left + (_CELL - width) // 2, top + (_CELL - height) // 2))
    for number, line in enumerate(_wrap_caption(draw, tile.caption)):
        _draw_text(draw, (left, top + _CELL + 2 + 13 * number), line, 11, "soft")


def _draw_text(draw: ImageDraw.ImageDraw, position: tuple[float, float], text: str, size: int, color: str) -> float:
    """Draw text in a color of `_COLORS` and return the x coordinate of its end."""
    font = ImageFont.load_default(size)
    draw.text(position, text, fill=_COLORS[color], font=font)
    return position[0] + draw.textlength(text, font=font)


def _wrap_caption(draw: ImageDraw.ImageDraw, text: str, max_lines: int = 2) -> list[str]:
    """Wrap a caption to the width of a cell; a longer one keeps its end, where file names differ."""
    font, lines = ImageFont.load_default(11), [""]
    for char in text:
        if draw.textlength(lines[-1] + char, font=font) > _CELL:
            lines.append("")
        lines[-1] += char
    return lines if len(lines) <= max_lines else [lines[0], f"…{lines[-2][len(lines[-1]) + 2 :]}{lines[-1]}"]
