import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from pictures import benchmark, class_folders, encoded, picture, png, write, zip_files

import ssdg
from ssdg.data import cache as cache_module
from ssdg.data.cache import load_images
from ssdg.data.sources.decode import decode
from ssdg.data.sources.tree import read_tree
from ssdg.errors import Note, UserError
from ssdg.files import locked
from waiting import PATIENCE

BUILD = """
import sys, time
from pathlib import Path
from ssdg.data.cache import load_images
from ssdg.data.sources.tree import read_tree
root, cache, log, pause = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])
def progress(done, total):
    with log.open("a") as file:
        file.write(f"{done}\\n")
    time.sleep(pause)
load_images(read_tree(root).images, 8, cache, progress=progress)
"""


def start_build(root, cache, log, pause):
    arguments = [sys.executable, "-c", BUILD, str(root), str(cache), str(log), str(pause)]
    source = str(Path(ssdg.__file__).parents[1])
    return subprocess.Popen(arguments, env=os.environ | {"PYTHONPATH": source})


def load(root, cache, size=8, **options):
    return load_images(read_tree(root).images, size, cache, **options)


def test_pixels_are_the_decoded_files_in_digest_order(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 5, "b": 5})
    got = load(root, tmp_path / "cache")
    items = read_tree(root).images
    rows = np.arange(10)
    for row in rows:
        data = Path(items[got.item[row]].file).read_bytes()
        np.testing.assert_array_equal(got.images[np.array([row])][0], decode(data, 8))
    digests = [d.tobytes() for d in got.images.digest]
    assert digests == sorted(digests)
    assert sorted(got.item) == list(range(10))


def test_moving_files_between_folders_changes_nothing(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 4, "b": 4})
    before = load(root, tmp_path / "cache")
    (root / "a/000.png").rename(root / "b/zzz.png")
    after = load(root, tmp_path / "cache", progress=lambda done, total: pytest.fail("decoded again"))
    assert before.images.fingerprint == after.images.fingerprint
    np.testing.assert_array_equal(before.images[np.arange(8)], after.images[np.arange(8)])


def test_second_opening_reads_no_file(tmp_path, monkeypatch):
    root = class_folders(tmp_path / "d", {"a": 3})
    load(root, tmp_path / "cache")
    monkeypatch.setattr(cache_module.Reader, "read", lambda *_: pytest.fail("a file was read"))
    assert len(load(root, tmp_path / "cache").images) == 3


def test_locks_of_killed_processes_are_removed_and_held_ones_stay(tmp_path):
    benchmark(tmp_path / "data")
    load(tmp_path / "data", tmp_path / "cache")
    files = set((tmp_path / "cache").iterdir())
    locks = {path.with_suffix(".lock") for path in files}
    for lock in locks:
        lock.touch()
    held = min(locks)
    with locked(held):
        load(tmp_path / "data", tmp_path / "cache")
        assert set((tmp_path / "cache").iterdir()) == {*files, held}


@pytest.mark.parametrize("header", [b"{'descr': '|u1', 'shape': (", b"{'descr': '|u1'\nx", b"(\x00"])
def test_a_listing_with_a_damaged_header_is_built_again(tmp_path, header):
    benchmark(tmp_path / "data")
    load(tmp_path / "data", tmp_path / "cache")
    (listing,) = (tmp_path / "cache").glob("*.npy")
    before = listing.read_bytes()
    listing.write_bytes(before[:10] + header.ljust(118)[:118] + before[128:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(tmp_path / "data", tmp_path / "cache")
    assert listing.read_bytes() == before


def test_changed_content_is_seen(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 3})
    before = load(root, tmp_path / "cache")
    write(root / "a/001.png", png(77))
    after = load(root, tmp_path / "cache")
    assert before.images.fingerprint != after.images.fingerprint


def test_each_size_has_its_own_pixels(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 2})
    assert load(root, tmp_path / "cache", size=8).images.size == 8
    assert load(root, tmp_path / "cache", size=6).images.size == 6


def test_copies_are_stored_once_and_listed_each(tmp_path):
    root = tmp_path / "d"
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        write(root / name, png(1))
    got = load(root, tmp_path / "cache")
    assert len(got.images) == 3
    assert got.images.arrays[0].shape[0] == 1


def test_unreadable_files_are_listed_and_left_out(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 2})
    write(root / "a/empty.png", b"")
    write(root / "b/text.jpg", b"hello")
    write(root / "b/cut.jpg", encoded(picture(1, 200, 200), "JPEG")[:-400])
    (root / "b/gone.png").symlink_to(tmp_path / "nowhere")
    for _ in range(2):  # built, and opened again
        got = load(root, tmp_path / "cache")
        assert len(got.images) == 2
        assert [path for path, _ in got.unreadable] == [
            "a/empty.png",
            "b/cut.jpg",
            "b/gone.png",
            "b/text.jpg",
        ]
        assert all(reason and "\n" not in reason for _, reason in got.unreadable)


def test_all_unreadable(tmp_path):
    write(tmp_path / "d/1.png", b"")
    got = load(tmp_path / "d", tmp_path / "cache")
    assert len(got.images) == 0
    assert len(got.unreadable) == 1


def test_an_archive_and_its_folder_share_one_cache(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 3})
    load(root, tmp_path / "cache")
    archive = zip_files(tmp_path / "x.zip", {f"a/{i:03}.png": png(i) for i in range(3)})
    load(archive, tmp_path / "cache", progress=lambda done, total: pytest.fail("decoded again"))


def test_a_cut_data_file_is_built_again(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 3})
    expected = load(root, tmp_path / "cache").images[np.arange(3)]
    (data,) = (tmp_path / "cache").glob("*.u8")
    os.truncate(data, 10)
    np.testing.assert_array_equal(load(root, tmp_path / "cache").images[np.arange(3)], expected)


def alter(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(bytes(content))


def pixels_of(loaded):
    return loaded.images[np.arange(len(loaded.images))]


@pytest.mark.parametrize("row", [0, 7, 17])
def test_an_altered_pixel_is_decoded_again(tmp_path, row):
    root, cache = class_folders(tmp_path / "d", {"a": 18}), tmp_path / "cache"
    expected = pixels_of(load(root, cache))
    (data,) = cache.glob("*.u8")
    alter(data, row * 8 * 8 * 3 + 5)
    with pytest.warns(Note, match="is damaged and is built again"):
        np.testing.assert_array_equal(pixels_of(load(root, cache)), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Note)
        np.testing.assert_array_equal(pixels_of(load(root, cache)), expected)


@pytest.mark.parametrize("pattern", ["*.json", "listing-*.npy"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "altered", "other"])
def test_a_damaged_index_is_built_again(tmp_path, pattern, damage):
    root, cache = class_folders(tmp_path / "d", {"a": 3}), tmp_path / "cache"
    expected = load(root, cache)
    (path,) = cache.glob(pattern)
    content = path.read_bytes()
    if damage == "altered":
        alter(path, len(content) - 20 if path.suffix == ".npy" else content.index(b"crc32") + 10)
    else:
        path.write_bytes({"empty": b"", "truncated": content[: len(content) // 2], "other": b"[1, 2]\n"}[damage])
    with pytest.warns(Note, match="is damaged and is built again"):
        got = load(root, cache)
    np.testing.assert_array_equal(pixels_of(got), pixels_of(expected))
    np.testing.assert_array_equal(got.item, expected.item)
    assert path.read_bytes() == content


def test_unreadable_images_keep_their_reasons_and_the_checksum_holds(tmp_path):
    root, cache = class_folders(tmp_path / "d", {"a": 3}), tmp_path / "cache"
    write(root / "a" / "bad.png", b"no image")
    first = load(root, cache)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Note)
        assert load(root, cache).unreadable == first.unreadable == (("a/bad.png", "not an image in a known format"),)


def test_a_cache_of_an_earlier_version_gets_its_checksum(tmp_path):
    root, cache = class_folders(tmp_path / "d", {"a": 3}), tmp_path / "cache"
    load(root, cache)
    (meta,) = cache.glob("*.json")
    record = json.loads(meta.read_text())
    checksum = record.pop("crc32")
    meta.write_text(json.dumps(record))
    load(root, cache, progress=lambda done, total: pytest.fail("decoded again"))
    assert json.loads(meta.read_text())["crc32"] == checksum


def test_a_system_that_cannot_reserve_space(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    root = class_folders(tmp_path / "d", {"a": 3})
    write(root / "a" / "bad.png", b"no image")
    assert len(load(root, tmp_path / "cache").images) == 3


def test_a_file_that_changes_between_the_passes_is_reported(tmp_path, monkeypatch):
    root = class_folders(tmp_path / "d", {"a": 3})
    real = cache_module._open_pixels

    def change_first(*arguments, **options):
        write(root / "a/001.png", png(99))
        return real(*arguments, **options)

    monkeypatch.setattr(cache_module, "_open_pixels", change_first)
    with pytest.raises(UserError, match=r"a/001\.png' changed"):
        load(root, tmp_path / "cache")


def test_two_processes_decode_once(tmp_path):
    root = benchmark(tmp_path / "d", per_class=8)
    log = [tmp_path / "said0", tmp_path / "said1"]
    builds = [start_build(root, tmp_path / "cache", path, 0.3) for path in log]
    assert [build.wait(PATIENCE) for build in builds] == [0, 0]
    assert sum(path.exists() for path in log) == 1


def test_a_killed_build_leaves_nothing_harmful(tmp_path):
    root, cache = benchmark(tmp_path / "d", per_class=8), tmp_path / "cache"
    build = start_build(root, cache, tmp_path / "said", 60)
    while not (tmp_path / "said").exists():
        assert build.poll() is None
        time.sleep(0.02)
    build.send_signal(signal.SIGKILL)
    build.wait()
    assert list(cache.glob(".*.tmp"))  # it was in the middle
    assert not list(cache.glob("*.json"))
    got = load(root, cache)
    assert not list(cache.glob(".*.tmp"))
    np.testing.assert_array_equal(got.images[np.arange(48)], load(root, tmp_path / "other").images[np.arange(48)])


def test_an_interrupted_build_is_not_taken_for_done(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 3})

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(root, tmp_path / "cache", progress=interrupt)
    assert not list((tmp_path / "cache").glob("*.u8"))
    assert not list((tmp_path / "cache").glob(".*.tmp"))
    assert len(load(root, tmp_path / "cache").images) == 3


def test_progress_ends_at_the_total(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 40})
    seen = []
    load(root, tmp_path / "cache", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)
    assert seen == sorted(seen)


def test_a_full_disk_is_reported(tmp_path, monkeypatch):
    root = class_folders(tmp_path / "d", {"a": 3})

    def full(handle, offset, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match="No space left on device; free some space"):
        load(root, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob(".*.tmp"))


def test_a_cache_that_cannot_be_created_is_reported(tmp_path):
    root = class_folders(tmp_path / "d", {"a": 3})
    write(tmp_path / "file", b"")
    with pytest.raises(UserError, match="choose another cache folder"):
        load(root, tmp_path / "file" / "cache")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache_opens_what_it_has(tmp_path):
    root, cache = class_folders(tmp_path / "d", {"a": 3}), tmp_path / "cache"
    load(root, cache)
    cache.chmod(0o555)
    try:
        assert len(load(root, cache).images) == 3
        with pytest.raises(UserError, match="choose another cache folder"):
            load(root, cache, size=6)
    finally:
        cache.chmod(0o755)


def test_description_has_size_and_count(tmp_path):
    load(class_folders(tmp_path / "d", {"a": 3}), tmp_path / "cache")
    (meta,) = (tmp_path / "cache").glob("*.json")
    record = json.loads(meta.read_text())
    assert (record["images"], record["size"], record["unreadable"]) == (3, 8, {})
