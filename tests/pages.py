"""The Markdown pages of the repository: their links, headings and code, read by a Markdown parser."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
MARKDOWN = MarkdownIt("commonmark").enable("table")


def page_name(page: Path) -> str:
    """The path of a page from the root, for the names of tests."""
    return page.relative_to(ROOT).as_posix()


def tokens(page: Path) -> list[Token]:
    return MARKDOWN.parse(page.read_text(encoding="utf-8"))


def links(page: Path) -> list[str]:
    """The targets of the links and images of a page, without those to other sites."""
    inline = [child for token in tokens(page) for child in token.children or ()]
    targets = [str(child.attrs.get("href") or child.attrs.get("src") or "") for child in inline]
    return [target for target in targets if target and not re.match(r"[a-z]+:", target)]


def anchors(page: Path) -> set[str]:
    """The names that a forge gives to the headings of a page by GitHub's rule."""
    names, counts = set[str](), Counter[str]()
    parsed = tokens(page)
    for opening, inline in pairwise(parsed):
        if opening.type == "heading_open":
            text = "".join(child.content for child in inline.children or ())
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            names.add(f"{slug}-{counts[slug]}" if counts[slug] else slug)
            counts[slug] += 1
    return names | set(re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text(encoding="utf-8")))


def code_blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The fenced blocks of a language, with the line on which each begins."""
    fences = [token for token in tokens(page) if token.type == "fence" and token.info.strip() == language]
    return [(token.map[0] + 1 if token.map else 0, token.content) for token in fences]
