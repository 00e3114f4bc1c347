"""Split files of PACS: `<domain>_{train,crossval,test}_kfold.txt` with lines `path label`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import UserError
from .tree import Item, Reader

_SPLIT_FILE = re.compile(r"(?P<domain>.+)_(?P<split>train|crossval|test)_kfold\.txt", re.IGNORECASE)
SplitLists = Mapping[str, Sequence[tuple[str, int | None]]]  # split -> (path, label number) per line


@dataclass
class MatchedSplits:
    """Split lists as row indices of a domain's images."""

    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    numbers: dict[int, str] = field(default_factory=dict)  # label number -> class name


def is_split_file(name: str) -> bool:
    """Return whether a file of this name is a split list."""
    return _SPLIT_FILE.fullmatch(name) is not None


def read_split_files(texts: Iterable[Item]) -> dict[str, SplitLists]:
    """Read all split files of a tree, by domain in lower case."""
    by_domain: dict[str, dict[str, list[tuple[str, int | None]]]] = {}
    with Reader() as reader:
        for item in texts:
            if match := _SPLIT_FILE.fullmatch(item.parts[-1]):
                lines = _read_lines(item, reader)
                lists = by_domain.setdefault(match["domain"].casefold(), {})
                lists[match["split"].casefold()] = [_parse_line(line) for line in lines if line.strip()]
    order = ("train", "crossval", "test")
    return {domain: {s: lists[s] for s in order if s in lists} for domain, lists in by_domain.items()}


def _read_lines(item: Item, reader: Reader) -> list[str]:
    try:
        return reader.content(item).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise UserError(
            f"cannot read the split list '{item.path}': {error.strerror or error}; replace or remove it"
        ) from None


def _parse_line(line: str) -> tuple[str, int | None]:
    """Split at the last space, as paths may contain spaces; the label is optional."""
    path, _, number = line.strip().rpartition(" ")
    if path and number.isdecimal():
        return path.rstrip(), int(number)
    return line.strip(), None


def match_split_lists(
    lists: SplitLists, below: Sequence[Sequence[str]], labels: Sequence[str], domain: str
) -> MatchedSplits:
    """Match each listed path to an image; `below` are the parts of the images' paths below the domain's folder.

    An image with the same name and another suffix matches; leading folders of a listed path do not matter.
    """
    exact = {"/".join(parts): row for row, parts in enumerate(below)}
    by_stem = {_stem(path): row for path, row in exact.items()}
    matched = MatchedSplits()
    for split, lines in lists.items():
        rows: dict[int, None] = {}
        for path, number in lines:
            row = _find_row(path, exact, by_stem)
            if row is None:
                matched.missing.append(path)
                continue
            if row in rows:
                matched.repeated.append(f"{split}: {path}")
            rows[row] = None
            _record_number(matched.numbers, number, labels[row], domain)
        matched.rows[split] = tuple(rows)
    return matched


def _find_row(path: str, exact: Mapping[str, int], by_stem: Mapping[str, int]) -> int | None:
    parts = path.replace("\\", "/").split("/")
    for start in range(len(parts) - 1):
        tail = "/".join(parts[start:])
        row = exact.get(tail, by_stem.get(_stem(tail)))
        if row is not None:
            return row
    return None


def _stem(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/{name.rpartition('.')[0] or name}"


def _record_number(numbers: dict[int, str], number: int | None, label: str, domain: str) -> None:
    if number is not None and numbers.setdefault(number, label) != label:
        raise UserError(
            f"the split files of '{domain}' give the label {number} to both '{numbers[number]}' and "
            f"'{label}'; each class needs a unique number"
        )
