"""Stored maps: computed once, checked whenever they are read, and safe from full disks and killed processes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from runs import environment
from ssdg.data.map_cache import MapFile, Maps, checksum
from ssdg.data.sets import Rows
from ssdg.errors import Note, Stopped, UserError

COUNT, SHAPE = 10, (2, 3, 4)
ROW_BYTES = 2 * 3 * 4 * 2  # of float16
EVERY = np.arange(COUNT)


def maps_of(rows: Rows) -> Maps:
    """Maps that differ from row to row and from place to place."""
    return (rows[:, None, None, None] + np.arange(24).reshape(SHAPE) / 32 + 1).astype(np.float16)


class Trunk:
    """Computes maps and records the rows that it was asked for."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, rows: Rows) -> Maps:
        self.rows += rows.tolist()
        return maps_of(rows)


@pytest.fixture
def trunk() -> Trunk:
    return Trunk()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "maps" / "a.f16"


def open_file(path: Path, trunk: Trunk) -> MapFile:
    return MapFile(path, COUNT, SHAPE, trunk)


def fill(file: MapFile, rows: Rows = EVERY, batch: int = 4) -> list[int]:
    """Fill; return the sizes of the chunks."""
    chunks: list[int] = []
    file.fill(rows, batch, chunks.append)
    return chunks


def notes_of(file: MapFile, rows: Rows = EVERY) -> list[str]:
    """Read rows, compare them, and return the notes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert np.array_equal(file[rows], maps_of(rows))
    assert all(issubclass(warning.category, Note) for warning in caught)
    return [str(warning.message) for warning in caught]


def test_every_row_is_computed_once(path: Path, trunk: Trunk) -> None:
    file = open_file(path, trunk)
    assert file.missing(EVERY).tolist() == EVERY.tolist()
    assert fill(file) == [4, 4, 2]
    assert fill(file) == []
    assert file.missing(EVERY).tolist() == []
    assert notes_of(file, np.array([7, 0, 7])) == []
    again = open_file(path, trunk)  # another process of a later run
    assert fill(again) == []
    assert notes_of(again) == []
    assert trunk.rows == EVERY.tolist()


def test_only_missing_rows_are_filled(path: Path, trunk: Trunk) -> None:
    file = open_file(path, trunk)
    fill(file, np.array([2, 5]))
    assert file.missing(np.array([5, 1, 1, 2])).tolist() == [1]
    assert fill(file, np.array([5, 1, 1, 2])) == [1]
    assert trunk.rows == [2, 5, 1]


def test_rows_that_were_not_filled_are_computed_when_read(path: Path, trunk: Trunk) -> None:
    file = open_file(path, trunk)
    assert notes_of(file, np.array([3, 8, 3])) == []  # nothing is damaged
    assert notes_of(file, np.array([8])) == []
    assert trunk.rows == [3, 8]
    assert fill(file) == [4, 4]
    assert sorted(trunk.rows) == EVERY.tolist()


def test_no_rows_are_maps_of_the_right_shape(path: Path, trunk: Trunk) -> None:
    file = open_file(path, trunk)
    none = np.zeros(0, np.intp)
    assert file[none].shape == (0, *SHAPE)
    assert file[none].dtype == np.float16
    assert fill(file, none) == []
    assert not trunk.rows


def test_what_a_reader_changes_stays_its_own(path: Path, trunk: Trunk) -> None:
    file = open_file(path, trunk)
    fill(file)
    file[EVERY][:] = 0
    assert notes_of(file) == []


def test_one_process_sees_what_another_has_stored(path: Path, trunk: Trunk) -> None:
    mine, other = open_file(path, trunk), open_file(path, Trunk())
    assert len(mine.missing(EVERY)) == COUNT
    fill(other)
    assert len(mine.missing(EVERY)) == 0
    assert notes_of(mine) == []
    assert not trunk.rows


@pytest.mark.parametrize("is_open", [True, False])
def test_a_flipped_byte_is_repaired(is_open: bool, path: Path, trunk: Trunk) -> None:
    file = open_file(path, trunk)
    fill(file)
    content = path.read_bytes()
    with path.open("r+b") as handle:
        handle.seek(4 * ROW_BYTES + 5)
        handle.write(bytes([content[4 * ROW_BYTES + 5] ^ 1]))
    trunk.rows.clear()
    file = file if is_open else open_file(path, trunk)
    (note,) = notes_of(file, np.array([3, 4, 4, 5]))
    assert note == f"1 stored maps in {path} are damaged; they are computed again"
    assert notes_of(file) == []
    assert trunk.rows == [4]
    assert path.read_bytes() == content


@pytest.mark.parametrize("is_open", [True, False])
def test_a_truncated_file_is_repaired(is_open: bool, path: Path, trunk: Trunk) -> None:
    file = open_file(path, trunk)
    fill(file)
    content = path.read_bytes()
    os.truncate(path, 7 * ROW_BYTES - 1)
    trunk.rows.clear()
    file = file if is_open else open_file(path, trunk)
    (note,) = notes_of(file)
    assert note.startswith("4 stored maps")
    assert trunk.rows == [6, 7, 8, 9]
    assert notes_of(open_file(path, trunk)) == []
    assert path.read_bytes() == content


def test_maps_without_checksums_are_missing(path: Path, trunk: Trunk) -> None:
    fill(open_file(path, trunk))
    sums = path.with_suffix(".crc").read_bytes()
    path.with_suffix(".crc").unlink()
    trunk.rows.clear()
    file = open_file(path, trunk)
    assert len(file.missing(EVERY)) == COUNT
    assert notes_of(file) == []  # nothing is damaged, nothing is known to be right
    assert trunk.rows == EVERY.tolist()
    assert path.with_suffix(".crc").read_bytes() == sums


def test_a_wrong_checksum_is_repaired(path: Path, trunk: Trunk) -> None:
    fill(open_file(path, trunk))
    sums = path.with_suffix(".crc").read_bytes()
    path.with_suffix(".crc").write_bytes(sums[:8] + b"\x01\x02\x03\x04" + sums[12:])
    trunk.rows.clear()
    assert len(notes_of(open_file(path, trunk))) == 1
    assert trunk.rows == [2]
    assert path.with_suffix(".crc").read_bytes() == sums


def test_a_checksum_is_never_the_mark_of_a_missing_row() -> None:
    assert checksum(memoryview(b"")) == 1  # whose CRC-32 is 0
    assert checksum(memoryview(b"a")) == 0xE8B7BE43


def test_a_disk_that_gets_full_is_one_sentence_and_loses_nothing(
    path: Path, trunk: Trunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write, calls = open_file(path, trunk), os.pwrite, iter(range(100))

    def write_until_full(handle: int, content: memoryview, offset: int) -> int:
        if next(calls) >= 11:  # after five rows and the maps of the sixth, each with its checksum
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write_until_full)
        with pytest.raises(UserError) as refusal:
            fill(file)
    assert str(refusal.value) == (
        f"cannot store maps of the frozen trunk in '{path.parent}': No space left on device; free some space or "
        "choose another --cache (maps that are stored stay valid)"
    )
    trunk.rows.clear()
    for opened in (file, open_file(path, trunk)):
        assert opened.missing(EVERY).tolist() == [5, 6, 7, 8, 9]
    fill(file)
    assert notes_of(file) == []
    assert trunk.rows == [5, 6, 7, 8, 9]


def test_too_little_space_is_one_sentence_before_anything_is_computed(
    path: Path, trunk: Trunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = open_file(path, trunk)
    fill(file, np.arange(3))
    trunk.rows.clear()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=7 * ROW_BYTES - 1))
        with pytest.raises(UserError, match=r"the maps of 7 images need 0\.00 GB in '.*maps' and 0\.00 GB are free"):
            fill(file)
        assert not trunk.rows
        patch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=7 * ROW_BYTES))
        fill(file)
    assert notes_of(file) == []


def test_a_folder_that_is_not_writable_is_one_sentence(
    path: Path, trunk: Trunk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UserError, match="Permission denied; make it writable or choose another --cache"):
        open_file(path, trunk)


def test_a_stop_keeps_what_is_stored(path: Path, trunk: Trunk) -> None:
    def stop(num_stored: int) -> None:
        raise Stopped

    file = open_file(path, trunk)
    with pytest.raises(Stopped):
        file.fill(EVERY, 4, stop)
    assert file.missing(EVERY).tolist() == [4, 5, 6, 7, 8, 9]
    fill(file)  # the lock is free
    assert trunk.rows == EVERY.tolist()


def test_two_that_fill_the_same_file_compute_every_row_once(path: Path) -> None:
    """Each has its own handles, as two processes have."""
    computed: list[int] = []
    start = threading.Barrier(2)

    def compute(rows: Rows) -> Maps:
        computed.extend(rows.tolist())
        time.sleep(0.005)
        return maps_of(rows)

    def work() -> None:
        file = MapFile(path, COUNT, SHAPE, compute)
        start.wait()
        file.fill(EVERY, 1, lambda num_stored: None)
        assert np.array_equal(file[EVERY], maps_of(EVERY))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(computed) == EVERY.tolist()


DIE_WHILE_FILLING = """
import os, signal, sys
from pathlib import Path
import numpy as np
from test_map_cache import COUNT, EVERY, SHAPE, maps_of
from ssdg.data.map_cache import MapFile

path, at, log = Path(sys.argv[1]), int(sys.argv[2]), os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
write, calls = os.pwrite, iter(range(100))

def write_and_die(handle, content, offset):
    if next(calls) == at:
        write(handle, memoryview(content)[: len(content) // 2], offset)
        os.kill(os.getpid(), signal.SIGKILL)
    return write(handle, content, offset)

def compute(rows):
    os.write(log, "".join(f"{row}\\n" for row in rows).encode())
    return maps_of(rows)

os.pwrite = write_and_die
MapFile(path, COUNT, SHAPE, compute).fill(EVERY, 4, lambda num_stored: None)
"""


@pytest.mark.parametrize("at", [10, 11])  # in the middle of the maps of row 5, and of its checksum
def test_a_killed_process_loses_at_most_the_rows_in_flight(at: int, path: Path, trunk: Trunk, tmp_path: Path) -> None:
    words = [sys.executable, "-c", DIE_WHILE_FILLING, path, at, tmp_path / "log"]
    folders = [str(Path(__file__).parent), *sys.path]
    died = subprocess.run(
        [str(word) for word in words],
        env=environment({"PYTHONPATH": os.pathsep.join(folders)}),
        capture_output=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    before = [int(row) for row in (tmp_path / "log").read_text().split()]
    assert before == [0, 1, 2, 3, 4, 5, 6, 7]
    file = open_file(path, trunk)
    fill(file)
    whole = open_file(path.with_name("whole.f16"), Trunk())
    fill(whole)
    notes = notes_of(file)
    assert len(notes) == (at == 11)  # half a checksum is a wrong one
    for suffix in (".f16", ".crc"):
        assert path.with_suffix(suffix).read_bytes() == path.with_name(f"whole{suffix}").read_bytes()
    twice = {row for row, count in Counter(before + trunk.rows).items() if count > 1}
    assert twice == {5, 6, 7}  # row 4, of the same chunk, was complete


def test_the_lock_of_a_killed_process_is_removed(path: Path, trunk: Trunk) -> None:
    open_file(path, trunk).fill(EVERY, 4, lambda count: None)
    path.with_suffix(".lock").touch()
    open_file(path, trunk).fill(EVERY, 4, lambda count: None)
    assert {file.suffix for file in path.parent.iterdir()} == {".f16", ".crc"}
