"""The thumbnails of a run: sheets of small images, put into the page as data."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from .run import Run, damaged
from .schema import Domain

NO_CLASS = -2  # in `truth`: an image of no class; -1 is one whose class is not known
BYTES = 5_500_000  # of sheets in one page; in base64 they take a third more
Sheets = dict[str, dict[str, Any]]


class Album:
    """The sheets of a page by their digest, as many as fit; runs on the same images share them."""

    def __init__(self, left: int = BYTES) -> None:
        self.left = left
        self.sheets: dict[str, str] = {}

    def add(self, path: Path) -> str | None:
        """The digest of a sheet that is in the page now; None if it does not fit any more."""
        content = path.read_bytes()
        if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
            raise damaged(path, "it is no WebP image")
        digest = hashlib.sha256(content).hexdigest()[:16]
        if digest not in self.sheets:
            if len(content) > self.left:
                return None
            self.left -= len(content)
            self.sheets[digest] = f"data:image/webp;base64,{base64.b64encode(content).decode()}"
        return digest


def sheets_of(run: Run, album: Album) -> tuple[Sheets, list[str]]:
    """The sheets of a run by domain, and the domains whose sheet does not fit any more."""
    sheets: Sheets = {}
    left_out = []
    for name, domain in run.samples.domains.items() if run.samples else ():
        path = check(run, domain)
        if not path.exists():
            continue
        digest = album.add(path)
        if digest is None:
            left_out.append(name)
        else:
            sheets[name] = {"sheet": digest, "count": len(domain.rows)}
    return sheets, left_out


def check(run: Run, domain: Domain) -> Path:
    """Where the sheet of a domain lies, after a look at what `index.json` says of it."""
    index, count = run.folder / "samples" / "index.json", len(domain.rows)
    lengths = {len(domain.paths), *(len(one) for one in (domain.truth, domain.web) if one is not None)}
    if lengths != {count} or any(row >= domain.images for row in domain.rows):
        raise damaged(index, "its lists are of unlike lengths")
    if Path(domain.sprite).name != domain.sprite:
        raise damaged(index, "it names a sheet outside of its folder")
    return run.folder / "samples" / domain.sprite


def told(run: Run, sheets: Sheets, left_out: list[str]) -> str:
    """What was sampled, in a sentence or two."""
    if run.samples is None:
        return "This run folder has no samples/: it was trained without thumbnails, so there are none to show."
    parts = [f"{len(d.rows):,} of {d.images:,} of {name}" for name, d in run.samples.domains.items()]
    text = f"Shown are images drawn at random: {', '.join(parts)}. Figures that count all images say so."
    if left_out:
        text += f" To keep the page small, thumbnails of {', '.join(left_out)} are left out."
    return text
