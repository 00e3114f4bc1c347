"""Engines find addresses of images; they fetch none. All that is fetched goes through the same checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ..errors import UserError, unknown
from .fetch import Fetcher

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
        from .urls import read_urls

        if urls is None:
            raise UserError("the engine 'urls' needs --urls FILE.csv with the columns url and class")
        listed = read_urls(urls, encoding)
        return lambda fetcher: listed
    if urls is not None:
        raise UserError(f"--urls is for the engine 'urls', not for '{name}'; leave one of the two out")
    if name.endswith(".py"):
        from .own import load_engine

        return load_engine(Path(name))
    if not name.startswith(ICRAWLER) or name.removeprefix(ICRAWLER) not in SEARCHES:
        raise unknown("engine", name, (*NAMES, "FILE.py"))
    from .search import find_search

    make = find_search(name.removeprefix(ICRAWLER))
    return lambda fetcher: make(fetcher, ask_robots)
