"""Arguments of `ssdg predict` and the files it leaves."""

from __future__ import annotations

from pathlib import Path

from pyarrow import parquet

SUFFIXES = (".csv", ".jsonl", ".parquet")


def predict_args(
    model: Path, *paths: object, out: Path, reject: float = 0.3, batch: int = 8, more: tuple[object, ...] = ()
) -> list[str]:
    return [str(arg) for arg in ("predict", model, *paths, "-o", out, "--reject", reject, "--batch", batch, *more)]


def content(path: Path) -> object:
    return parquet.read_table(path).to_pylist() if path.suffix == ".parquet" else path.read_bytes()


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
