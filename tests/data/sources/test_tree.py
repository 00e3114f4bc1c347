import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from pictures import benchmark, make_link_farm, png, write, zip_files

from ssdg.data.problem import benchmark_problem, folder_problem
from ssdg.data.sources.benchmark import read_benchmark
from ssdg.data.sources.tree import Reader, read_tree
from ssdg.data.verify import verify
from ssdg.errors import UserError


def paths(root):
    return [item.path for item in read_tree(root).images]


def test_junk_and_other_files_are_skipped(tmp_path):
    for name in (
        "a/1.png",
        "a/.hidden.png",
        "a/._1.png",
        "a/.DS_Store",
        "a/Thumbs.db",
        "a/x.csv",
        "__MACOSX/1.png",
    ):
        write(tmp_path / name, png(1))
    write(tmp_path / "a/2.JPEG", png(2))
    assert paths(tmp_path) == ["a/1.png", "a/2.JPEG"]


def test_archive_with_one_top_folder_appears_as_that_folder(tmp_path):
    zip_files(tmp_path / "x.zip", {"photo/dog/1.png": png(1), "photo/cat/2.png": png(2), "__MACOSX/z.png": b""})
    assert paths(tmp_path) == ["photo/cat/2.png", "photo/dog/1.png"]


def test_archive_with_several_top_folders_gets_its_own_name(tmp_path):
    zip_files(tmp_path / "photo.zip", {"dog/1.png": png(1), "cat/2.png": png(2)})
    zip_files(tmp_path / "flat.zip", {"1.png": png(1)})
    assert paths(tmp_path) == ["flat/1.png", "photo/cat/2.png", "photo/dog/1.png"]


def test_archive_as_root_has_no_extra_folder(tmp_path):
    archive = zip_files(tmp_path / "x.zip", {"dog/1.png": png(1), "cat/2.png": png(2), "../evil.png": png(3)})
    assert paths(archive) == ["cat/2.png", "dog/1.png"]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_entries_read_back(tmp_path, method):
    archive = zip_files(tmp_path / "x.zip", {"d/1.png": png(1), "d/empty.png": b""}, method)
    first, empty = read_tree(archive).images
    with Reader() as reader:
        assert reader.read(first) == png(1)
        assert reader.read(empty) == b""


def test_damaged_entry_is_reported(tmp_path):
    archive = zip_files(tmp_path / "x.zip", {"d/1.png": png(1)})
    data = bytearray(archive.read_bytes())
    data[60] ^= 1
    archive.write_bytes(data)
    with Reader() as reader, pytest.raises(OSError, match="checksum"):
        reader.read(read_tree(archive).images[0])


def test_link_loops_end_and_dangling_links_are_listed(tmp_path):
    write(tmp_path / "a/1.png", png(1))
    (tmp_path / "a/loop").symlink_to(tmp_path)
    (tmp_path / "a/gone.png").symlink_to(tmp_path / "nowhere.png")
    assert paths(tmp_path) == ["a/1.png", "a/gone.png"]


def test_linked_folder_is_followed(tmp_path):
    write(tmp_path / "store/1.png", png(1))
    (tmp_path / "root").mkdir()
    (tmp_path / "root/dog").symlink_to(tmp_path / "store")
    assert paths(tmp_path / "root") == ["dog/1.png"]


def test_name_that_is_not_utf8_can_be_printed_and_read(tmp_path):
    (tmp_path / "d").mkdir()
    with open(os.fsencode(tmp_path / "d") + b"/\xff.png", "wb") as file:  # noqa: PTH123
        file.write(png(1))
    (item,) = read_tree(tmp_path).images
    item.path.encode()
    with Reader() as reader:
        assert reader.read(item) == png(1)


def test_a_changed_file_has_another_stamp(tmp_path):
    path = write(tmp_path / "1.png", png(1))
    (before,) = read_tree(tmp_path).images
    stat = path.stat()
    path.write_bytes(bytes(stat.st_size))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert read_tree(tmp_path).images[0].stamp != before.stamp  # same size, same modification time


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.arange(2)}, "must contain the two arrays"),
        ({"images": np.zeros((2, 4, 4)), "labels": np.arange(2)}, "uint8"),
        ({"images": np.array([{}, {}], object), "labels": np.arange(2)}, "uint8"),
        ({"images": np.zeros((2, 4, 4, 3), np.uint8), "labels": np.array([{}, {}], object)}, "plain arrays"),
    ],
)
def test_wrong_npz_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    (item,) = read_tree(tmp_path).arrays
    with Reader() as reader, pytest.raises(UserError, match=message):
        reader.npz_labels(item)


@pytest.mark.parametrize("name", ["missing", "broken.zip", "notes.md"])
def test_a_root_must_be_a_folder_or_archive(tmp_path, name):
    write(tmp_path / "broken.zip", b"PK no archive")
    write(tmp_path / "notes.md", b"hello")
    with pytest.raises(UserError):
        read_tree(tmp_path / name)


def test_broken_archive_inside_a_folder_is_named(tmp_path):
    write(tmp_path / "broken.zip", b"PK no archive")
    with pytest.raises(UserError, match=r"broken\.zip"):
        read_tree(tmp_path)


def test_an_archive_next_to_its_unpacked_folder_counts_once(tmp_path):
    write(tmp_path / "photo/dog/1.png", png(1))
    zip_files(tmp_path / "photo.zip", {"photo/dog/1.png": png(1), "photo/dog/2.png": png(2)})
    images = read_tree(tmp_path).images
    assert [(item.path, bool(item.entry)) for item in images] == [
        ("photo/dog/1.png", False),
        ("photo/dog/2.png", True),
    ]


def test_a_link_to_itself_is_skipped_and_listed(tmp_path):
    root = benchmark(tmp_path / "data", ("one", "two"), per_class=2)
    (root / "one" / "self").symlink_to("self")
    (root / "self").symlink_to("self")
    (root / "one" / "cat" / "self.png").symlink_to("self.png")
    reason = "cannot be read: Too many levels of symbolic links"
    assert read_tree(root).skipped == (("one/self", reason), ("self", reason))
    assert read_benchmark(root).names == ("one", "two")
    texts = [finding.text for finding in verify(root)]
    assert texts == [f"one/cat/self.png: {reason}", f"one/self: {reason}", f"self: {reason}"]


def test_too_deep_folders_are_skipped_and_listed(tmp_path):
    """A walk that recurses fails at a thousand."""
    root = benchmark(tmp_path / "data", ("one", "two"), per_class=2)
    write(root / "one" / "cat" / Path(*"a" * 62) / "kept.png", png(1))
    write(root / "one" / "cat" / Path(*"a" * 63) / "deep.png", png(2))
    (path, reason), *others = read_tree(root).skipped
    assert path == f"one/cat/{'/'.join('a' * 63)}"
    assert (reason, others) == ("cannot be read: more than 64 folders deep", [])
    assert len([item for item in read_tree(root).images if item.path.endswith("kept.png")]) == 1


def test_folders_that_many_links_lead_to_are_listed_a_few_times(tmp_path):
    make_link_farm(tmp_path)
    tree = read_tree(tmp_path)
    assert 1 <= len(tree.images) <= 16
    assert {reason for _, reason in tree.skipped} == {"cannot be read: more than 16 links lead to this folder"}


def test_a_link_to_itself_is_listed_among_the_files_of_a_run(tmp_path):
    root = benchmark(tmp_path / "data", ("one", "two", "three"), per_class=4)
    (root / "one" / "self").symlink_to("self")
    (root / "two" / "self").symlink_to("self")
    cache = tmp_path / "cache"
    problem = benchmark_problem(root, labeled="one", target="three", size=8, cache=cache)
    assert [path for path, _ in problem.unreadable] == ["one/self", "two/self"]
    folders = folder_problem(root / "one", [root / "two"], size=8, cache=cache)
    assert [path for path, _ in folders.unreadable] == ["self", "self"]
