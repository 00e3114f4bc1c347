"""Search engines: the feeder and parser of icrawler with our fetcher, and custom engines."""

from __future__ import annotations

import sys
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import servers as serve
from crawls import Capture, by_url, run
from servers import Site

from data.pictures import png
from ssdg.web.crawl import engines as search
from ssdg.web.crawl.engines import Search
from ssdg.web.crawl.fetch_url import Fetcher


class PageFeeder:
    """As icrawler's feeders: puts the addresses of result pages into its queue."""

    out_queue: Queue[str]

    def __init__(self, url: str) -> None:
        self.url = url

    def feed(self, keyword: str, offset: int, max_num: int) -> None:
        for page in range(3):
            self.out_queue.put(f"{self.url}/search?q={keyword}&page={page}")


class LineParser:
    """As icrawler's parsers: a dictionary for each image on the page."""

    def parse(self, response: Any) -> list[dict[str, str]] | None:
        lines = response.content.decode().split()
        return [{"file_url": line} for line in lines] or None


@pytest.fixture
def bing(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A search engine on this machine, found under the name of another."""

    def find(name: str) -> Any:
        return lambda fetcher, ask: Search(PageFeeder(site.url), LineParser(), fetcher, ask)

    monkeypatch.setattr(search, "load_search", find)
    return site


def results(handler: serve.Handler) -> None:
    """Two images on the first page of a search for a dog, none on the second."""
    requested = handler.path
    here = f"http://{handler.headers['Host']}"
    urls = [f"{here}/1.png", f"{here}/2.png"] if "q=a+dog+%26+co&page=0" in requested else []
    handler.answer(200, "\n".join(urls).encode(), "text/html")


def crawl_args(out: Path, *more: object, classes: str = "dog") -> list[object]:
    args = [
        "web",
        "crawl",
        "--classes",
        classes,
        "--per-class",
        5,
        "--out",
        out,
        "--keyword-template",
        "a {class} & co",
    ]
    return [*args, "--engine", "icrawler:bing", "--allow-private", "--delay", 0, "--min-side", 1, "--json", *more]


def test_a_search_by_pages(bing: Site, tmp_path: Path, capsys: Capture) -> None:
    bing.routes = {"/search": results, "/1.png": serve.image(png(1)), "/2.png": serve.image(png(2))}
    code, report, _ = run(capsys, *crawl_args(tmp_path / "out"))
    assert (code, report["classes"][0]["kept"]) == (0, 2)
    row = by_url(tmp_path / "out")["1.png"]
    assert (row.source, row.origin) == ("icrawler:bing", "a dog & co")
    assert bing.count["/search?q=a+dog+%26+co&page=2"] == 0, "an empty page is the last"


def test_a_class_that_is_not_found_is_reported(bing: Site, tmp_path: Path, capsys: Capture) -> None:
    bing.routes = {"/search": results, "/1.png": serve.image(png(1)), "/2.png": serve.image(png(2))}
    code, report, err = run(capsys, *crawl_args(tmp_path / "out", classes="dog,yeti"))
    assert code == 1
    assert "no image kept for yeti" in err
    assert (
        "yeti: engine icrawler:bing stopped: type: icrawler found no image on the first page of results"
        in report["notes"][0]
    )


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ({"/search": serve.status(200)}, "icrawler found no image on the first page of results"),
        ({"/search": serve.status(403)}, "status: 403"),
        ({"/robots.txt": serve.image(b"User-agent: *\nDisallow: /search", "text/plain")}, "robots"),
    ],
)
def test_zero_found_is_an_error_with_its_cause(
    routes: dict[str, serve.Serve],
    message: str,
    bing: Site,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LineParser, "parse", lambda self, response: None)
    bing.routes = routes
    code, _, err = run(capsys, *crawl_args(tmp_path / "out"))
    assert code == 1
    assert "no image found for any class" in err
    assert message in " ".join(err.split())


def test_the_robots_file_of_a_search_engine_can_be_ignored_but_not_that_of_images(
    bing: Site, tmp_path: Path, capsys: Capture
) -> None:
    bing.routes = {"/search": results, "/robots.txt": serve.image(b"User-agent: *\nDisallow: /", "text/plain")}
    _, report, _ = run(capsys, *crawl_args(tmp_path / "out", "--ignore-search-robots"))
    assert report["classes"][0]["refused"] == {"robots": 2}


def test_a_page_that_the_parser_cannot_read(bing: Site, tmp_path: Path, capsys: Capture, monkeypatch: Any) -> None:
    def fail(self: object, response: object) -> None:
        raise KeyError("data")

    monkeypatch.setattr(LineParser, "parse", fail)
    bing.routes = {"/search": results}
    code, _, err = run(capsys, *crawl_args(tmp_path / "out"))
    assert code == 1
    assert "icrawler cannot parse the page of results: KeyError('data')" in " ".join(err.split())


def test_icrawler_is_not_installed(tmp_path: Path, complaint, monkeypatch: Any) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, "icrawler.builtin.bing", None)
    assert "pip install 'ssdg[web]'" in complaint(*crawl_args(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "page", "url"),
    [
        ("bing", b'<div class="imgpt"><a m=\'{"murl":"http://x.test/a.jpg"}\'></a></div>', "https://www.bing.com/"),
        ("baidu", b'{"data": [{"hoverURL": "http://x.test/a.jpg"}, {}]}', "http://image.baidu.com/"),
    ],
)
def test_icrawlers_own_halves(name: str, page: bytes, url: str, monkeypatch: Any) -> None:
    pytest.importorskip("icrawler")
    requested: list[str] = []

    def fetch(self: object, page_url: str, check_robots: bool) -> bytes:
        requested.append(page_url)
        return page if len(requested) == 1 else b"{}"

    monkeypatch.setattr(Fetcher, "fetch_page", fetch)
    candidates = search.load_search(name)(Fetcher(), True).search("dog", "dog & cat")
    assert next(candidates).url == "http://x.test/a.jpg"
    assert requested[0].startswith(url)
    assert "dog+%26+cat" in requested[0]


def test_a_custom_engine(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {
        "/list": serve.image(b"/1.png", "text/plain"),
        "/1.png": serve.image(png(1)),
        "/2.png": serve.image(png(2)),
    }
    engine = tmp_path / "mine.py"
    engine.write_text(
        "def search(keyword, fetch):\n"
        f"    yield '{site.url}' + fetch('{site.url}/list').decode(), 'CC BY 4.0'\n"
        f"    yield '{site.url}/2.png'\n"
        "    fetch('http://127.0.0.1:1/')\n"
    )
    code, report, _ = run(
        capsys, *crawl_args(tmp_path / "out")[:-8], "--engine", engine, *crawl_args(tmp_path / "out")[-6:]
    )
    assert (code, report["classes"][0]["kept"]) == (0, 2)
    row = by_url(tmp_path / "out")["1.png"]
    assert (row.source, row.licence) == ("mine.py", "CC BY 4.0")
    assert "unreachable" in report["notes"][0]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def find(): pass", "has no function search"),
        ("def search(keyword, fetch): raise RuntimeError('no key')", "RuntimeError: no key"),
        ("import not_there", "not_there"),
        (None, "does not exist"),
    ],
)
def test_engines_that_do_not_work(code: str | None, message: str, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    if code is not None:
        (tmp_path / "mine.py").write_text(code)
    args = ["web", "crawl", "--classes", "dog", "--per-class", 1, "-o", tmp_path / "out"]
    assert message in complaint(*args, "--engine", tmp_path / "mine.py")


def test_an_unknown_engine(tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    args = ["web", "crawl", "--classes", "dog", "--per-class", 1, "-o", tmp_path / "out"]
    assert "did you mean 'icrawler:bing'?" in complaint(*args, "--engine", "icrawler:bin")
