"""Engines that find image addresses: a CSV of URLs, a custom Python file, or icrawler's search parsers.

An engine fetches no image. icrawler contributes its feeder and parser only: pages are fetched with the same checks
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

from ...errors import UserError, unknown
from ..untrusted import CLASS, LICENCE, URL, Refused, Spent, one_line, read_table
from .fetch_url import Fetcher

ICRAWLER = "icrawler:"
SEARCHES = ("bing", "google", "baidu")
NAMES = ("urls", *(ICRAWLER + name for name in SEARCHES))


@dataclass(frozen=True)
class Found:
    """An address that an engine found, with the licence where the source tells one."""

    url: str
    licence: str = ""


class Engine(Protocol):
    """Finds addresses of images."""

    def search(self, label: str, keyword: str) -> Iterator[Found]:
        """Addresses for a class, best first, found as they are asked for; `Refused` when no more can be had."""
        ...


EngineBuilder = Callable[[Fetcher], Engine]


def find_engine(name: str, *, urls: Path | None, encoding: str | None, ask_robots: bool) -> EngineBuilder:
    """The engine of a name, ready to be given a fetcher; raise `UserError` if there is none or it lacks something."""
    if name == "urls":
        if urls is None:
            raise UserError("the engine 'urls' needs --urls FILE.csv with the columns url and class")
        listed = read_urls(urls, encoding)
        return lambda fetcher: listed
    if urls is not None:
        raise UserError(f"--urls is for the engine 'urls', not for '{name}'; leave one of the two out")
    if name.endswith(".py"):
        return load_engine(Path(name))
    if not name.startswith(ICRAWLER) or name.removeprefix(ICRAWLER) not in SEARCHES:
        raise unknown("engine", name, (*NAMES, "FILE.py"))
    make = find_search(name.removeprefix(ICRAWLER))
    return lambda fetcher: make(fetcher, ask_robots)


@dataclass(frozen=True)
class UrlList:
    """Addresses by class, in the order of the file."""

    found: dict[str, Sequence[Found]]

    def search(self, label: str, keyword: str) -> Iterator[Found]:
        """The addresses that the file has for the class."""
        return iter(self.found.get(label, ()))


def read_urls(path: Path, encoding: str | None) -> UrlList:
    """Read a CSV file with the columns `url` and `class`, and `licence` if it has one."""
    table = read_table(path, encoding)
    if URL not in table.columns or CLASS not in table.columns:
        raise UserError(f"'{path}' must have the columns url and class in its first line; licence may be a third")
    found: defaultdict[str, list[Found]] = defaultdict(list)
    for cells in table.rows:
        if cells[URL].strip():
            found[cells[CLASS].strip()].append(Found(cells[URL].strip(), cells.get(LICENCE, "").strip()))
    return UrlList(dict(found))


SearchFunction = Callable[[str, Callable[[str], bytes]], Iterable[str | tuple[str, str]]]


@dataclass(frozen=True)
class OwnEngine:
    """Calls the function; what it fetches goes through every check, too."""

    path: Path
    function: SearchFunction
    fetcher: Fetcher

    def search(self, label: str, keyword: str) -> Iterator[Found]:
        """The addresses that the function yields."""
        try:
            for found in self.function(keyword, self.fetcher.page):
                yield Found(found) if isinstance(found, str) else Found(*found)
        except (Refused, Spent):
            raise
        except Exception as error:
            raise UserError(f"the engine '{self.path}' fails: {type(error).__name__}: {error}") from error


def load_engine(path: Path) -> Callable[[Fetcher], OwnEngine]:
    """Run the file and take its `search`. It is Python code and can do what you can: give only what you trust."""
    spec = importlib.util.spec_from_file_location("ssdg_engine", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"the engine '{path}' is no file; give a Python file with a function search(keyword, fetch)")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"the engine '{path}' fails: {type(error).__name__}: {error}") from error
    function = getattr(module, "search", None)
    if not callable(function):
        raise UserError(f"the engine '{path}' has no function search(keyword, fetch); write one")
    return lambda fetcher: OwnEngine(path, function, fetcher)


_ENCODING = ("google",)
MOST_RESULTS = 1000  # what the search engines give at most


@dataclass(frozen=True)
class _Page:
    """What a parser reads of an answer."""

    content: bytes


@dataclass(frozen=True)
class Search:
    """One search engine, by the two halves of icrawler that know its pages."""

    feeder: Any
    parser: Any
    fetcher: Fetcher
    ask_robots: bool
    encodes: bool  # whether the feeder itself percent-encodes the keyword

    def search(self, label: str, keyword: str) -> Iterator[Found]:
        """Addresses page by page until a page has none; an engine that gives none at all is an error."""
        found = 0
        for page in self._pages(keyword):
            answer = _Page(self.fetcher.page(page, ask_robots=self.ask_robots))
            urls = list(self._parse(answer))
            if not urls:
                break
            found += len(urls)
            yield from urls
        if not found:
            raise Refused("type", "the first page of results holds no image that icrawler can find")

    def _pages(self, keyword: str) -> Iterator[str]:
        self.feeder.out_queue = queue = Queue[str]()
        self.feeder.feed(keyword=keyword if self.encodes else quote_plus(keyword), offset=0, max_num=MOST_RESULTS)
        while not queue.empty():
            yield queue.get()

    def _parse(self, page: _Page) -> Iterator[Found]:
        try:
            for task in self.parser.parse(page) or ():
                yield Found(str(task["file_url"]))
        except Exception as error:  # the page of today may not be the one that the parser was written for
            raise Refused("type", f"icrawler cannot read the page of results: {one_line(repr(error))}") from None


def find_search(name: str) -> Callable[[Fetcher, bool], Search]:
    """The search engine of a name; raise `UserError` if icrawler is not installed."""
    try:
        module = importlib.import_module(f"icrawler.builtin.{name}")
        signal = importlib.import_module("icrawler.utils").Signal()
    except ImportError:
        raise UserError(f"the engine 'icrawler:{name}' needs icrawler; install it: pip install 'ssdg[web]'") from None
    feeder = getattr(module, f"{name.capitalize()}Feeder")(1, signal, None)
    parser = getattr(module, f"{name.capitalize()}Parser")(1, signal, None)
    parser.logger.setLevel(logging.CRITICAL)  # what goes wrong is told in the report
    return lambda fetcher, ask_robots: Search(feeder, parser, fetcher, ask_robots, name in _ENCODING)
