"""An engine of one's own: a Python file whose `search(keyword, fetch)` yields addresses, or (address, licence)."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from .engines import Found
from .fetch import Fetcher
from .refusal import Refused, Spent

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
