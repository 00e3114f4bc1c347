"""Reading of regular files only, atomic file writes, and locks between processes."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import IO, Any, Literal, cast

from .errors import NotRegularFileError, UserError

_FLAGS = {"rb": os.O_RDONLY, "rb+": os.O_RDWR, "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT}


def open_file(path: str | Path, mode: str = "rb", *, buffering: int = -1) -> IO[bytes]:
    """Open a regular file; raise `NotRegularFileError` for a pipe, a device or a socket without waiting for it.

    Every file that a user can name is opened here, because `open` waits forever for the writer of a pipe.
    """
    # O_NONBLOCK opens a pipe at once and changes nothing for regular files
    handle = os.open(path, _FLAGS[mode] | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
    try:
        kind = os.fstat(handle).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise NotRegularFileError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(handle, mode, buffering)
    except BaseException:
        os.close(handle)
        raise


def require_regular(path: Path) -> Path:
    """Return the path of a regular file, for a library that opens it by name; raise an `OSError` for any other."""
    open_file(path).close()
    return path


def read_bytes(path: str | Path, max_bytes: int | None = None) -> bytes:
    """Return the content of a regular file; raise an `OSError` if it has more than `max_bytes`."""
    with open_file(path, buffering=0) as file:
        if max_bytes is not None:
            require_size(os.fstat(file.fileno()).st_size, max_bytes)
        return file.read()


def require_size(num_bytes: int, max_bytes: int) -> None:
    """Raise an `OSError` if there are more than `max_bytes`."""
    if num_bytes > max_bytes:
        raise OSError(f"{num_bytes:,} bytes, more than the limit of {max_bytes:,}")


def sha256_of(path: Path) -> str:
    """Return the sha256 of a regular file in hexadecimal digits."""
    with open_file(path) as file:
        return hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()


def read_text(path: str | Path, *, encoding: str = "utf-8", errors: str = "strict") -> str:
    """Return the text of a regular file, with line ends as in Python."""
    with TextIOWrapper(open_file(path), encoding=encoding, errors=errors) as file:
        return file.read()


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
    with open_file(path, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise UserError(busy or "") from None
        yield


def is_locked(path: Path) -> bool:
    """Return whether a process currently holds the lock on `path`."""
    try:
        with open_file(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def real_path(path: str | Path) -> Path:
    """Return the absolute path without links; unlike `Path.resolve`, accept a link to itself."""
    return Path(os.path.realpath(path))


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
