"""Fetch a published dataset into a folder that `--data` reads: download, unpack, lay out, then rename.

Publishers wrap the domains in folders of their own (`PACS/kfold/`, `OfficeHomeDataset_10072016/`) or pack each domain
separately, so every domain is searched for by itself, preferably next to the others.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ..data.catalog import Dataset, DomainEntry, plain
from ..data.sources.split_lists import is_split_file
from ..data.sources.tree import IMAGE_SUFFIXES
from ..errors import UserError
from ..files import locked, write_json
from .archives import Bounds, unpack
from .download import Downloader, digest
from .published import Published, Source
from .transfer import Failed

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


RECORD, LOCK = "fetched.json", "lock"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Fetch:
    """One data set, its place, and how to get it there."""

    published: Published
    to: Path
    downloader: Downloader = field(default_factory=Downloader)
    bounds: Bounds = field(default_factory=Bounds)
    say: Say = lambda text: None

    @property
    def work(self) -> Path:
        """Beside the place, so that the end is a renaming; a killed fetch goes on with what lies here."""
        return self.to.parent / f".{self.to.name}.fetch"

    def from_sources(self, sources: Sequence[Source]) -> None:
        """From the first source that gives the whole data set."""
        with self._working():
            reasons = []
            for source in sources:
                self.say(f"{self.published.name} from {source.told}")
                try:
                    return self._from_source(source)
                except Failed as failure:
                    reasons.append(str(failure))
                    self.say(f"  failed: {failure}")
            raise self._none_left(reasons)

    def from_files(self, files: Sequence[Path]) -> None:
        """From archives on this disk, all of them together."""
        for file in files:
            if file.is_dir():
                raise UserError(
                    f"'{file}' is a folder; if it holds {self.published.name}, use it as it is with --data"
                )
            if not file.is_file():
                raise UserError(f"'{file}' does not exist; give the archive of {self.published.name} that you have")
        with self._working():
            try:
                self._place(files, [str(file) for file in files])
            except Failed as failure:
                raise UserError(
                    f"{self.published.name} cannot be made from {', '.join(map(str, files))}: {failure}; "
                    "give the whole archive, or all of its parts after one --from"
                ) from None

    @contextmanager
    def _working(self) -> Iterator[None]:
        self._check_free()
        self.work.mkdir(parents=True, exist_ok=True)
        with locked(self.work / LOCK, busy=f"'{self.to}' is being fetched by another process; wait for it"):
            try:
                yield
            finally:
                if self.to.exists() or [path.name for path in self.work.iterdir()] == [LOCK]:
                    shutil.rmtree(self.work)

    def _check_free(self) -> None:
        if self.to.exists() or self.to.is_symlink():
            raise UserError(
                f"'{self.to}' is there already and is left as it is; "
                "look at it with ssdg data verify, or give another folder with --to"
            )

    def _from_source(self, source: Source) -> None:
        folder = self.work / hashlib.sha256(source.files[0].url.encode()).hexdigest()[:8]
        files = [self.downloader.get(remote, folder) for remote in source.files]
        try:
            self._place(files, [remote.url for remote in source.files])
        except Failed:
            shutil.rmtree(folder)  # the same bytes would fail again
            raise

    def _place(self, files: Sequence[Path], origins: Sequence[str]) -> None:
        """Archives -> the folder, in one step at the end."""
        tree, ready = self.work / "unpacked", self.work / "ready"
        try:
            for leftover in (tree, ready):  # of a killed fetch
                shutil.rmtree(leftover, ignore_errors=True)
            for number, file in enumerate(files):
                self.say(f"unpacking {file.name}")
                unpack(file, tree / str(number), self.bounds)
            lay_out(tree, ready, self.published.dataset)
            write_json(ready / RECORD, self._record(files, origins))
            self._check_free()
            ready.rename(self.to)
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            shutil.rmtree(ready, ignore_errors=True)

    def _record(self, files: Sequence[Path], origins: Sequence[str]) -> dict[str, object]:
        """Where it came from."""
        parts = [
            {"from": origin, "sha256": digest(file), "bytes": file.stat().st_size}
            for file, origin in zip(files, origins, strict=True)
        ]
        fetched = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {"data_set": self.published.name, "fetched": fetched, "files": parts}

    def _none_left(self, reasons: Sequence[str]) -> UserError:
        why = f"could not be downloaded ({'; '.join(dict.fromkeys(reasons))})" if reasons else "has no known address"
        hand = f"download {self.published.by_hand}" if reasons else self.published.by_hand
        return UserError(
            f"{self.published.name} {why}; {hand}, then run ssdg data fetch {self._key()} --from FILE --to {self.to}"
        )

    def _key(self) -> str:
        from .published import PUBLISHED

        return next((key for key, one in PUBLISHED.items() if one.name == self.published.name), self.published.name)
