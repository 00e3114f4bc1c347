"""Take over a crawl that someone has: the checks and the manifest of a crawl, without the fetching."""

from __future__ import annotations

import stat
import zipfile
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..data.parallel import Progress
from ..data.sources.manifest import INGEST, MOST_LICENCE_LETTERS, REFUSED, Row
from ..data.sources.tree import Reader
from ..errors import UserError
from .crawl.http_get import MOST_URL_LETTERS
from .ingest_sources import Given, list_archive, list_folder, read_list
from .store import Store, check_label
from .untrusted import Picture, Refused, check_picture, one_line, sha256_of

_BATCH = 64  # files in memory
_THREADS = 4


@dataclass(frozen=True)
class Wish:
    """What to take over, and how."""

    source: Path
    classes: tuple[str, ...] = ()  # all that are found if none is named
    root: Path | None = None  # of the paths in a list; the folder of the list if none is given
    encoding: str | None = None
    first_label: int | None = None
    file_bytes: int = 20_000_000
    min_side: int = 1
    link: bool = False  # hard links instead of copies


@dataclass(frozen=True)
class Listing:
    """The files to take over, and a sentence on how their list was read."""

    files: Sequence[Given]
    note: str = ""

    @property
    def labels(self) -> list[str]:
        """The classes that are told, sorted."""
        return sorted({given.label for given in self.files if _label_problem(given.label) is None})


def list_source(wish: Wish, out: Path) -> Listing:
    """Find out what the source is and list its files."""
    source = wish.source
    if not source.exists():
        raise UserError(f"'{source}' does not exist; give a folder, a .zip archive, a .csv file or a list")
    if source.is_dir() or zipfile.is_zipfile(source):
        if wish.root is not None or wish.first_label is not None:
            raise UserError(f"--root and --first-label are for lists, and '{source}' is none; leave them out")
        if source.is_dir():
            _check_apart(source, out)
            return Listing(list_folder(source, wish.classes))
        return Listing(list_archive(source, wish.classes, wish.encoding))
    root = wish.root or source.parent
    if not root.is_dir():
        raise UserError(f"the root '{root}' is not a folder; give the one that the paths in '{source}' start from")
    listed = read_list(source, root, wish.classes, wish.encoding, wish.first_label)
    return Listing(listed.files, f"'{source.name}' was read as {listed.encoding}")


def _check_apart(source: Path, out: Path) -> None:
    one, other = source.resolve(), out.resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise UserError(f"'{source}' and --out '{out}' lie in each other; give a folder elsewhere")


def ingest(wish: Wish, listing: Listing, store: Store, progress: Progress) -> None:
    """Check every file of the listing, and keep or refuse it; what was taken over before is passed over."""
    files = listing.files
    with Reader() as reader, ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            for given, loaded in zip(batch, pool.map(partial(_load, wish, reader), batch), strict=True):
                _record(wish, given, loaded, store)
            progress(start + len(batch), len(files))


def _load(wish: Wish, reader: Reader, given: Given) -> tuple[str, Picture | Refused]:
    """The hash where the file could be read, and the picture or why there is none."""
    sha256 = ""
    try:
        _check_told(wish, given)
        data = _read(wish, reader, given)
        sha256 = sha256_of(data)
        return sha256, check_picture(data, wish.min_side)
    except Refused as why:
        return sha256, why


def _check_told(wish: Wish, given: Given) -> None:
    if given.why is not None:
        raise given.why
    if problem := _label_problem(given.label):
        raise Refused("no-class", problem)
    if wish.classes and given.label not in wish.classes:
        raise Refused("not-asked", f"'{given.label}' is not among --classes")


def _label_problem(label: str) -> str | None:
    if not label:
        return "neither a folder nor a line tells its class"
    try:
        check_label(label)
    except UserError as error:
        return str(error)
    return None


def _read(wish: Wish, reader: Reader, given: Given) -> bytes:
    item = given.item
    try:
        if not item.entry:
            about = Path(item.file).stat()
            if not stat.S_ISREG(about.st_mode):
                raise Refused("unreadable", "not a plain file")
            _check_bytes(about.st_size, wish.file_bytes)
        else:
            _check_bytes(reader.entry_bytes(item), wish.file_bytes)
        return reader.content(item)
    except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        what = error.strerror if isinstance(error, OSError) else None
        raise Refused("unreadable", what or str(error) or type(error).__name__) from None


def _check_bytes(num_bytes: int, most: int) -> None:
    if num_bytes > most:
        raise Refused("too-large", f"{num_bytes:,} bytes, more than the limit of {most:,}")


def _record(wish: Wish, given: Given, loaded: tuple[str, Picture | Refused], store: Store) -> None:
    sha256, result = loaded
    row = Row(
        "" if _label_problem(given.label) else given.label,
        REFUSED,
        source=f"{INGEST}{one_line(wish.source.name)}",
        origin=given.item.path,
        url=given.url.strip()[:MOST_URL_LETTERS],
        sha256=sha256,
        licence=one_line(given.licence, MOST_LICENCE_LETTERS),
    )
    if row.key in store.manifest.rows or (not sha256 and store.has_place(row)):
        return
    if isinstance(result, Refused):
        store.refuse(row, result)
        return
    link = Path(given.item.file) if wish.link and not given.item.entry else None
    store.keep(replace(row, sha256=result.sha256), result, link)
