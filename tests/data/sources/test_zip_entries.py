"""Damaged, lying and enormous archives: one entry never ends a command, and memory stays flat."""

import resource
import tracemalloc
import zipfile
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from pictures import benchmark, class_folders, npz, png, write, zip_files

from ssdg.cli import call
from ssdg.data.cache import load_images
from ssdg.data.sources import zip_entries
from ssdg.data.sources.benchmark import read_benchmark
from ssdg.data.sources.tree import Reader, read_tree
from ssdg.data.verify import describe, verify
from ssdg.errors import UserError
from ssdg.files import MAX_FILE_BYTES
from ssdg.hub.archives import unpack
from ssdg.inference.find_images import find_images
from ssdg.inference.stream import decode_batches

GIGABYTE = 1 << 30


def damaged(archive: Path, method: int) -> Path:
    """Write an archive whose entry bad.png has altered data."""
    noise = np.random.default_rng(0).bytes(4000)
    zip_files(archive, {"good.png": png(900 + method), "bad.png": noise}, method)
    with zipfile.ZipFile(archive) as opened:
        start = opened.getinfo("bad.png").header_offset + 30 + len("bad.png")
    content = bytearray(archive.read_bytes())
    for offset in range(start + 40, start + 400):
        content[offset] ^= 0x5A
    return write(archive, bytes(content))


def lying(archive: Path, **fields: int) -> Path:
    """Write an archive whose directory has these values for the entry bad.png."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("good.png", png(800))
        opened.writestr("bad.png", png(1))
        for name, value in fields.items():
            setattr(opened.getinfo("bad.png"), name, value)
    return archive


def bomb(archive: Path, num_gigabytes: int = 3, name: str = "bad.png", **others: bytes) -> Path:
    """Write a small archive with an entry of zeros and others."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    first = deflate.compress(bytes(1 << 24)) + deflate.flush(zlib.Z_FULL_FLUSH)
    with zipfile.ZipFile(archive, "w") as opened:
        for other, content in others.items():
            opened.writestr(f"{other}.png", content)
        opened.writestr(name, first * (64 * num_gigabytes) + deflate.flush())
        info = opened.getinfo(name)
        info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, num_gigabytes * GIGABYTE
    return archive


ARCHIVES = {
    "lzma": lambda path: damaged(path, zipfile.ZIP_LZMA),
    "bzip2": lambda path: damaged(path, zipfile.ZIP_BZIP2),
    "deflate": lambda path: damaged(path, zipfile.ZIP_DEFLATED),
    "method": lambda path: lying(path, compress_type=97),
    "packed": lambda path: lying(path, compress_size=1 << 62),
    "sizes": lambda path: lying(path, compress_size=1 << 62, file_size=1 << 62),
    "largest": lambda path: lying(path, compress_size=(1 << 64) - 1, file_size=(1 << 64) - 1),
    "offset": lambda path: lying(path, header_offset=1 << 62),
    "beyond": lambda path: lying(path, compress_size=1 << 28, file_size=1 << 28),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_bad_entry_is_listed_and_the_rest_is_read(tmp_path, kind):
    root = benchmark(tmp_path / "data", ("one", "two"), per_class=2)
    ARCHIVES[kind](root / "one" / "cat" / "x.zip")
    findings = [finding for finding in verify(root) if finding.kind == "unreadable"]
    assert [finding.text.partition(":")[0] for finding in findings] == ["one/cat/x/bad.png"]
    assert "damaged archive entry" in findings[0].text or "more than the limit" in findings[0].text
    loaded = load_images(read_tree(root).images, 8, tmp_path / "cache")
    assert len(loaded.images) == 9
    assert [path for path, _ in loaded.unreadable] == ["one/cat/x/bad.png"]
    ((entries, decoded),) = decode_batches(find_images([str(root / "one" / "cat" / "x.zip")]), 8, 8)
    assert [isinstance(pixels, str) for pixels in decoded] == [True, False], entries


def test_a_bomb_costs_neither_time_nor_memory(tmp_path, capsys):
    root = benchmark(tmp_path / "data", ("one", "two"), per_class=2)
    archive = bomb(root / "one" / "cat" / "x.zip", good=png(800))
    assert archive.stat().st_size < 4_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert [finding.kind for finding in verify(root)] == ["unreadable"]
    assert describe(root).unreadable == {"one": 1, "two": 0}
    assert call(["data", "describe", str(root)]) == 0
    assert "1 files cannot be read; run ssdg data verify" in capsys.readouterr().out
    ((_, decoded),) = decode_batches(find_images([str(archive)]), 8, 8)
    assert decoded[0] == "cannot be read: 3,221,225,472 bytes, more than the limit of 400,000,000"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_an_entry_without_a_name_is_left_out(tmp_path, capsys):
    path = tmp_path / "x.zip"
    zip_files(path, {"cat/0.png": png(1)})
    with zipfile.ZipFile(path, "a") as opened:
        nameless = zipfile.ZipInfo("x")
        nameless.filename = ""
        opened.writestr(nameless, b"x")
    assert [item.path for item in read_tree(path).images] == ["cat/0.png"]
    assert call(["web", "ingest", str(path), "-o", str(tmp_path / "web")]) == 0
    assert len(list((tmp_path / "web").rglob("*.png"))) == 1
    unpack(path, tmp_path / "unpacked")
    assert [file.name for file in (tmp_path / "unpacked").rglob("*.png")] == ["0.png"]


def test_a_large_plain_file_has_the_same_limit(tmp_path):
    root = class_folders(tmp_path / "data" / "one", {"cat": 1, "dog": 1}).parent
    with (root / "one" / "cat" / "large.png").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    assert [finding.text for finding in verify(root)] == [
        "one/cat/large.png: cannot be read: 400,000,001 bytes, more than the limit of 400,000,000"
    ]


def test_an_array_bomb_inside_an_archive_is_one_sentence(tmp_path):
    bomb(tmp_path / "data" / "x.zip", 1, "domain.npz")
    with pytest.raises(UserError, match="more than the limit"):
        read_benchmark(tmp_path / "data")


def test_a_large_array_inside_an_archive_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(zip_entries, "MAX_FILE_BYTES", 100)
    content = npz(tmp_path / "one.npz", [0, 1, 2], side=40).read_bytes()
    zip_files(tmp_path / "data" / "x.zip", {"one.npz": content}, zipfile.ZIP_DEFLATED)
    (domain,) = read_benchmark(tmp_path / "data").domains
    with Reader() as reader:
        assert reader.read(domain.items[2]).shape == (40, 40, 3)


def claim(path: Path, shape: tuple[int, ...], num_bytes: int = 300, file_size: int | None = None) -> Path:
    """Write an .npz file whose images have this shape by their header, with little data."""
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("images.npy", header.getvalue() + bytes(num_bytes))
        labels = BytesIO()
        np.save(labels, np.zeros(4, np.int64))
        opened.writestr("labels.npy", labels.getvalue())
        if file_size is not None:
            opened.getinfo("images.npy").file_size = len(header.getvalue()) + file_size
            opened.getinfo("images.npy").compress_size = len(header.getvalue()) + file_size
    return path


@pytest.mark.parametrize("file_size", [None, 12 * 10**12])
@pytest.mark.parametrize("command", ["verify", "describe"])
def test_an_array_larger_than_its_data_is_one_sentence(tmp_path, capsys, monkeypatch, command, file_size):
    monkeypatch.setenv("COLUMNS", "400")
    claim(tmp_path / "data" / "one.npz", (4, 10**6, 10**6, 3), file_size=file_size)
    tracemalloc.start()
    assert call(["data", command, str(tmp_path / "data")]) == 2
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50_000_000
    error = capsys.readouterr().err
    assert "one.npz' as an .npz file of plain arrays" in error
    assert error.count("\n") == 1


def test_a_single_array_named_npz_is_one_sentence(tmp_path):
    """It is not read: a sparse file has as much data as it claims."""
    path = tmp_path / "data" / "one.npz"
    path.parent.mkdir()
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (GIGABYTE,)})
        file.truncate(file.tell() + GIGABYTE)
    tracemalloc.start()
    with pytest.raises(UserError, match=r"numpy\.savez"):
        read_benchmark(tmp_path / "data")
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


def test_an_archive_of_too_deep_folders_is_one_sentence(tmp_path, complaint):
    """The paths of the folders in a name of 60 kB take a gigabyte."""
    archive = zip_files(tmp_path / "deep.zip", {"a/" * 30_000 + "x.png": b""})
    for words in (("data", "verify", archive), ("web", "ingest", archive, "--out", tmp_path / "web")):
        assert "more than 64 folders deep" in complaint(*words)
    (row,) = find_images([str(archive)])
    assert "more than 64 folders deep" in row.reason
    archive = zip_files(tmp_path / "nested.zip", {"a/" * 64 + "x.png": b""})
    assert len(read_tree(archive).images) == 1
