"""Reading of regular files only, atomic writes and locks between processes, removal of what killed processes left.

A write happens inside a hidden folder next to its target, and the writing process holds a lock in that folder. The
system releases the lock when the process dies, so a free lock marks the folder as left behind. This holds across
machines and containers that share a disk, where a process id would not.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BytesIO, TextIOWrapper
from pathlib import Path
from typing import IO, Any, Literal, cast

from .errors import NotRegularFileError, TooLargeError, UserError

MAX_FILE_BYTES = 400_000_000  # of a file that is read at once: 100 million uncompressed pixels with transparency
MAX_JSON_BYTES = 64_000_000  # a hundred thousand classes take a few million

# O_NONBLOCK opens a pipe at once and changes nothing for regular files. Windows lacks it, and would change line ends.
_OPEN_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
_FLAGS = {"rb": os.O_RDONLY, "rb+": os.O_RDWR, "ab": os.O_WRONLY | os.O_APPEND | os.O_CREAT}


def open_file(path: str | Path, mode: str = "rb", *, buffering: int = -1) -> IO[bytes]:
    """Open a regular file; raise `NotRegularFileError` for a pipe, a device or a socket without waiting for it.

    Every file that a user can name is opened here, because `open` waits forever for the writer of a pipe.
    """
    handle = os.open(path, _FLAGS[mode] | _OPEN_FLAGS, 0o644)
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


def read_bytes(path: str | Path, max_bytes: int | None = MAX_FILE_BYTES) -> bytes:
    """Return the content of a regular file; raise `TooLargeError` if it has more than `max_bytes`.

    A sparse file of terabytes takes no space on disk, so every file that somebody else may have written has a limit.
    """
    with open_file(path, buffering=0) as file:
        if max_bytes is not None:
            try:
                require_size(os.fstat(file.fileno()).st_size, max_bytes)
            except OSError as error:
                raise TooLargeError(errno.EFBIG, str(error), str(path)) from None
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
    """Return the text of a regular file, with line ends as in Python; raise `TooLargeError` as `read_bytes` does."""
    with TextIOWrapper(BytesIO(read_bytes(path)), encoding=encoding, errors=errors) as file:
        return file.read()


def _import_if_present(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


_fcntl, _msvcrt = _import_if_present("fcntl"), _import_if_present("msvcrt")  # Linux and macOS; Windows
_LOCK, _REPLACED = ".ssdg-lock", ".ssdg-replaced"  # inside a temporary folder
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.tmp")
_POLL_SECONDS = 0.05
_BUSY_TRIES = 3  # `is_locked` of another process may hold a lock for a moment


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path; rename its file to `path` on success and delete it on failure.

    The bytes are on disk before the rename, so a killed process or a power cut leaves
    either the old file or the new one.
    """
    with _temporary_folder(path) as folder:
        temporary = folder / path.name
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder; rename it to `path` on success and delete it on failure.

    It replaces a folder at `path`.
    """
    with _temporary_folder(path) as folder:
        temporary, replaced = folder / path.name, folder / _REPLACED
        temporary.mkdir()
        yield temporary
        if not (folder / _LOCK).exists():  # removed meanwhile: it has only the files that were written since
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        if path.exists():
            path.replace(replaced)
        try:
            temporary.replace(path)
        except BaseException:
            if replaced.exists():
                replaced.replace(path)
            raise


@contextmanager
def _temporary_folder(path: Path) -> Iterator[Path]:
    """Yield a new locked folder next to `path` and delete it at the end.

    It also catches the temporary files of libraries, which some write next to the file they are asked for.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers_once(path.parent)
    folder, lock = _create_temporary_folder(path)
    try:
        yield folder
    finally:
        _delete_temporary_folder(folder, lock)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder among the temporary files of the system and delete it at the end."""
    with _temporary_folder(Path(tempfile.gettempdir()) / "ssdg") as folder:
        yield folder


def _create_temporary_folder(path: Path) -> tuple[Path, IO[bytes]]:
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
        with suppress(FileNotFoundError):  # another process removed it before it was locked: create another
            lock = (folder / _LOCK).open("xb")
            try:
                is_held = _try_lock(lock)
            except OSError:  # a file system without locks, where leftovers are never removed
                is_held = True
            if is_held and _is_at(lock, folder / _LOCK):
                return folder, lock
            lock.close()


def _delete_temporary_folder(folder: Path, lock: IO[bytes]) -> None:
    """Delete the lock last: without it, only an empty folder is recognized as a leftover."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name != _LOCK:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        _delete_lock(lock, folder / _LOCK)
        folder.rmdir()
    lock.close()


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


_swept: set[Path] = set()  # folders that this process has freed of leftovers


def _remove_leftovers_once(folder: Path) -> None:
    """Remove leftovers before the first write of this process to a folder, which may have very many files."""
    if (key := folder.absolute()) not in _swept:
        _swept.add(key)
        remove_leftovers(folder / "*")


def remove_leftovers(path: Path) -> None:
    """Delete what killed processes left of writes to `path`; the name `*` means any file or folder.

    What a living process is writing stays.
    """
    prefix = "." if path.name == "*" else f".{path.name}."
    with suppress(OSError):  # no such folder, or it may not be listed
        for name in os.listdir(path.parent):  # noqa: PTH208 - names only: no object per file
            if name.startswith(prefix) and _TEMPORARY.fullmatch(name):
                _remove_if_left(path.parent / name)


def _remove_if_left(folder: Path) -> None:
    with suppress(OSError):  # not a folder of ours, deleted meanwhile, or of another user
        if not (folder / _LOCK).exists():
            folder.rmdir()  # only if it is empty
            return
        with open_file(folder / _LOCK, "rb+") as lock:
            if _try_lock(lock):
                _complete_replacement(folder)
                _delete_temporary_folder(folder, lock)


def _complete_replacement(folder: Path) -> None:
    """Finish an `atomic_folder` that was killed between moving the old folder away and renaming the new one."""
    if (folder / _REPLACED).exists():
        for entry in folder.iterdir():
            if entry.name not in (_LOCK, _REPLACED) and not (folder.parent / entry.name).exists():
                entry.rename(folder.parent / entry.name)


@contextmanager
def locked(path: Path, *, busy: str | None = None) -> Iterator[None]:
    """Hold an exclusive lock on `path`, a file that exists only for this purpose and is deleted on release.

    The system releases the lock if the process dies; the next holder deletes the file. If another process holds the
    lock, raise `UserError(busy)`, or wait if `busy` is None.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = _open_locked(path, busy)
    try:
        yield
    finally:
        _delete_lock(file, path)


def _open_locked(path: Path, busy: str | None) -> IO[bytes]:
    num_tries = 0
    while True:
        file = open_file(path, "ab")
        try:
            if _try_lock(file) and _is_at(file, path):  # else its last holder deleted it: create another
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        num_tries += 1
        if busy is not None and num_tries >= _BUSY_TRIES:
            raise UserError(busy)
        time.sleep(_POLL_SECONDS)


def _delete_lock(file: IO[bytes], path: Path) -> None:
    """Release a lock and delete its file, unless the path belongs to another lock meanwhile."""
    with suppress(OSError):
        is_own = _is_at(file, path)
        if _fcntl is None:  # Windows deletes no open file, so another process that opened it keeps it
            file.close()
        if is_own:
            path.unlink()
    file.close()


def remove_free_lock(path: Path) -> None:
    """Delete the lock file of a process that died; leave one that is held.

    For results that are used without a lock once they are complete, so that no later holder deletes it.
    """
    if path.exists():
        with suppress(UserError, OSError), locked(path, busy="held"):
            pass


def remove_remains(lock: Path, *results: Path) -> None:
    """Delete what a process left that was killed when its results were complete, but not yet its clean-up."""
    for path in results:
        remove_leftovers(path)
    remove_free_lock(lock)


def is_locked(path: Path) -> bool:
    """Return whether a process currently holds the lock on `path`."""
    try:
        with open_file(path) as file:
            return not _try_lock(file, shared=True)
    except FileNotFoundError:
        return False


def _try_lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False if another process or thread holds a lock on it.

    Python offers no locks on some systems, such as in a browser; there every lock is free.
    """
    try:
        if _fcntl is not None:
            _fcntl.flock(file, (_fcntl.LOCK_SH if shared else _fcntl.LOCK_EX) | _fcntl.LOCK_NB)
        elif _msvcrt is not None:
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            _msvcrt.locking(file.fileno(), _msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Return whether an open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


_seek_lock = threading.Lock()  # where a read or write at an offset is two calls


def pread(handle: int, size: int, offset: int) -> bytes:
    """Read up to `size` bytes at an offset of an open file, also on Windows."""
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    with _seek_lock:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)


def pwrite(handle: int, content: bytes | memoryview, offset: int) -> int:
    """Write at an offset of an open file and return the number of bytes written, also on Windows."""
    if hasattr(os, "pwrite"):
        return os.pwrite(handle, content, offset)
    with _seek_lock:
        os.lseek(handle, offset, os.SEEK_SET)
        return os.write(handle, content)


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
