"""Hostile archives: nothing is written outside, nothing without bounds, and no link, device or duplicate name."""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.publishers import files_below, tarred, zipped
from ssdg.hub.archives import Bounds, safe_path, unpack
from ssdg.hub.transfer import FetchError

PACK: dict[str, Callable[[dict[str, bytes]], bytes]] = {"zip": zipped, "tar.gz": tarred}
GOOD = {"photo/dog/0.png": b"one", "photo/horse/1.JPG": b"two", "splits/photo_train_kfold.txt": b"x 1\n"}


def unpacked(tmp_path: Path, content: bytes, bounds: Bounds | None = None) -> dict[str, bytes]:
    archive = tmp_path / "here" / "archive.bin"  # what it is, its content tells
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(content)
    unpack(archive, tmp_path / "here" / "out", bounds)
    return files_below(tmp_path / "here" / "out")


def assert_refused(tmp_path: Path, content: bytes, match: str, bounds: Bounds | None = None) -> None:
    before = set(tmp_path.rglob("*"))
    with pytest.raises(FetchError, match=match) as caught:
        unpacked(tmp_path, content, bounds)
    assert "\n" not in str(caught.value)
    inside = tmp_path / "here"
    assert all(inside == path or inside in path.parents for path in set(tmp_path.rglob("*")) - before)
    assert {path.name for path in inside.iterdir()} <= {"archive.bin", "out"}


@pytest.mark.parametrize("form", PACK)
def test_files_come_out_with_our_permissions(tmp_path: Path, form: str) -> None:
    assert unpacked(tmp_path, PACK[form](GOOD)) == GOOD
    modes = {path.stat().st_mode & 0o7111 for path in (tmp_path / "here" / "out").rglob("*.*") if path.is_file()}
    assert modes == {0}, "nothing can be executed"


@pytest.mark.parametrize("mode", ["w", "w:bz2", "w:xz"])
def test_other_tars_are_read(tmp_path: Path, mode: str) -> None:
    assert unpacked(tmp_path, tarred(GOOD, mode)) == GOOD


@pytest.mark.parametrize("form", PACK)
@pytest.mark.parametrize(
    "name",
    [
        "/tmp/evil.png",
        "../evil.png",
        "photo/../../evil.png",
        "..\\evil.png",
        "photo\\..\\..\\evil.png",
        "\\evil.png",
        "C:\\evil.png",
        "c:evil.png",
        "//host/share/evil.png",
        "photo/" + "x" * 300 + ".png",
        "d/" * 40 + "evil.png",
        "a\x1b[2Jb.png",
    ],
)
def test_no_name_leads_outside(tmp_path: Path, form: str, name: str) -> None:
    assert_refused(tmp_path, PACK[form]({**GOOD, name: b"evil"}), "the archive is rejected")


@given(st.text(alphabet="ab./\\:\0 C", max_size=12))
def test_every_path_is_inside(name: str) -> None:
    try:
        path = safe_path(name)
    except FetchError:
        return
    assert path is None or (not path.is_absolute() and ".." not in path.parts and "\\" not in str(path))


def test_folders_written_with_backslashes_are_folders(tmp_path: Path) -> None:
    assert unpacked(tmp_path, zipped({"photo\\dog\\0.png": b"x"})) == {"photo/dog/0.png": b"x"}


def tar_with(kind: bytes, link: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("photo/dog/0.png")
        info.type, info.linkname = kind, link
        archive.addfile(info)
        inside = tarfile.TarInfo("photo/dog/0.png/1.png")
        inside.size = 1
        archive.addfile(inside, io.BytesIO(b"x"))
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "../../.."),
        (tarfile.SYMTYPE, "1.png"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes, link: str) -> None:
    assert_refused(tmp_path, tar_with(kind, link), "'photo/dog/0.png' is a link or a device")


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("photo")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/")
    assert_refused(tmp_path, out.getvalue(), "'photo' is a link or a device")


@pytest.mark.parametrize("form", PACK)
def test_a_bomb_is_stopped_by_its_bytes(tmp_path: Path, form: str) -> None:
    pack = (lambda files: zipped(files, zipfile.ZIP_DEFLATED)) if form == "zip" else tarred
    content = pack({"photo/dog/0.png": bytes(5_000_000)})
    bounds = Bounds(free_bytes=1000)
    assert len(content) * bounds.ratio < 5_000_000
    assert_refused(tmp_path, content, "it unpacks to more than", bounds)
    assert_refused_again = Bounds(total_bytes=4_000_000)
    other = tmp_path / "other"
    other.mkdir()
    assert_refused(other, content, "it unpacks to more than", assert_refused_again)


@pytest.mark.parametrize("form", PACK)
def test_a_bomb_is_rejected_by_its_claimed_size_before_a_byte_is_written(tmp_path: Path, form: str) -> None:
    content = PACK[form]({"photo/dog/0.png": b"one", "photo/dog/1.png": bytes(5_000_000)})
    assert_refused(tmp_path, content, "it unpacks to more than 5,000,002 bytes", Bounds(total_bytes=4_000_000))
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "here" / "out").rglob("*.png")}
    assert sizes == {"0.png": 3, "1.png": 0}


def test_a_bomb_in_a_bomb_is_counted_as_one(tmp_path: Path) -> None:
    inner = zipped({"0.png": bytes(3_000_000)}, zipfile.ZIP_DEFLATED)
    content = zipped({f"{n}.zip": inner for n in range(3)})
    assert_refused(tmp_path, content, "it unpacks to more than", Bounds(total_bytes=8_000_000))


@pytest.mark.parametrize("form", PACK)
def test_members_are_counted_whatever_they_are(tmp_path: Path, form: str) -> None:
    content = PACK[form]({f"{n}.exe": b"" for n in range(11)})
    assert_refused(tmp_path, content, "more than 10 members", Bounds(members=10))


def test_a_size_that_a_zip_only_claims_does_not_matter(tmp_path: Path) -> None:
    content = bytearray(zipped({"0.png": bytes(100_000)}, zipfile.ZIP_DEFLATED))
    at = content.index(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", 10)  # the size in the central directory
    assert_refused(tmp_path, bytes(content), "damaged|unpacks to")


def test_a_header_of_impossible_size_is_not_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 1 << 33
    assert_refused(tmp_path, info.tobuf(tarfile.GNU_FORMAT) + bytes(2048), "header of impossible size")


@pytest.mark.parametrize("form", PACK)
@pytest.mark.parametrize(
    ("names", "match"),
    [
        (("photo/dog/0.png", "photo/dog/0.PNG"), "differ only in case"),
        (("photo/dog/0.png", "Photo/dog/1.png"), "differ only in case"),
        (("photo/caf\u00e9.png", "photo/cafe\u0301.png"), "differ only in case"),
        (("photo/dog/0.png", "photo/./dog//0.png"), "appears twice"),
        (("photo/dog.png", "photo/dog.png/0.png"), "appears twice"),
        (("photo/dog.png/0.png", "photo/dog.png"), "is both a file and a folder"),
    ],
)
def test_twins_are_refused(tmp_path: Path, form: str, names: tuple[str, str], match: str) -> None:
    assert_refused(tmp_path, PACK[form](dict.fromkeys(names, b"x")), match)


@pytest.mark.parametrize("form", PACK)
def test_what_is_no_image_is_not_written(tmp_path: Path, form: str) -> None:
    junk = {
        "run.sh": b"#!",
        "photo/.bashrc": b"x",
        "__MACOSX/photo/dog/._0.png": b"x",
        "model.pth": b"x",
        "a.so": b"x",
    }
    assert unpacked(tmp_path, PACK[form]({**junk, **GOOD})) == GOOD


def test_nested_archives_are_unpacked_in_place(tmp_path: Path) -> None:
    inner = {"dog/0.png": b"one"}
    content = zipped({"PACS/photo.zip": zipped(inner), "PACS/sketch.tar.gz": tarred({"dog/1.png": b"two"})})
    assert unpacked(tmp_path, content) == {"PACS/photo/dog/0.png": b"one", "PACS/sketch/dog/1.png": b"two"}


def test_an_archive_in_an_archive_cannot_lead_outside_either(tmp_path: Path) -> None:
    assert_refused(tmp_path, zipped({"a/photo.zip": zipped({"../../evil.png": b"x"})}), "leads outside")


def test_nesting_ends(tmp_path: Path) -> None:
    content = zipped({"0.png": b"deep"})
    for _ in range(5):
        content = zipped({"a.zip": content})
    assert unpacked(tmp_path, content) == {}


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_damage_is_reported(tmp_path: Path, form: str) -> None:
    content = PACK[form]({"photo/dog/0.png": bytes(range(256)) * 400})
    assert_refused(tmp_path, content[: len(content) // 2], "damaged|is not a .zip, .tar or .tar.gz archive")


def test_a_wrong_checksum_is_reported(tmp_path: Path) -> None:
    content = bytearray(zipped({"photo/dog/0.png": b"abcdefgh"}))
    content[content.index(b"abcdefgh")] ^= 1
    assert_refused(tmp_path, bytes(content), "damaged: Bad CRC-32")


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"Rar!\x1a\x07\x00", b"\x1f\x8b", b"PK\x03\x04"])
def test_a_file_that_is_not_an_archive_is_reported(tmp_path: Path, content: bytes) -> None:
    assert_refused(tmp_path, content, "is not a .zip, .tar or .tar.gz archive|is damaged")


def test_a_zip_with_a_password_is_reported(tmp_path: Path) -> None:
    content = bytearray(zipped({"0.png": b"x" * 20}))
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(magic) + offset] |= 1
    assert_refused(tmp_path, bytes(content), "password|encrypted")
