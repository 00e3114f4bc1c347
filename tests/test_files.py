"""Reading files: a pipe or a device in place of a file ends at once, with a sentence or as a listed file."""

from __future__ import annotations

import ast
import os
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from data.pictures import class_folders
from report.folders import write_run
from ssdg.data.cache import load_images
from ssdg.data.sources.tree import read_tree
from ssdg.data.verify import verify
from ssdg.errors import NotRegularFileError, TooLargeError, UserError
from ssdg.files import is_locked, locked, open_file, read_bytes, read_text

SOURCE = Path(__file__).parent.parent / "src" / "ssdg"
SECONDS = 20


@pytest.fixture(autouse=True)
def _time_limit() -> Iterator[None]:
    """Interrupt a read that waits forever."""
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)


def special(path: Path, kind: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    path = special(tmp_path / "x", kind)
    for read in (open_file, read_bytes, read_text, is_locked):
        with pytest.raises(NotRegularFileError, match="is a pipe, a device or a socket; give a regular file"):
            read(path)
    with pytest.raises(IsADirectoryError):
        open_file(tmp_path)


def test_a_pipe_is_no_lock(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"device|regular"), locked(special(tmp_path / "x", "pipe")):
        pass


def test_files_that_are_read_at_once_have_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1234")
    assert (read_bytes(path, 4), read_bytes(path, None), read_text(path)) == (b"1234", b"1234", "1234")
    with pytest.raises(TooLargeError, match=r"x' has 4 bytes, more than the limit of 3") as caught:
        read_bytes(path, 3)
    assert isinstance(caught.value, UserError)
    for read in (read_bytes, read_text):
        with pytest.raises(TooLargeError, match="more than the limit of 400,000,000"):
            read(enormous(path))


def test_the_error_crosses_processes(tmp_path: Path) -> None:
    with pytest.raises(NotRegularFileError) as caught:
        open_file(special(tmp_path / "x", "pipe"))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert isinstance(caught.value, UserError)


def test_special_files_among_images_are_listed(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "d" / "one", {"cat": 2, "dog": 2}).parent
    special(root / "one" / "cat" / "pipe.png", "pipe")
    special(root / "one" / "dog" / "zero.jpg", "device")
    texts = [finding.text for finding in verify(root)]
    reason = "cannot be read: not a regular file"
    assert texts == [f"one/cat/pipe.png: {reason}", f"one/dog/zero.jpg: {reason}"]
    loaded = load_images(read_tree(root).images, 8, tmp_path / "cache")
    assert len(loaded.images) == 4
    assert [path for path, _ in loaded.unreadable] == ["one/cat/pipe.png", "one/dog/zero.jpg"]


NEEDS_FILE = {
    "predict MODEL PICTURES --out rows.csv": "model.onnx",
    "data verify MODEL": "data.zip",
    "data describe MODEL": "data.zip",
    "data unpack PARENT out": "arrays.npz",
    "web ingest MODEL --out crawl": "list.csv",
    "train MODEL": "run.yaml",
    "train --data PICTURES --labeled one --target two weights=MODEL": "weights.pth",
}


@pytest.mark.parametrize("command", NEEDS_FILE)
def test_commands_refuse_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint, command: str) -> None:  # type: ignore[no-untyped-def]
    class_folders(tmp_path / "pictures" / "one", {"cat": 3, "dog": 3})
    class_folders(tmp_path / "pictures" / "two", {"cat": 3, "dog": 3}, start=10)
    pipe = special(tmp_path / "inputs" / NEEDS_FILE[command], "pipe")
    monkeypatch.chdir(tmp_path)
    values = {"MODEL": str(pipe), "PICTURES": "pictures", "PARENT": "inputs"}
    words = command.replace("weights=MODEL", f"weights={pipe}").split()
    assert pipe.name in complaint(*(values.get(word, word) for word in words))


@pytest.mark.parametrize("name", ["events.jsonl", "run.json", "result.json"])
def test_report_refuses_a_pipe_in_a_run_folder(tmp_path: Path, complaint, name: str) -> None:  # type: ignore[no-untyped-def]
    folder = write_run(tmp_path / "run")
    special(folder / name, "pipe")
    assert name in complaint("report", folder, "-o", tmp_path / "report.html")


@pytest.mark.parametrize("name", ["run.json", "result.json", "events.jsonl", "samples/index.json", "samples/0.webp"])
def test_report_refuses_an_enormous_file_in_a_run_folder(tmp_path: Path, complaint, name: str) -> None:  # type: ignore[no-untyped-def]
    folder = write_run(tmp_path / "run")
    path = enormous(next((folder / "samples").glob("*.webp")) if name.endswith(".webp") else folder / name)
    error = complaint("report", folder, "-o", tmp_path / "report.html")
    assert f"{path}' has 1,000,000,000,000 bytes, more than the limit of " in error


@pytest.mark.parametrize("command", ["predict FILE PICTURES --out rows.csv", "web crawl --urls FILE --classes a"])
def test_commands_refuse_an_enormous_file(tmp_path: Path, complaint, command: str) -> None:  # type: ignore[no-untyped-def]
    values = {"FILE": enormous(tmp_path / "x.onnx"), "PICTURES": class_folders(tmp_path / "pictures", {"cat": 1})}
    more = ("--per-class", 1, "--out", tmp_path / "crawl") if command.startswith("web") else ()
    assert "more than the limit of" in complaint(*(values.get(word, word) for word in command.split()), *more)


def enormous(path: Path) -> Path:
    """Make a sparse file, which takes no space on disk."""
    with path.open("wb") as file:
        file.truncate(10**12)
    return path


READERS = {"read_text", "read_bytes", "load", "ZipFile", "is_zipfile", "open"}
OWNERS = {"np", "zipfile", "Image", "os", "tarfile", "gzip", "webbrowser"}
# file: the readers that it may call on files by name, and why
EXCEPTIONS = {
    "artifact/package_license.py": {"read_text"},  # files of installed packages
    "bench/cluster.py": {"open"},  # appends to a log
    "bench/launch.py": {"open"},  # appends to a log
    "bench/tables/results_table.py": {"read_text"},  # a file of this package
    "cli/__init__.py": {"open"},  # /dev/null
    "cli/methods.py": {"read_text"},  # a file of this package
    "data/map_cache.py": {"open"},  # creates a file of the cache
    "data/sources/decode.py": {"open"},  # Pillow, on bytes
    "data/sources/npz.py": {"is_zipfile"},  # of an open file
    "data/sources/zip_entries.py": {"ZipFile", "is_zipfile"},  # of open files
    "files.py": {"open"},
    "hub/archives.py": {"open"},  # tarfile, on an open file
    "hub/transfer.py": {"open"},  # URLs, and its own partial file
    "inference/classifier.py": {"read_text"},  # /proc and /sys
    "report/domain_styles.py": {"open"},  # Pillow, WebP alone, on bytes
    "report/page.py": {"read_text"},  # a file of this package
}


def test_files_are_opened_in_one_module() -> None:
    """A reader that does not go through `ssdg.files` can hang; one outside of `decode` can start programs."""
    calls = {str(path.relative_to(SOURCE)): direct_reads(path) for path in sorted(SOURCE.rglob("*.py"))}
    assert {path: names for path, names in calls.items() if names} == EXCEPTIONS


def direct_reads(path: Path) -> set[str]:
    """The calls in a file that open another file for reading without `ssdg.files`."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    return {call_name(call) for call in calls if is_direct_read(call)}


def call_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def is_direct_read(call: ast.Call) -> bool:
    name, mode = call_name(call), call.args[0] if call.args else None
    if isinstance(call.func, ast.Name):
        return name == "open"
    if name not in READERS or not isinstance(call.func, ast.Attribute):
        return False
    owner = call.func.value
    is_member = isinstance(owner, ast.Attribute) and owner.attr == "zip"  # of an open archive
    if name == "load":  # numpy, from an open file
        return getattr(owner, "id", "") == "np" and getattr(mode, "id", "") not in ("opened", "source", "file")
    if name == "open" and getattr(owner, "id", "") not in OWNERS:
        is_write = isinstance(mode, ast.Constant) and str(mode.value)[0] in "wx"
        is_entry = isinstance(mode, ast.Name) and mode.id == "info"
        return not (is_member or is_write or is_entry)
    return True
