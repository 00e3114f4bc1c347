"""A contact sheet of discovered domains: a labeled row of samples for each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ..data.sources.decode import UnreadableError, decode_whole
from ..data.sources.tree import Item, Reader
from ..errors import one_line
from ..files import atomic_path
from .mixed_folder import DiscoveredFolder, spread_samples

COLUMNS, ROWS = 10, 2  # of samples per domain
SIDE, GAP, MARGIN = 96, 6, 16  # px
HEADING, CAPTION, LEGEND = 30, 16, 26  # px of height
NOTE = "Samples of each discovered domain from the most to the least confident; below each, its confidence."
INK, FAINT, PAPER, FRAME = "#1a1a1a", "#666666", "#ffffff", "#eeeeee"


def write_contact_sheet(path: Path, discovered: DiscoveredFolder) -> None:
    """Write a PNG file with samples of every domain, the most confident first, each with its confidence."""
    blocks = [np.flatnonzero(discovered.domain == number) for number in range(len(discovered.names))]
    heights = [block_height(min(len(rows), COLUMNS * ROWS)) for rows in blocks]
    width = 2 * MARGIN + COLUMNS * (SIDE + GAP) - GAP
    sheet = Image.new("RGB", (width, 2 * MARGIN + LEGEND + sum(heights)), PAPER)
    ImageDraw.Draw(sheet).text((MARGIN, MARGIN), NOTE, FAINT, ImageFont.load_default(12))
    top = MARGIN + LEGEND
    with Reader() as reader:
        for name, rows, height in zip(discovered.names, blocks, heights, strict=True):
            draw_block(sheet, top, name, rows, discovered, reader)
            top += height
    with atomic_path(path) as temporary:
        sheet.save(temporary, "PNG")


def block_height(num_samples: int) -> int:
    """Return the height of a domain's block: a heading and rows of samples."""
    return HEADING + -(-num_samples // COLUMNS) * (SIDE + CAPTION + GAP) + GAP


def draw_block(
    sheet: Image.Image, top: int, name: str, rows: np.ndarray, discovered: DiscoveredFolder, reader: Reader
) -> None:
    """Draw the heading and the samples of a domain."""
    draw = ImageDraw.Draw(sheet)
    confidence = discovered.confidence[rows]
    heading = f"{one_line(name, 60)}: {len(rows):,} images, mean confidence {confidence.mean():.2f}"
    draw.text((MARGIN, top), heading, INK, ImageFont.load_default(18))
    for index, row in enumerate(spread_samples(confidence, COLUMNS * ROWS)):
        x = MARGIN + index % COLUMNS * (SIDE + GAP)
        y = top + HEADING + index // COLUMNS * (SIDE + CAPTION + GAP)
        sheet.paste(thumbnail(discovered.items[rows[row]], reader), (x, y))
        draw.text((x, y + SIDE + 1), f"{confidence[row]:.2f}", FAINT, ImageFont.load_default(12))


def thumbnail(item: Item, reader: Reader) -> Image.Image:
    """Return the image with its aspect ratio on a square; an empty square if it can no longer be read."""
    try:
        content = reader.read(item)
        pixels = decode_whole(content) if isinstance(content, bytes) else content
    except (OSError, UnreadableError):
        return Image.new("RGB", (SIDE, SIDE), FRAME)
    return ImageOps.pad(Image.fromarray(pixels), (SIDE, SIDE), Image.Resampling.BILINEAR, FRAME)
