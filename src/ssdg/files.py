"""Atomic file writes and locks between processes."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from .errors import UserError


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` on success and delete it on failure.

    The bytes are on disk before the rename, so a killed process or a power cut leaves
    either the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON to `path` atomically; reject NaN, which is not JSON."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def parse_json(text: str | bytes) -> Any:
    """Parse JSON as `write_json` writes it; NaN, invalid UTF-8 and too deep nesting are a `ValueError`, too."""
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def remove_leftovers(path: Path) -> None:
    """Delete temporary files that a killed `atomic_path(path)` left behind; the name `*` matches any file.

    Call it while holding the lock of `path`.
    """
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        leftover.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Hold an exclusive lock on `path` (a separate small file); the system releases it if the process dies.

    If another process holds the lock, raise `UserError(busy)`, or wait if `busy` is None.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise UserError(busy or "") from None
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process currently holds the lock on `path`."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def user_folder(kind: Literal["cache", "config"]) -> Path:
    """Return the `ssdg` folder in the user's cache or config folder; raise `UserError` if no home folder is known."""
    base = os.environ.get(f"XDG_{kind.upper()}_HOME")
    try:
        return Path(base or Path.home() / f".{kind}") / "ssdg"
    except RuntimeError:  # HOME is not set, and the system does not know the user
        raise UserError(f"no {kind} folder: HOME is not set; set HOME, or SSDG_CACHE, or give --cache") from None


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return Path(path).name
