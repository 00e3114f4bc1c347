"""Fetch a published dataset into a folder that `--data` reads: download, unpack, lay out, then rename.

Publishers wrap the domains in extra folders (`PACS/kfold/`, `OfficeHomeDataset_10072016/`) or pack each domain
separately, so every domain is located on its own, preferably next to the others.
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

from ..data.catalog import Dataset, DomainEntry, normalize_name
from ..data.sources.split_lists import is_split_file
from ..data.sources.tree import IMAGE_SUFFIXES
from ..errors import UserError
from ..files import locked, parse_json, read_bytes, sha256_of, write_json
from .archives import Bounds, unpack
from .download import Downloader
from .published import PUBLISHED, PublishedDataset, Source
from .transfer import FetchError

SPLITS = "splits"
_MAX_NAMED = 6


@dataclass(frozen=True)
class TreeContents:
    """The relevant contents of an unpacked tree: folders with images below them, .npz files and split lists."""

    folders: dict[Path, int]  # folder -> number of images below it
    arrays: tuple[Path, ...]
    splits: tuple[Path, ...]


def lay_out(tree: Path, ready: Path, dataset: Dataset) -> None:
    """Move the domains of `dataset` from anywhere in `tree` to `ready`; raise `FetchError` if one is missing."""
    contents = scan_tree(tree)
    domains = find_domains(contents, dataset)
    ready.mkdir(parents=True)
    for path in contents.splits:
        (ready / SPLITS).mkdir(exist_ok=True)
        if not (ready / SPLITS / path.name).exists():
            path.rename(ready / SPLITS / path.name)
    for name, path in domains.items():
        path.rename(ready / (f"{name}.npz" if path.suffix == ".npz" and path.is_file() else name))


def scan_tree(tree: Path) -> TreeContents:
    """Scan a tree in one pass."""
    folders: Counter[Path] = Counter()
    arrays, splits = [], []
    for directory, _, names in os.walk(tree):
        path = Path(directory)
        num_images = sum(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in names)
        for folder in (path, *path.parents):
            if num_images and folder.is_relative_to(tree):
                folders[folder] += num_images
        arrays += [path / name for name in names if name.lower().endswith(".npz")]
        splits += [path / name for name in names if is_split_file(name)]
    return TreeContents(dict(sorted(folders.items())), tuple(sorted(arrays)), tuple(sorted(splits)))


def find_domains(contents: TreeContents, dataset: Dataset) -> dict[str, Path]:
    """Return the path of each domain, by its name in the catalog."""
    candidates = {entry.name: _candidates(entry, contents) for entry in dataset.domains}
    num_siblings = Counter(parent for paths in candidates.values() for parent in {path.parent for path in paths})
    domains = {}
    for name, paths in candidates.items():
        if paths:
            best = min(paths, key=lambda path: (-num_siblings[path.parent], len(path.parts), str(path)))
            domains[name] = _innermost(best, paths, contents)
    if dataset.web and dataset.web not in domains:
        for path in _class_folders(contents, dataset, list(domains.values()))[:1]:
            domains[dataset.web] = path
    if missing := [entry.name for entry in dataset.domains if entry.name not in domains]:
        names = ", ".join(missing)
        raise FetchError(f"domains of {dataset.name} missing from the archive: {names}; it has {_describe(contents)}")
    return domains


def _candidates(entry: DomainEntry, contents: TreeContents) -> list[Path]:
    """Return folders and .npz files named like the domain; its short name of one or two letters is too ambiguous."""
    names = {normalize_name(name) for name in (entry.name, *entry.aliases)}
    folders = [path for path in contents.folders if normalize_name(path.name) in names]
    return folders + [path for path in contents.arrays if normalize_name(path.stem) in names]


def _innermost(path: Path, candidates: Sequence[Path], contents: TreeContents) -> Path:
    """Descend from `photo` to `photo/photo`: an archive named like the folder inside it."""
    for child in candidates:
        if child.parent == path and contents.folders.get(child) == contents.folders[path]:
            return _innermost(child, candidates, contents)
    return path


def _class_folders(contents: TreeContents, dataset: Dataset, domains: Sequence[Path]) -> list[Path]:
    """Return folders outside the domains that contain at least half of the classes, most classes first."""
    classes = {normalize_name(name) for name in dataset.classes}
    counts = Counter(folder.parent for folder in contents.folders if normalize_name(folder.name) in classes)
    free = [path for path in counts if not any(path == domain or domain in path.parents for domain in domains)]
    return sorted(
        (path for path in free if 2 * counts[path] >= len(classes)), key=lambda path: (-counts[path], str(path))
    )


def _describe(contents: TreeContents) -> str:
    """List the topmost folders for an error message."""
    names = dict.fromkeys(path.name for path in sorted(contents.folders, key=lambda p: (len(p.parts), str(p)))[1:])
    listed = [name for name in names if not name.isdecimal()][:_MAX_NAMED]
    return f"the folders {', '.join(listed)}" if listed else "no folder of images"


RECORD = "fetched.json"  # in the target
Log = Callable[[str], None]


@dataclass(frozen=True)
class DatasetFetcher:
    """Fetches one dataset into the folder `target`."""

    published: PublishedDataset
    target: Path
    downloader: Downloader = field(default_factory=Downloader)
    bounds: Bounds = field(default_factory=Bounds)
    log: Log = lambda message: None

    @property
    def work_dir(self) -> Path:
        """A folder next to the target, so that the last step is a rename; a killed fetch resumes from it."""
        return self.target.parent / f".{self.target.name}.fetch"

    def fetch_from_sources(self, sources: Sequence[Source]) -> None:
        """Fetch from the first source that provides the complete dataset, unless an earlier process did."""
        with self._lock_target():
            if any(self._was_fetched("from", [file.url for file in source.files]) for source in sources):
                return None
            self._check_target()
            reasons = []
            for source in sources:
                self.log(f"{self.published.name} from {source.description}")
                try:
                    return self._from_source(source)
                except FetchError as failure:
                    reasons.append(str(failure))
                    self.log(f"  failed: {failure}")
            raise self._no_source_error(reasons)

    def fetch_from_files(self, files: Sequence[Path]) -> None:
        """Unpack local archives, which together hold the dataset, unless an earlier process did."""
        for file in files:
            if file.is_dir():
                raise UserError(
                    f"'{file}' is a folder; if it contains {self.published.name}, pass it to --data directly"
                )
            if not file.is_file():
                raise UserError(f"'{file}' does not exist; pass an archive of {self.published.name}")
        with self._lock_target():
            if self.target.exists() and self._was_fetched("sha256", [sha256_of(file) for file in files]):
                return
            self._check_target()
            try:
                self._install(files, [str(file) for file in files])
            except FetchError as failure:
                raise UserError(
                    f"cannot create {self.published.name} from {', '.join(map(str, files))}: {failure}; "
                    "pass the complete archive, or all of its parts after one --from"
                ) from None

    @contextmanager
    def _lock_target(self) -> Iterator[None]:
        """Keep other processes out; delete the work folder at the end if nothing is left to resume."""
        lock = self.target.parent / f".{self.target.name}.lock"
        with locked(lock, busy=f"'{self.target}' is being fetched by another process; wait for it"):
            try:
                yield
            finally:
                if self.work_dir.is_dir() and (self.target.exists() or not any(self.work_dir.iterdir())):
                    shutil.rmtree(self.work_dir)

    def _was_fetched(self, key: str, values: Sequence[str]) -> bool:
        """Return whether the target has a record of this dataset from files with these values of `key`.

        The record appears together with the target, even if the process was killed immediately afterwards.
        """
        try:
            record = parse_json(read_bytes(self.target / RECORD))
            was_fetched = record["data_set"] == self.published.name and [
                file[key] for file in record["files"]
            ] == list(values)
        except (OSError, ValueError, KeyError, TypeError):
            return False
        if was_fetched:
            self.log(f"{self.published.name} was fetched before; verifying it")
        return was_fetched

    def _check_target(self) -> None:
        if self.target.exists() or self.target.is_symlink():
            raise UserError(
                f"'{self.target}' already exists and was not changed; "
                "check it with ssdg data verify, or choose another folder with --to"
            )

    def _from_source(self, source: Source) -> None:
        folder = self.work_dir / hashlib.sha256(source.files[0].url.encode()).hexdigest()[:8]
        files = [self.downloader.get(remote, folder) for remote in source.files]
        try:
            self._install(files, [remote.url for remote in source.files])
        except FetchError:
            shutil.rmtree(folder)  # the same bytes would fail again
            raise

    def _install(self, files: Sequence[Path], origins: Sequence[str]) -> None:
        """Unpack and lay out the archives, then rename the result to the target."""
        tree, ready = self.work_dir / "unpacked", self.work_dir / "ready"
        try:
            for leftover in (tree, ready):  # left by a killed fetch
                shutil.rmtree(leftover, ignore_errors=True)
            for number, file in enumerate(files):
                self.log(f"unpacking {file.name}")
                unpack(file, tree / str(number), self.bounds)
            lay_out(tree, ready, self.published.dataset)
            write_json(ready / RECORD, self._record(files, origins))
            self._check_target()
            ready.rename(self.target)
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            shutil.rmtree(ready, ignore_errors=True)

    def _record(self, files: Sequence[Path], origins: Sequence[str]) -> dict[str, object]:
        """Return the provenance of the dataset."""
        parts = [
            {"from": origin, "sha256": sha256_of(file), "bytes": file.stat().st_size}
            for file, origin in zip(files, origins, strict=True)
        ]
        fetched = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        return {"data_set": self.published.name, "fetched": fetched, "files": parts}

    def _no_source_error(self, reasons: Sequence[str]) -> UserError:
        problem = f"could not be downloaded ({'; '.join(dict.fromkeys(reasons))})" if reasons else "has no known URL"
        manual = f"download {self.published.by_hand}" if reasons else self.published.by_hand
        command = f"ssdg data fetch {self._command_name()} --from FILE --to {self.target}"
        return UserError(f"{self.published.name} {problem}; {manual}, then run {command}")

    def _command_name(self) -> str:
        names = (key for key, published in PUBLISHED.items() if published.name == self.published.name)
        return next(names, self.published.name)
