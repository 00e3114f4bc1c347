"""The documentation site builds without a warning, has the public API, and fits a phone."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sphinx.util.inventory import InventoryFile

import ssdg
import ssdg.methods
from pages import PAGES, ROOT, page_name
from runs import environment
from waiting import PATIENCE

SECTIONS = ["Start", "Data", "Train", "Compare", "Ship", "Reference", "Results"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site")
    options = ["-W", "--keep-going", "--quiet", "-c", "docs/site", "-d", out / "cache", ".", out / "html"]
    command = [sys.executable, "-m", "sphinx", *map(str, options)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_page_is_part_of_the_site(site: Path) -> None:
    names = {page_name(page) for page in PAGES} - {"docs/site/navigation.md"}
    assert not [name for name in names if not (site / name).with_suffix(".html").exists()]
    assert 'url=README.html"' in (site / "index.html").read_text(encoding="utf-8")


def test_the_navigation_has_sections(site: Path) -> None:
    text = (site / "docs" / "getting-started.html").read_text(encoding="utf-8")
    captions = [part.partition("</span>")[0] for part in text.split('<span class="caption-text">')[1:]]
    assert captions == SECTIONS


def test_the_public_api_is_documented(site: Path) -> None:
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    documented = {name for kind in inventory.data.values() for name in kind}
    for_plugins = {name for name in ssdg.methods.__all__ if not inspect.ismodule(getattr(ssdg.methods, name))}
    assert len(for_plugins) > 25
    names = {*ssdg.__all__, *for_plugins} - {"__version__"}
    assert not [name for name in names if not {f"ssdg.{name}", f"ssdg.methods.{name}"} & documented]
    assert {"ssdg.SSDG.fit", "ssdg.losses.discrepancy.l1_discrepancy"} <= documented


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_wide_tables_scroll_inside_their_box_on_a_phone(site: Path, browser: Any, scheme: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE * 1000)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    wide = 0
    for name in ("README", "docs/settings", "docs/results/best-pacs", "docs/site/api/methods"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        boxes = "[...document.querySelectorAll('.table-wrapper')]"
        wide += page.evaluate(f"{boxes}.filter(box => box.scrollWidth > box.clientWidth).length")
    assert wide > 3
    assert not [url for url in requests if not url.startswith(("file:", "data:"))]
    page.close()


def test_search_finds_pages_without_a_server(site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.goto((site / "search.html").as_uri() + "?q=discrepancy")
    page.wait_for_selector("ul.search li a")
    titles = page.locator("ul.search li a").all_inner_texts()
    assert any("l1_discrepancy" in title for title in titles)
    page.close()
