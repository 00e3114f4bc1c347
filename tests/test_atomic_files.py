"""Atomic writes and locks of several real processes, some of which are killed."""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leftovers import leave
from ssdg import files
from ssdg.errors import UserError
from ssdg.files import atomic_folder, atomic_path, is_locked, locked, remove_leftovers, scratch_folder, write_text

WRITE_FILE = """
with files.atomic_path(path) as temporary:
    temporary.write_text("half")
    (temporary.parent / ".tmpXYZ").write_text("of a library")
    wait()
"""
WRITE_FOLDER = """
with files.atomic_folder(path) as temporary:
    (temporary / "weights").write_text("half")
    wait()
"""
LOCK = "with files.locked(path): wait()"
SETUP = """
import sys
from pathlib import Path
from ssdg import files
path = Path(sys.argv[1])
def wait():
    print("ready", flush=True)
    sys.stdin.read()
"""


@contextmanager
def running(code: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has come to `wait()` and stays there until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", SETUP + code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("code", [WRITE_FILE, WRITE_FOLDER])
def test_the_next_write_removes_what_a_killed_one_left(code: str, tmp_path: Path) -> None:
    files._swept.clear()
    with running(code, tmp_path / "out") as process:
        kill(process)
    assert [name.startswith(".out.") for name in names(tmp_path)] == [True]
    write_text(tmp_path / "other", "whole")
    assert names(tmp_path) == ["other"]


@pytest.mark.parametrize("code", [WRITE_FILE, WRITE_FOLDER])
def test_what_a_living_process_writes_stays(code: str, tmp_path: Path) -> None:
    with running(code, tmp_path / "out") as process:
        files._swept.clear()
        write_text(tmp_path / "other", "whole")
        remove_leftovers(tmp_path / "*")
        process.communicate()
        assert process.returncode == 0
    assert names(tmp_path) == ["other", "out"]
    (content,) = (path.read_text() for path in (tmp_path / "out", tmp_path / "out" / "weights") if path.is_file())
    assert content == "half"


def test_what_this_process_writes_stays(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "out") as temporary:
        temporary.write_text("whole")
        remove_leftovers(tmp_path / "*")
    assert (tmp_path / "out").read_text() == "whole"
    assert names(tmp_path) == ["out"]


def test_leftovers_of_one_file(tmp_path: Path) -> None:
    first, second = leave(tmp_path / "a.json"), leave(tmp_path / "b[1].json")
    remove_leftovers(tmp_path / "b[1].json")
    assert first.exists()
    assert not second.exists()


def test_folders_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / ".x.abcd_123.tmp").mkdir()
    (tmp_path / ".x.abcd_123.tmp" / "mine").touch()
    (tmp_path / ".y.abcd_123.tmp").touch()
    (tmp_path / ".tmp").mkdir()
    (tmp_path / ".z.abcd_123.tmp").mkdir()  # empty: killed before it was locked
    remove_leftovers(tmp_path / "*")
    assert names(tmp_path) == [".tmp", ".x.abcd_123.tmp", ".y.abcd_123.tmp"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "out", "old")

    def write_half() -> None:
        with atomic_path(tmp_path / "out") as temporary:
            temporary.write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert (tmp_path / "out").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_a_folder_replaces_another(tmp_path: Path) -> None:
    for content in ("first", "second"):
        with atomic_folder(tmp_path / "m") as temporary:
            (temporary / content).touch()
    assert names(tmp_path) == ["m"]
    assert names(tmp_path / "m") == ["second"]


DIE_BETWEEN_RENAMES = """
import os, signal
replace = Path.replace
def die(self, target):
    if Path(target) == path:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)
Path.replace = die
with files.atomic_folder(path) as temporary:
    (temporary / "new").touch()
"""


def test_a_replacement_killed_between_its_renames_is_completed(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "old").touch()
    code = [sys.executable, "-c", SETUP + DIE_BETWEEN_RENAMES, str(tmp_path / "m")]
    assert subprocess.run(code, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "m").exists()
    remove_leftovers(tmp_path / "*")
    assert names(tmp_path) == ["m"]
    assert names(tmp_path / "m") == ["new"]


def test_a_lock_is_gone_when_it_is_released(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        assert is_locked(tmp_path / "lock")
    assert names(tmp_path) == []
    assert not is_locked(tmp_path / "lock")


def test_the_lock_of_a_killed_process_is_free_and_removed_by_the_next(tmp_path: Path) -> None:
    with running(LOCK, tmp_path / "lock") as process:
        assert is_locked(tmp_path / "lock")
        with pytest.raises(UserError, match="in use"), locked(tmp_path / "lock", busy="in use"):
            raise AssertionError
        kill(process)
    assert names(tmp_path) == ["lock"]
    assert not is_locked(tmp_path / "lock")
    with locked(tmp_path / "lock", busy="in use"):
        pass
    assert names(tmp_path) == []


COUNT = """
for _ in range(50):
    with files.locked(path):
        count = path.with_name("count")
        count.write_text(str(int(count.read_text()) + 1))
"""


def test_only_one_process_holds_a_lock_that_all_delete(tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    code = [sys.executable, "-c", SETUP + COUNT, str(tmp_path / "lock")]
    assert [process.wait() for process in [subprocess.Popen(code) for _ in range(3)]] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "150"


def test_a_lock_that_replaced_ours_is_not_deleted(tmp_path: Path) -> None:
    """As when a user deletes the folder of a running run and starts it again."""
    with locked(tmp_path / "lock"):
        (tmp_path / "lock").unlink()
        (tmp_path / "lock").write_text("of another process")
    assert names(tmp_path) == ["lock"]


def test_a_scratch_folder_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder() as folder:
        (folder / "run").mkdir()
        assert folder.parent == tmp_path
    assert names(tmp_path) == []


def test_a_disk_without_locks_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*args: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", unsupported)
    left = leave(tmp_path / "out")
    write_text(tmp_path / "out", "whole")
    remove_leftovers(tmp_path / "*")
    assert names(tmp_path) == [left.name, "out"]


class WindowsLocks:
    """Stand-in for msvcrt, whose locks belong to open files as those of flock do."""

    LK_NBLCK = 2

    @staticmethod
    def locking(handle: int, mode: int, size: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None


def test_locks_of_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_fcntl", None)
    monkeypatch.setattr(files, "_msvcrt", WindowsLocks)
    with locked(tmp_path / "lock"), atomic_path(tmp_path / "out") as temporary:
        temporary.write_text("whole")
        remove_leftovers(tmp_path / "*")
        assert is_locked(tmp_path / "lock")
        with pytest.raises(UserError, match="in use"), locked(tmp_path / "lock", busy="in use"):
            raise AssertionError
    assert names(tmp_path) == ["out"]
    leave(tmp_path / "out")
    remove_leftovers(tmp_path / "out")
    assert names(tmp_path) == ["out"]


def test_a_folder_that_was_removed_meanwhile_does_not_appear_in_part(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write_model() -> None:
        with atomic_folder(out / "model") as folder:
            write_text(folder / "first", "x")
            shutil.rmtree(out)
            write_text(folder / "second", "x")

    with pytest.raises(FileNotFoundError):
        write_model()
    assert not (out / "model").exists()
