"""Atomic writes and locks between processes, and the removal of what killed processes left.

A write happens inside a hidden folder next to its target, and the writing process holds a lock in that folder. The
system releases the lock when the process dies, so a free lock marks the folder as left behind. This holds across
machines and containers that share a disk, where a process id would not.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from .errors import UserError


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


def _create_temporary_folder(path: Path) -> tuple[Path, IO[str]]:
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"))
        with suppress(FileNotFoundError):  # another process removed it before it was locked: create another
            lock = (folder / _LOCK).open("x")
            try:
                is_held = _try_lock(lock)
            except OSError:  # a file system without locks, where leftovers are never removed
                is_held = True
            if is_held and _is_at(lock, folder / _LOCK):
                return folder, lock
            lock.close()


def _delete_temporary_folder(folder: Path, lock: IO[str]) -> None:
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
        with (folder / _LOCK).open("r+") as lock:
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


def _open_locked(path: Path, busy: str | None) -> IO[str]:
    num_tries = 0
    while True:
        file = path.open("a")
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


def _delete_lock(file: IO[str], path: Path) -> None:
    """Release a lock and delete its file, unless the path belongs to another lock meanwhile."""
    with suppress(OSError):
        is_own = _is_at(file, path)
        if _fcntl is None:  # Windows deletes no open file, so another process that opened it keeps it
            file.close()
        if is_own:
            path.unlink()
    file.close()


def is_locked(path: Path) -> bool:
    """Return whether a process currently holds the lock on `path`."""
    try:
        with path.open() as file:
            return not _try_lock(file, shared=True)
    except FileNotFoundError:
        return False


def _try_lock(file: IO[str], *, shared: bool = False) -> bool:
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


def _is_at(file: IO[str], path: Path) -> bool:
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


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return Path(path).name
