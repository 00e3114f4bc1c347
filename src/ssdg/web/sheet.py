"""A contact sheet of an audit: for every web-label what is kept, and what looks wrong, with the reason below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ..data.decode import UnreadableError, decode_whole
from ..data.sources import NO_IMAGES
from ..files import remove_leftovers, write_bytes, write_text
from .audit import Audit
from .findings import LEAK
from .sheet_html import page
from .sheet_png import COLUMNS, pages

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
