"""The engine `urls`: a CSV file of addresses and classes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from .engines import Found
from .texts import CLASS, LICENCE, URL, read_table


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
