"""Pages for the tests of the report, in the browser of tests/conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import write_run

from ssdg.cli import call
from ssdg.report.run_folder import Run, read_run
from waiting import PATIENCE

Open = Callable[..., Any]


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a run in which nothing is found."""
    return read_run(write_run(tmp_path_factory.mktemp("healthy") / "run"))


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Open a page; in the end it must have said nothing on the console and asked for nothing but itself."""
    pages = []

    def open_page(path: Path, width: int = 1200, **options: Any) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.set_default_timeout(PATIENCE * 1000)
        pages.append((page, requests := [], troubles := []))
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: troubles.append(message.text))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield open_page
    for page, requests, troubles in pages:
        outside = [url for url in requests if not url.startswith(("file:", "data:"))]
        page.close()
        assert not troubles
        assert not outside
        assert sum(url.startswith("file:") for url in requests) == 1


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Path]:
    """Write the page of folders."""

    def write(*folders: Path) -> Path:
        out = tmp_path / "page" / "report.html"
        assert call(["report", *map(str, folders), "-o", str(out)]) == 0
        return out

    return write
