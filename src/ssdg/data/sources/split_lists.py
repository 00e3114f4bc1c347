"""The split files of PACS: `<domain>_{train,crossval,test}_kfold.txt`, lines `path label`."""

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
    """Split lists as positions among a domain's images."""

    rows: dict[str, tuple[int, ...]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    numbers: dict[int, str] = field(default_factory=dict)  # label number -> class name


def is_split_file(name: str) -> bool:
    """Whether a file of this name is a split list."""
    return _SPLIT_FILE.fullmatch(name) is not None


def read_split_files(texts: Iterable[Item]) -> dict[str, SplitLists]:
    """All split files of a tree, by domain in lower case."""
    found: dict[str, dict[str, list[tuple[str, int | None]]]] = {}
    with Reader() as reader:
        for item in texts:
            if match := _SPLIT_FILE.fullmatch(item.parts[-1]):
                lines = reader.content(item).decode("utf-8", "replace").splitlines()
                lists = found.setdefault(match["domain"].casefold(), {})
                lists[match["split"].casefold()] = [_parse(line) for line in lines if line.strip()]
    order = ("train", "crossval", "test")
    return {domain: {s: lists[s] for s in order if s in lists} for domain, lists in found.items()}


def _parse(line: str) -> tuple[str, int | None]:
    """Split at the last space, for paths may hold spaces; a line may come without a label."""
    path, _, number = line.strip().rpartition(" ")
    if path and number.isdecimal():
        return path.rstrip(), int(number)
    return line.strip(), None


def match_split_lists(
    lists: SplitLists, below: Sequence[Sequence[str]], labels: Sequence[str], domain: str
) -> MatchedSplits:
    """Find each listed path among images at `below` (their parts under the domain's folder).

    An image with the same name and another suffix counts as found; leading folders of the list do not matter.
    """
    exact = {"/".join(parts): row for row, parts in enumerate(below)}
    by_stem = {_stem(path): row for path, row in exact.items()}
    matched = MatchedSplits()
    for split, lines in lists.items():
        rows: dict[int, None] = {}
        for path, number in lines:
            row = _find(path, exact, by_stem)
            if row is None:
                matched.missing.append(path)
                continue
            if row in rows:
                matched.repeated.append(f"{split}: {path}")
            rows[row] = None
            _learn(matched.numbers, number, labels[row], domain)
        matched.rows[split] = tuple(rows)
    return matched


def _find(path: str, exact: Mapping[str, int], by_stem: Mapping[str, int]) -> int | None:
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


def _learn(numbers: dict[int, str], number: int | None, label: str, domain: str) -> None:
    if number is not None and numbers.setdefault(number, label) != label:
        raise UserError(
            f"the split files of '{domain}' give the label {number} to both '{numbers[number]}' and "
            f"'{label}'; each class must have a number of its own"
        )
