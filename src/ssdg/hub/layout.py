"""Unpacked files -> `ROOT/<domain>/<class>/<image>` and `ROOT/splits/`, under the names of the catalog.

Publishers wrap the domains in folders of their own (`PACS/kfold/`, `OfficeHomeDataset_10072016/`) or pack each domain
apart, so every domain is looked for by itself, and best where the others are.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..data.catalog import Dataset, DomainEntry, plain
from ..data.sources import IMAGE_SUFFIXES
from ..data.splits import is_split_file
from .failure import Failed

SPLITS = "splits"
_MOST_NAMED = 6


@dataclass(frozen=True)
class Found:
    """What lies in an unpacked tree: folders with images below them, .npz files, split lists."""

    folders: dict[Path, int]  # and how many images lie below
    arrays: tuple[Path, ...]
    splits: tuple[Path, ...]


def lay_out(tree: Path, ready: Path, dataset: Dataset) -> None:
    """Move the domains of `dataset` from anywhere in `tree` to `ready`; raise `Failed` if one is not there."""
    found = look_through(tree)
    places = find_domains(found, dataset)
    ready.mkdir(parents=True)
    for path in found.splits:
        (ready / SPLITS).mkdir(exist_ok=True)
        if not (ready / SPLITS / path.name).exists():
            path.rename(ready / SPLITS / path.name)
    for name, path in places.items():
        path.rename(ready / (f"{name}.npz" if path.suffix == ".npz" and path.is_file() else name))


def look_through(tree: Path) -> Found:
    """List a tree once."""
    folders: Counter[Path] = Counter()
    arrays, splits = [], []
    for place, _, names in os.walk(tree):
        here = Path(place)
        images = sum(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in names)
        for folder in (here, *here.parents):
            if images and folder.is_relative_to(tree):
                folders[folder] += images
        arrays += [here / name for name in names if name.lower().endswith(".npz")]
        splits += [here / name for name in names if is_split_file(name)]
    return Found(dict(sorted(folders.items())), tuple(sorted(arrays)), tuple(sorted(splits)))


def find_domains(found: Found, dataset: Dataset) -> dict[str, Path]:
    """Where each domain lies, by its name in the catalog."""
    candidates = {entry.name: _candidates(entry, found) for entry in dataset.domains}
    company = Counter(parent for paths in candidates.values() for parent in {path.parent for path in paths})
    places = {}
    for name, paths in candidates.items():
        if paths:
            best = min(paths, key=lambda path: (-company[path.parent], len(path.parts), str(path)))
            places[name] = _innermost(best, paths, found)
    if dataset.web and dataset.web not in places:
        for path in _class_folders(found, dataset, list(places.values()))[:1]:
            places[dataset.web] = path
    if missing := [entry.name for entry in dataset.domains if entry.name not in places]:
        raise Failed(f"there is no {' and no '.join(missing)} of {dataset.name} in it, but {_named(found)}")
    return places


def _candidates(entry: DomainEntry, found: Found) -> list[Path]:
    """Folders and .npz files whose name is the domain's; its short name of a letter or two says too little."""
    names = {plain(word) for word in (entry.name, *entry.aliases)}
    folders = [path for path in found.folders if plain(path.name) in names]
    return folders + [path for path in found.arrays if plain(path.stem) in names]


def _innermost(path: Path, same: Sequence[Path], found: Found) -> Path:
    """`photo/photo` is one domain: an archive of that name with a folder of that name."""
    for below in same:
        if below.parent == path and found.folders.get(below) == found.folders[path]:
            return _innermost(below, same, found)
    return path


def _class_folders(found: Found, dataset: Dataset, taken: Sequence[Path]) -> list[Path]:
    """Folders with at least half of the classes in them, outside the domains; the fullest first."""
    classes = {plain(name) for name in dataset.classes}
    counts = Counter(folder.parent for folder in found.folders if plain(folder.name) in classes)
    free = [path for path in counts if not any(path == one or one in path.parents for one in taken)]
    return sorted(
        (path for path in free if 2 * counts[path] >= len(classes)), key=lambda path: (-counts[path], str(path))
    )


def _named(found: Found) -> str:
    """The folders nearest to the top, for a message."""
    names = dict.fromkeys(path.name for path in sorted(found.folders, key=lambda p: (len(p.parts), str(p)))[1:])
    shown = [name for name in names if not name.isdecimal()][:_MOST_NAMED]
    return f"folders named {', '.join(shown)}" if shown else "no folder of images"
