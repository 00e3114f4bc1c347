"""The contact sheet as one HTML file that needs no other: pictures are inside it, and every word is escaped."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sheet import Block, Strip, Tile

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
