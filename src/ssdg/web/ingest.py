"""Ingest an existing crawl: apply the checks and write the manifest of a crawl, without fetching."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..data.parallel import ProgressCallback
from ..data.sources.manifest import INGEST, MAX_LICENSE_CHARS, REFUSED, Row
from ..data.sources.tree import Reader
from ..data.sources.zip_entries import is_zip
from ..errors import UserError, one_line
from ..files import real_path
from .collection_report import CollectionReport, count_classes
from .ingest_sources import SourceFile, list_archive, list_folder, read_list
from .store import Store, check_label
from .untrusted import MAX_URL_LENGTH, Picture, Refused, check_picture, sha256_of

_BATCH = 64  # files in memory at a time
_THREADS = 4


@dataclass(frozen=True)
class IngestOptions:
    """What to ingest, and how."""

    source: Path
    classes: tuple[str, ...] = ()  # empty: all classes of the source
    root: Path | None = None  # of the paths in a list; None: the folder of the list
    encoding: str | None = None
    first_label: int | None = None
    file_bytes: int = 20_000_000
    min_side: int = 1
    link: bool = False  # create hard links instead of copies


@dataclass(frozen=True)
class Listing:
    """The files to ingest, and a note on how their list was read."""

    files: Sequence[SourceFile]
    note: str = ""

    @property
    def labels(self) -> list[str]:
        """The valid classes of the files, sorted."""
        return sorted({file.label for file in self.files if _label_problem(file.label) is None})


def list_source(options: IngestOptions, out: Path) -> Listing:
    """List the files of a folder, a .zip archive, a CSV file or a plain list."""
    source = options.source
    if not source.exists():
        raise UserError(f"'{source}' does not exist; pass a folder, a .zip archive, a .csv file or a list")
    if source.is_dir() or is_zip(source):
        if options.root is not None or options.first_label is not None:
            raise UserError(f"--root and --first-label apply to lists only; remove them for '{source}'")
        if source.is_dir():
            _check_disjoint(source, out)
            return Listing(list_folder(source, options.classes))
        return Listing(list_archive(source, options.classes, options.encoding))
    root = options.root or source.parent
    if not root.is_dir():
        raise UserError(f"--root '{root}' is not a folder; pass the folder that the paths in '{source}' start from")
    file_list = read_list(source, root, options.classes, options.encoding, options.first_label)
    return Listing(file_list.files, f"'{source.name}' was read as {file_list.encoding}")


def _check_disjoint(source: Path, out: Path) -> None:
    source_path, out_path = real_path(source), real_path(out)
    if source_path.is_relative_to(out_path) or out_path.is_relative_to(source_path):
        raise UserError(f"'{source}' and --out '{out}' contain each other; choose another --out")


def ingest(options: IngestOptions, listing: Listing, store: Store, progress: ProgressCallback) -> None:
    """Check every file of the listing and keep or refuse it; skip files that were ingested before."""
    files = listing.files
    with Reader() as reader, ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            for file, loaded in zip(batch, pool.map(partial(_load, options, reader), batch), strict=True):
                _record(options, file, loaded, store)
            progress(start + len(batch), len(files))


def report_ingest(store: Store, options: IngestOptions, listing: Listing) -> CollectionReport:
    """Report an ingest; files without a class or of a class that was not requested come last."""
    labels = options.classes or tuple(listing.labels)
    other_labels = sorted({row.label for row in store.manifest.rows.values()} - set(labels))
    requested = count_classes(store.manifest, labels)
    others = count_classes(store.manifest, other_labels, is_requested=False)
    return CollectionReport([*requested, *others], [listing.note] if listing.note else [])


def _load(options: IngestOptions, reader: Reader, file: SourceFile) -> tuple[str, Picture | Refused]:
    """Return the hash ('' if the file cannot be read), and the picture or why it is refused."""
    sha256 = ""
    try:
        _check_listed(options, file)
        data = _read(options, reader, file)
        sha256 = sha256_of(data)
        return sha256, check_picture(data, options.min_side)
    except Refused as refusal:
        return sha256, refusal


def _check_listed(options: IngestOptions, file: SourceFile) -> None:
    if file.refusal is not None:
        raise file.refusal
    if problem := _label_problem(file.label):
        raise Refused("no-class", problem)
    if options.classes and file.label not in options.classes:
        raise Refused("not-asked", f"'{file.label}' is not listed in --classes")


def _label_problem(label: str) -> str | None:
    if not label:
        return "neither a folder nor a line names its class"
    try:
        check_label(label)
    except UserError as error:
        return str(error)
    return None


def _read(options: IngestOptions, reader: Reader, file: SourceFile) -> bytes:
    item = file.item
    try:
        if not item.entry:
            status = Path(item.file).stat()
            if not stat.S_ISREG(status.st_mode):
                raise Refused("unreadable", "not a regular file")
            _check_size(status.st_size, options.file_bytes)
        else:
            _check_size(reader.entry_bytes(item), options.file_bytes)
        return reader.content(item)
    except OSError as error:
        raise Refused("unreadable", error.strerror or str(error)) from None


def _check_size(num_bytes: int, max_bytes: int) -> None:
    if num_bytes > max_bytes:
        raise Refused("too-large", f"{num_bytes:,} bytes, more than the limit of {max_bytes:,}")


def _record(options: IngestOptions, file: SourceFile, loaded: tuple[str, Picture | Refused], store: Store) -> None:
    sha256, result = loaded
    row = Row(
        "" if _label_problem(file.label) else file.label,
        REFUSED,
        source=f"{INGEST}{one_line(options.source.name)}",
        origin=file.item.path,
        url=file.url.strip()[:MAX_URL_LENGTH],
        sha256=sha256,
        licence=one_line(file.licence, MAX_LICENSE_CHARS),
    )
    if row.key in store.manifest.rows or (not sha256 and store.has_origin(row)):
        return
    if isinstance(result, Refused):
        store.refuse(row, result)
        return
    link = Path(file.item.file) if options.link and not file.item.entry else None
    store.keep(replace(row, sha256=result.sha256), result, link)
