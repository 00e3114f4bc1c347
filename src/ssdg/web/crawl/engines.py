"""Engines that find image URLs: a CSV file of URLs, a custom Python file, or icrawler's search parsers.

An engine fetches no image. Only the feeder and parser of icrawler are used: pages are fetched with the same checks
as everything else, without its threads, session or downloader.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any, Protocol
from urllib.parse import quote_plus

from ...errors import UserError, one_line, unknown
from ..untrusted import CLASS, LICENCE, URL, LimitReached, Refused, read_table
from .fetch_url import Fetcher

ICRAWLER = "icrawler:"
SEARCHES = ("bing", "baidu")
NAMES = ("urls", *(ICRAWLER + name for name in SEARCHES))


@dataclass(frozen=True)
class Candidate:
    """A URL returned by an engine, with its license if the source states one."""

    url: str
    licence: str = ""


class Engine(Protocol):
    """Finds image URLs."""

    def search(self, label: str, keyword: str) -> Iterator[Candidate]:
        """Yield URLs for a class lazily, best first; raise `Refused` if the search fails."""
        ...


EngineBuilder = Callable[[Fetcher], Engine]


def find_engine(name: str, *, urls: Path | None, encoding: str | None, check_robots: bool) -> EngineBuilder:
    """Return the builder of the named engine; raise `UserError` if it is unknown or a requirement is missing."""
    if name == "urls":
        if urls is None:
            raise UserError("engine 'urls' needs --urls FILE.csv with the columns url and class")
        url_list = read_urls(urls, encoding)
        return lambda fetcher: url_list
    if urls is not None:
        raise UserError(f"--urls requires engine 'urls', not '{name}'; remove --urls or --engine")
    if name.endswith(".py"):
        return load_engine(Path(name))
    if not name.startswith(ICRAWLER) or name.removeprefix(ICRAWLER) not in SEARCHES:
        raise unknown("engine", name, (*NAMES, "FILE.py"))
    build = load_search(name.removeprefix(ICRAWLER))
    return lambda fetcher: build(fetcher, check_robots)


@dataclass(frozen=True)
class UrlList:
    """An engine that returns the URLs of a file, in its order."""

    candidates: dict[str, Sequence[Candidate]]

    def search(self, label: str, keyword: str) -> Iterator[Candidate]:
        """Return the URLs that the file lists for the class."""
        return iter(self.candidates.get(label, ()))


def read_urls(path: Path, encoding: str | None) -> UrlList:
    """Read a CSV file with the columns `url`, `class` and optionally `licence`."""
    table = read_table(path, encoding)
    if URL not in table.columns or CLASS not in table.columns:
        raise UserError(f"'{path}' must have a header with the columns url and class (optional: licence)")
    candidates: defaultdict[str, list[Candidate]] = defaultdict(list)
    for cells in table.rows:
        if cells[URL].strip():
            candidates[cells[CLASS].strip()].append(Candidate(cells[URL].strip(), cells.get(LICENCE, "").strip()))
    return UrlList(dict(candidates))


SearchFunction = Callable[[str, Callable[[str], bytes]], Iterable[str | tuple[str, str]]]


@dataclass(frozen=True)
class CustomEngine:
    """An engine that calls a user-defined function; pages it fetches pass the same checks."""

    path: Path
    function: SearchFunction
    fetcher: Fetcher

    def search(self, label: str, keyword: str) -> Iterator[Candidate]:
        """Yield the URLs of the function."""
        try:
            for result in self.function(keyword, self.fetcher.fetch_page):
                yield Candidate(result) if isinstance(result, str) else Candidate(*result)
        except (Refused, LimitReached):
            raise
        except Exception as error:
            raise UserError(f"engine '{self.path}' failed: {type(error).__name__}: {error}") from error


def load_engine(path: Path) -> Callable[[Fetcher], CustomEngine]:
    """Run a Python file and return its `search` function. The file runs with your permissions: trust it first."""
    spec = importlib.util.spec_from_file_location("ssdg_engine", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"engine '{path}' does not exist; pass a Python file with a function search(keyword, fetch)")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"engine '{path}' failed: {type(error).__name__}: {error}") from error
    function = getattr(module, "search", None)
    if not callable(function):
        raise UserError(f"engine '{path}' has no function search(keyword, fetch); define one")
    return lambda fetcher: CustomEngine(path, function, fetcher)


MAX_RESULTS = 1000  # search engines return no more


@dataclass(frozen=True)
class _Page:
    """The part of a response that a parser reads."""

    content: bytes


@dataclass(frozen=True)
class Search:
    """A search engine, read with the feeder and parser of icrawler."""

    feeder: Any
    parser: Any
    fetcher: Fetcher
    check_robots: bool

    def search(self, label: str, keyword: str) -> Iterator[Candidate]:
        """Yield URLs page by page until a page has none; raise `Refused` if the first page has none."""
        num_urls = 0
        for page in self._pages(keyword):
            response = _Page(self.fetcher.fetch_page(page, check_robots=self.check_robots))
            urls = list(self._parse(response))
            if not urls:
                break
            num_urls += len(urls)
            yield from urls
        if not num_urls:
            raise Refused("type", "icrawler found no image on the first page of results")

    def _pages(self, keyword: str) -> Iterator[str]:
        self.feeder.out_queue = queue = Queue[str]()
        self.feeder.feed(keyword=quote_plus(keyword), offset=0, max_num=MAX_RESULTS)
        while not queue.empty():
            yield queue.get()

    def _parse(self, page: _Page) -> Iterator[Candidate]:
        try:
            for task in self.parser.parse(page) or ():
                yield Candidate(str(task["file_url"]))
        except Exception as error:  # search engines change their pages
            raise Refused("type", f"icrawler cannot parse the page of results: {one_line(repr(error))}") from None


def load_search(name: str) -> Callable[[Fetcher, bool], Search]:
    """Load a search engine by name; raise `UserError` if icrawler is not installed."""
    try:
        module = importlib.import_module(f"icrawler.builtin.{name}")
        signal = importlib.import_module("icrawler.utils").Signal()
    except ImportError:
        raise UserError(f"engine 'icrawler:{name}' needs icrawler; run pip install 'ssdg[web]'") from None
    feeder = getattr(module, f"{name.capitalize()}Feeder")(1, signal, None)
    parser = getattr(module, f"{name.capitalize()}Parser")(1, signal, None)
    parser.logger.setLevel(logging.CRITICAL)  # errors appear in the report
    return lambda fetcher, check_robots: Search(feeder, parser, fetcher, check_robots)
