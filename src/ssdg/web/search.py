"""The engines `icrawler:NAME`: icrawler's feeder writes the addresses of result pages and its parser reads them.

Neither its threads, nor its session, nor its downloader takes part: pages are fetched as all else is.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Queue
from typing import Any
from urllib.parse import quote_plus

from ..errors import UserError
from .engines import Found
from .fetch import Fetcher
from .refusal import Refused, one_line

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
