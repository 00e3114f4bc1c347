"""Export features: encode a stream of images in order, and write Parquet in row groups or .npz. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..data.sources.decode import ResizeMode
from ..errors import UserError
from ..files import atomic_path
from .classifier import Images
from .find_images import Entry
from .partial_output import RowCounts
from .predictions import require_pyarrow
from .stream import NO_LISTED_IMAGE, NOT_FINITE, Decoded, ReportProgress, decode_batches

SUFFIXES = (".parquet", ".npz")
META = "ssdg"  # key of the JSON in the metadata of a Parquet file
GROUP_BYTES = 1 << 25  # of the features in a row group: 6,553 images with 1,280 features
LARGEST_HALF = 65504.0
MAX_LISTED = 10  # unreadable images in the output of the command; the file has all
Features = NDArray[np.floating[Any]]
Meta = dict[str, Any]


class Encoder(Protocol):
    """Anything that maps images of one size to features."""

    @property
    def size(self) -> int:
        """Height and width of the images."""

    @property
    def resize(self) -> ResizeMode:
        """How images that are not square are brought to this size."""

    @property
    def batch(self) -> int:
        """The largest number of images that `encode` takes."""

    @property
    def num_features(self) -> int:
        """Number of features of an image."""

    def encode(self, images: Images) -> NDArray[np.float32]:
        """Return the features (n, num_features)."""


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Features of n images in order."""

    paths: list[str]
    features: Features  # (n, num_features); zeros where there is an error
    errors: list[str | None]  # why there are no features


@dataclass(frozen=True)
class Layout:
    """What a file says about its features."""

    num_features: int
    half: bool  # float16 instead of float32
    meta: Meta

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """The type of a feature."""
        return np.float16 if self.half else np.float32

    @property
    def meta_json(self) -> str:
        """The metadata as JSON."""
        return json.dumps(self.meta, ensure_ascii=False, allow_nan=False)


@dataclass
class Exported:
    """Numbers of rows, and the first unreadable images with their reasons."""

    counts: RowCounts = field(default_factory=RowCounts)
    unreadable: list[tuple[str, str]] = field(default_factory=list)

    def add(self, rows: FeatureRows) -> None:
        """Count the rows of a batch."""
        failed = [(path, error) for path, error in zip(rows.paths, rows.errors, strict=True) if error is not None]
        self.counts.rows += len(rows.paths)
        self.counts.unreadable += len(failed)
        self.unreadable += failed[: MAX_LISTED - len(self.unreadable)]


def check_feature_file(out: Path) -> None:
    """Raise `UserError` if a file of this name cannot be written here."""
    if out.suffix.lower() not in SUFFIXES:
        raise UserError(f"'{out}' has no known suffix; give -o a file name that ends with {' or '.join(SUFFIXES)}")
    if out.is_dir():
        raise UserError(f"'{out}' is a folder; give -o a file name")
    if out.suffix.lower() == ".parquet":
        require_pyarrow()


def export_features(
    out: Path, entries: Iterable[Entry], encoder: Encoder, layout: Layout, report: ReportProgress
) -> Exported:
    """Write the features of every image to `out`, atomically."""
    exported = Exported()
    write = write_parquet_features if out.suffix.lower() == ".parquet" else write_npz_features
    with atomic_path(out) as temporary:
        write(temporary, _counted(encode_batches(entries, encoder, layout), exported, report), layout)
        if not exported.counts.rows:
            raise UserError(NO_LISTED_IMAGE)
    return exported


def _counted(batches: Iterable[FeatureRows], exported: Exported, report: ReportProgress) -> Iterator[FeatureRows]:
    report(exported.counts)
    for rows in batches:
        yield rows
        exported.add(rows)
        report(exported.counts)


def encode_batches(entries: Iterable[Entry], encoder: Encoder, layout: Layout) -> Iterator[FeatureRows]:
    """Yield the features of every image, in order; decode the next batch while the encoder works on one."""
    for part, decoded in decode_batches(entries, encoder.batch, encoder.size, encoder.resize):
        yield _encode_batch([entry.path for entry in part], decoded, encoder, layout)


def _encode_batch(paths: list[str], decoded: Sequence[Decoded], encoder: Encoder, layout: Layout) -> FeatureRows:
    errors = [image if isinstance(image, str) else None for image in decoded]
    features = np.zeros((len(paths), encoder.num_features), np.float32)
    if images := [image for image in decoded if not isinstance(image, str)]:
        features[[error is None for error in errors]] = encoder.encode(np.stack(images))
    for row in np.flatnonzero(~np.isfinite(features).all(1)):
        features[row], errors[row] = 0, NOT_FINITE
    if layout.half:
        features = features.clip(-LARGEST_HALF, LARGEST_HALF)
    return FeatureRows(paths, features.astype(layout.dtype), errors)


def write_parquet_features(path: Path, batches: Iterable[FeatureRows], layout: Layout) -> None:
    """Write a Parquet file; only one row group is in memory. Unreadable images have null features."""
    import pyarrow as pa
    from pyarrow import parquet

    feature_type = pa.list_(pa.float16() if layout.half else pa.float32(), layout.num_features)
    columns = [("path", pa.string()), ("features", feature_type), ("error", pa.string())]
    schema = pa.schema(columns, metadata={META: layout.meta_json})
    num_rows = max(1, GROUP_BYTES // (layout.num_features * np.dtype(layout.dtype).itemsize))
    with parquet.ParquetWriter(path, schema, use_dictionary=False) as writer:  # features hardly ever repeat
        for group in row_groups(batches, num_rows):
            is_null = pa.array([error is not None for error in group.errors])
            values = pa.array(group.features.reshape(-1))
            features = pa.FixedSizeListArray.from_arrays(values, layout.num_features, mask=is_null)
            arrays = [pa.array(group.paths, pa.string()), features, pa.array(group.errors, pa.string())]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def row_groups(batches: Iterable[FeatureRows], num_rows: int) -> Iterator[FeatureRows]:
    """Join batches until they have `num_rows` rows or more; the last group may have fewer."""
    waiting, num_waiting = list[FeatureRows](), 0
    for rows in batches:
        waiting.append(rows)
        num_waiting += len(rows.paths)
        if num_waiting >= num_rows:
            yield join_rows(waiting)
            waiting, num_waiting = [], 0
    if waiting:
        yield join_rows(waiting)


def join_rows(parts: Sequence[FeatureRows]) -> FeatureRows:
    """Concatenate batches."""
    paths = [path for part in parts for path in part.paths]
    errors = [error for part in parts for error in part.errors]
    return FeatureRows(paths, np.concatenate([part.features for part in parts]), errors)


def write_npz_features(path: Path, batches: Iterable[FeatureRows], layout: Layout) -> None:
    """Write an .npz file, all of which is in memory; unreadable images are in separate arrays."""
    features = [np.zeros((0, layout.num_features), layout.dtype)]
    paths, unreadable, reasons = list[str](), list[str](), list[str]()
    for rows in batches:
        features.append(rows.features[[error is None for error in rows.errors]])
        for name, error in zip(rows.paths, rows.errors, strict=True):
            if error is None:
                paths.append(name)
            else:
                unreadable.append(name)
                reasons.append(error)
    with path.open("wb") as file:  # np.savez would add a suffix to a path
        np.savez(
            file,
            paths=np.array(paths, np.str_),  # not objects, which load only with pickle
            features=np.concatenate(features),
            unreadable=np.array(unreadable, np.str_),
            reasons=np.array(reasons, np.str_),
            meta=np.array(layout.meta_json),
        )
