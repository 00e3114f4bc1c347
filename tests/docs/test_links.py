"""Relative links and anchors of all pages lead somewhere, on a forge and on the site."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import PAGES, ROOT, anchors, links, page_name


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_inside = target.is_relative_to(root) and target.exists()
        if not is_inside or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert not broken_links(page)


def test_there_are_pages_with_links_to_check() -> None:
    names = {page_name(page) for page in PAGES}
    assert {"README.md", "docs/getting-started.md", "docs/methods/README.md", "benchmarks/README.md"} <= names
    assert sum(len(links(page)) for page in PAGES) > 200
    assert sum("#" in link for page in PAGES for link in links(page)) > 20


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b`: c\n## A `b`: c\n[1](#a-b-c) [2](#a-b-c-1) [3](#a-b-c-2) [4](no.md) [5](page.md#none)\n")
    page.write_text(page.read_text() + "```sh\n# [no](link.md)\n```\n\n![6](no.png) [7](https://example.com/x)\n")
    assert broken_links(page, tmp_path) == ["#a-b-c-2", "no.md", "page.md#none", "no.png"]
