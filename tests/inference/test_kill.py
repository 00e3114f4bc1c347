"""`ssdg predict` killed and stopped for real, and started again: the same file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leftovers import leave
from predicted import SUFFIXES, content, left, predict_args, size_of
from runs import environment
from ssdg.cli import call
from waiting import PATIENCE, wait_until


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_sigkill_in_the_middle(suffix: str, model: Path, photos: Path, tmp_path: Path) -> None:
    """The process waits for more of its list when it is killed: certainly in the middle."""
    listed = "".join(f"{path}\n" for path in sorted(photos.rglob("*.png"))).encode()
    whole, out = tmp_path / f"whole{suffix}", tmp_path / "new" / f"out{suffix}"
    environ = environment()

    def start(target: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ssdg", *predict_args(model, "-", out=target)]
        return subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    assert start(whole).communicate(listed)[1] == b""
    out.parent.mkdir()
    out.write_text("an older file")
    part = Path(f"{out}.part")
    for share in (3, 2):  # killed twice
        killed = start(out)
        assert killed.stdin is not None
        killed.stdin.write(listed[: len(listed) // share])
        killed.stdin.flush()
        before = size_of(part)
        wait_until(lambda before=before: size_of(part) > max(before, 100), killed)
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
    assert out.read_text() == "an older file"
    assert left(out.parent) == {out.name, f"{out.name}.part", f"{out.name}.part.json", f".{out.name}.lock"}
    leave(out.with_name(f"{out.name}.part.json"))  # as a kill in the middle of describing the job leaves it
    with part.open("ab") as file:
        file.write(b'"half a row, x')  # as a kill in the middle of writing leaves it
    last = start(out)
    printed, errors = last.communicate(listed)
    assert errors == b""
    assert b"190 images classified into" in printed
    assert b"10 could not be read" in printed
    assert content(out) == content(whole)
    assert left(out.parent) == {out.name}


def test_sigkill_at_any_moment(model: Path, photos: Path, tmp_path: Path) -> None:
    out, part = tmp_path / "out.csv", tmp_path / "out.csv.part"
    assert call(predict_args(model, photos, out=tmp_path / "whole.csv")) == 0
    rng = random.Random(1)
    command = [sys.executable, "-m", "ssdg", *predict_args(model, photos, out=out)]
    for _ in range(4):
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL)
        limit, end = size_of(part) + rng.randrange(4000), time.monotonic() + PATIENCE
        while process.poll() is None and size_of(part) <= limit and time.monotonic() < end:
            time.sleep(0.0002)
        process.kill()
        process.wait()
    assert call(predict_args(model, photos, out=out)) == 0
    assert out.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_one_process_at_a_time(model: Path, photos: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "out.csv"
    command = [sys.executable, "-m", "ssdg", *predict_args(model, "-", out=out)]
    first = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    wait_until((tmp_path / "out.csv.part.json").exists, first)
    assert "another process is writing" in complaint(*predict_args(model, photos, out=out))
    first.communicate(str(photos).encode())
    assert first.returncode == 0
    assert left(tmp_path) == {"out.csv"}


def test_ctrl_c_says_how_to_resume(model: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    command = [sys.executable, "-m", "ssdg", *predict_args(model, "-", out=out)]
    process = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("".join(f"{path}\n" for path in sorted(photos.rglob("*.png"))[:100]).encode())
    process.stdin.flush()
    wait_until(lambda: size_of(tmp_path / "out.csv.part") > 100, process)
    process.send_signal(signal.SIGINT)
    errors = process.communicate()[1].decode()
    assert process.returncode == 130
    assert errors == f"interrupted; finished rows are in '{out}.part', run the same command to resume\n"


@pytest.mark.parametrize("listed", [b"", b"\n\n", b"a\0b\0"])
def test_a_list_of_nothing_leaves_nothing(listed: bytes, model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ssdg", *predict_args(model, "-", out=tmp_path / "out.csv")]
    done = subprocess.run(command, env=environment(), input=listed, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert (b"names no image" in done.stderr) != (b"add --null" in done.stderr)
    assert not left(tmp_path)
