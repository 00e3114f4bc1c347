"""Taking over a crawl that someone has: folders, archives, tables and lists."""

from __future__ import annotations

import os
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from crawls import Capture, by_origin, ingest

from data.pictures import class_folders, encoded, picture, png, write, zip_files
from ssdg.data.sources.manifest import read_manifest


def test_class_folders(tmp_path: Path, capsys: Capture) -> None:
    crawl = class_folders(tmp_path / "crawl", {"dog": 2, "polar bear": 1})
    write(crawl / "dog" / "deep" / "no-suffix", encoded(picture(7), "JPEG"))
    write(crawl / "dog" / "text.jpg", b"not an image")
    write(crawl / "dog" / "twin.png", png(0))
    write(crawl / "readme.txt", b"mine")
    write(crawl / "dog" / ".DS_Store", b"junk")
    code, report, err = ingest(capsys, crawl, tmp_path / "out")
    assert (code, err) == (0, "")
    rows = by_origin(tmp_path / "out")
    assert {origin: row.reason for origin, row in rows.items() if not row.kept} == {
        "dog/text.jpg": "type",
        "dog/twin.png": "duplicate",
        "readme.txt": "no-class",
    }
    assert rows["dog/twin.png"].detail == rows["dog/000.png"].path
    assert rows["dog/deep/no-suffix"].path.startswith("dog/")
    assert rows["dog/deep/no-suffix"].path.endswith(".jpg")
    assert rows["polar bear/002.png"].source == "ingest:crawl"
    assert [(entry["label"], entry["kept"]) for entry in report["classes"] if entry["wanted"]] == [
        ("dog", 3),
        ("polar bear", 1),
    ]
    assert (tmp_path / "out" / rows["dog/000.png"].path).read_bytes() == png(0)


def test_a_second_time_changes_nothing_and_what_was_added_is_taken(tmp_path: Path, capsys: Capture) -> None:
    crawl = class_folders(tmp_path / "crawl", {"dog": 2})
    write(crawl / "dog" / "bad.png", b"")
    ingest(capsys, crawl, tmp_path / "out")
    before = (tmp_path / "out" / "manifest.csv").read_bytes()
    ingest(capsys, crawl, tmp_path / "out")
    assert (tmp_path / "out" / "manifest.csv").read_bytes() == before
    write(crawl / "cat" / "new.png", png(9))
    _, report, _ = ingest(capsys, crawl, tmp_path / "out")
    assert [(entry["label"], entry["kept"]) for entry in report["classes"]] == [("cat", 1), ("dog", 2)]


def test_links_that_leave_the_folder_are_refused(tmp_path: Path, capsys: Capture) -> None:
    crawl = class_folders(tmp_path / "crawl", {"dog": 1})
    write(tmp_path / "secret" / "s.png", png(50))
    (crawl / "dog" / "link.png").symlink_to(tmp_path / "secret" / "s.png")
    (crawl / "cat").symlink_to(tmp_path / "secret")
    (crawl / "dog" / "inside.png").symlink_to("000.png")
    (crawl / "dog" / "up").symlink_to("..")
    (crawl / "dog" / "gone.png").symlink_to("nowhere.png")
    os.mkfifo(crawl / "dog" / "pipe.png")
    ingest(capsys, crawl, tmp_path / "out")
    assert {origin: row.reason for origin, row in by_origin(tmp_path / "out").items()} == {
        "cat": "outside",
        "dog/000.png": "",
        "dog/gone.png": "unreadable",
        "dog/inside.png": "duplicate",
        "dog/link.png": "outside",
        "dog/pipe.png": "unreadable",
    }


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_an_archive_with_a_folder_around_the_classes(method: int, tmp_path: Path, capsys: Capture) -> None:
    files = {"web/dog/1.png": png(1), "web/cat/2.png": png(2), "web/readme.md": b"hello", "__MACOSX/x.png": b""}
    code, _, _ = ingest(capsys, zip_files(tmp_path / "web.zip", files, method), tmp_path / "out")
    assert code == 0
    assert Counter(row.label for row in read_manifest(tmp_path / "out").kept) == {"dog": 1, "cat": 1}
    assert by_origin(tmp_path / "out")["web/readme.md"].reason == "no-class"


def test_entries_that_leave_the_archive_are_refused(tmp_path: Path, capsys: Capture) -> None:
    bad = ["../up/1.png", "/abs/2.png", "dog/../../3.png", "C:\\win\\4.png", "\\\\host\\5.png"]
    files = {name: png(n) for n, name in enumerate(bad)} | {"dog/ok.png": png(20), "dog\\back.png": png(21)}
    ingest(capsys, zip_files(tmp_path / "evil.zip", files), tmp_path / "inner" / "out")
    rows = read_manifest(tmp_path / "inner" / "out").rows.values()
    assert Counter(row.reason for row in rows) == {"outside": 5, "": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evil.zip", "inner"]


def test_an_archive_that_unpacks_to_more_than_allowed(tmp_path: Path, capsys: Capture) -> None:
    files = {"dog/bomb.png": bytes(3_000_000), "dog/ok.png": png(1)}
    archive = zip_files(tmp_path / "a.zip", files, zipfile.ZIP_DEFLATED)
    central = archive.read_bytes().index(b"PK\x01\x02", archive.read_bytes().index(b"PK\x01\x02") + 1)
    ingest(capsys, archive, tmp_path / "out", "--max-mb", 1)
    assert by_origin(tmp_path / "out")["dog/bomb.png"].reason == "too-large"
    lying = bytearray(archive.read_bytes())
    lying[central + 20 : central + 24] = (2**32 - 2).to_bytes(4, "little")  # the packed size of ok.png
    archive.write_bytes(lying)
    ingest(capsys, archive, tmp_path / "again", "--max-mb", 1)
    assert by_origin(tmp_path / "again")["dog/ok.png"].reason == "too-large"


def test_damaged_entries(tmp_path: Path, capsys: Capture) -> None:
    archive = zip_files(tmp_path / "a.zip", {"dog/a.png": png(1), "dog/b.png": png(2)})
    data = bytearray(archive.read_bytes())
    data[60] ^= 1
    archive.write_bytes(data)
    ingest(capsys, archive, tmp_path / "out")
    assert {origin: row.reason for origin, row in by_origin(tmp_path / "out").items()} == {
        "dog/a.png": "unreadable",
        "dog/b.png": "",
    }


@pytest.mark.parametrize(("encoding", "more"), [("utf-8", ()), ("gbk", ()), ("gbk", ("--encoding", "gbk"))])
def test_names_in_an_archive_packed_elsewhere(
    encoding: str, more: tuple[str, ...], tmp_path: Path, capsys: Capture
) -> None:
    """Old packers write names in the encoding of their machine and do not state which."""
    plain = zip_files(tmp_path / "a.zip", {"AAAA/1.png": png(1), "dog/2.png": png(2)}).read_bytes()
    raw = {"utf-8": "éé", "gbk": "小狗"}[encoding].encode(encoding)
    (tmp_path / "a.zip").write_bytes(plain.replace(b"AAAA", raw))
    _, report, _ = ingest(capsys, tmp_path / "a.zip", tmp_path / "out", *more)
    assert {entry["label"] for entry in report["classes"]} == {raw.decode(encoding), "dog"}


def test_only_the_classes_asked_for(tmp_path: Path, capsys: Capture) -> None:
    crawl = class_folders(tmp_path / "crawl", {"dog": 1, "cat": 1})
    code, report, _ = ingest(capsys, crawl, tmp_path / "out", "--classes", "dog")
    assert (code, by_origin(tmp_path / "out")["cat/001.png"].reason) == (0, "not-asked")
    code, report, err = ingest(capsys, crawl, tmp_path / "out", "--classes", "dog,cat,house")
    assert code == 1
    assert "no image kept for house" in err
    assert [(entry["found"], entry["kept"]) for entry in report["classes"]] == [(1, 1), (1, 1), (0, 0)]


def test_hard_links(tmp_path: Path, capsys: Capture) -> None:
    crawl = class_folders(tmp_path / "crawl", {"dog": 1})
    ingest(capsys, crawl, tmp_path / "out", "--link")
    kept = tmp_path / "out" / by_origin(tmp_path / "out")["dog/000.png"].path
    assert kept.samefile(crawl / "dog" / "000.png")


@pytest.mark.parametrize(
    ("name", "content", "more", "message"),
    [
        ("none", None, (), "does not exist"),
        ("t.csv", b"url,class\nhttp://a,dog\n", (), "ssdg web crawl --urls"),
        ("t.csv", b"a,b\n1,2\n", (), "columns path and class"),
        ("t.csv", b"path,class\na,b,c\n", (), "line 2"),
        ("l.txt", b"a.png dog\n", ("--root", "nowhere"), "is not a folder"),
    ],
)
def test_sources_that_cannot_be_used(
    name: str, content: bytes | None, more: tuple[str, ...], message: str, tmp_path: Path, complaint
) -> None:  # type: ignore[no-untyped-def]
    if content is not None:
        write(tmp_path / name, content)
    assert message in complaint("web", "ingest", tmp_path / name, "-o", tmp_path / "out", *more)
    assert not (tmp_path / "out").exists()


def test_out_within_the_source(tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    crawl = class_folders(tmp_path / "crawl", {"dog": 1})
    assert "contain each other" in complaint("web", "ingest", crawl, "-o", crawl / "out")
    assert "contain each other" in complaint("web", "ingest", crawl, "-o", tmp_path)
    assert "--root" in complaint("web", "ingest", crawl, "-o", tmp_path / "out", "--root", tmp_path)


def test_an_empty_folder_is_a_failure(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = ingest(capsys, tmp_path / "empty", tmp_path / "out")
    assert code == 1
    assert "no image found for any class" in err


def test_links_to_themselves_are_refused(tmp_path: Path, capsys: Capture) -> None:
    crawl = class_folders(tmp_path / "crawl", {"dog": 2})
    (crawl / "dog" / "self").symlink_to("self")
    code, _, err = ingest(capsys, crawl, tmp_path / "out")
    assert (code, err) == (0, "")
    assert by_origin(tmp_path / "out")["dog/self"].detail == "Too many levels of symbolic links"
    write(crawl / "list.txt", b"dog/self dog\ndog/../dog/self dog\ndog/000.png dog\n")
    code, _, err = ingest(capsys, crawl / "list.txt", tmp_path / "listed")
    assert (code, err) == (0, "")
    assert {origin: row.kept for origin, row in by_origin(tmp_path / "listed").items()} == {
        "dog/self": False,
        "dog/../dog/self": False,
        "dog/000.png": True,
    }


def test_too_deep_folders_are_refused_with_a_reason(tmp_path: Path, capsys: Capture) -> None:
    crawl = class_folders(tmp_path / "crawl", {"dog": 2})
    write(crawl / "dog" / Path(*"a" * 64) / "x.png", png(1))
    code, _, err = ingest(capsys, crawl, tmp_path / "out")
    assert (code, err) == (0, "")
    refused = {origin: row.detail for origin, row in by_origin(tmp_path / "out").items() if not row.kept}
    assert refused == {f"dog/{'/'.join('a' * 64)}": "cannot be read: more than 64 folders deep"}


def test_an_output_folder_that_links_to_itself_is_one_sentence(tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    crawl = class_folders(tmp_path / "crawl", {"dog": 2})
    (tmp_path / "self").symlink_to("self")
    assert "self" in complaint("web", "ingest", crawl, "--out", tmp_path / "self")


def test_damaged_entries_are_refused_with_a_reason(tmp_path: Path, capsys: Capture) -> None:
    archive = tmp_path / "crawl.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("dog/good.png", png(1))
        opened.writestr("dog/method.png", png(2))
        opened.writestr("dog/size.png", png(3))
        opened.getinfo("dog/method.png").compress_type = 97
        opened.getinfo("dog/size.png").file_size = (1 << 64) - 1
    code, _, err = ingest(capsys, archive, tmp_path / "out")
    assert (code, err) == (0, "")
    reasons = {origin: row.reason for origin, row in by_origin(tmp_path / "out").items()}
    assert reasons == {"dog/good.png": "", "dog/method.png": "unreadable", "dog/size.png": "too-large"}
