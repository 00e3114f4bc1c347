"""Taking over a crawl by a list of its files: tables, numbers, encodings."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from crawls import Capture, by_origin, ingest, write_urls

from data.pictures import class_folders, png, write
from ssdg.data.sources.manifest import read_manifest
from ssdg.web.ingest_sources import split_line


def test_a_file_that_was_missing_is_taken_later(tmp_path: Path, capsys: Capture) -> None:
    listing = write(tmp_path / "list.txt", b"dog/a.png dog\ndog/b.png dog\n")
    write(tmp_path / "dog" / "a.png", png(1))
    ingest(capsys, listing, tmp_path / "out")
    assert by_origin(tmp_path / "out")["dog/b.png"].reason == "unreadable"
    write(tmp_path / "dog" / "b.png", png(2))
    _, report, _ = ingest(capsys, listing, tmp_path / "out")
    assert (report["classes"][0]["found"], report["classes"][0]["kept"]) == (2, 2)


def test_the_list_of_the_paper_with_numbers(tmp_path: Path, capsys: Capture) -> None:
    class_folders(tmp_path / "web", {"dog": 2, "polar bear": 1})
    text = "web/dog/000.png 1\nweb/dog/001.png 1\nPACS-Webdata/web/polar bear/002.png 2\nweb/none.png 2\n"
    listing = write(tmp_path / "all_list.txt", text.encode())
    code, report, _ = ingest(capsys, listing, tmp_path / "out", "--classes", "dog,polar bear")
    assert code == 0
    assert Counter(row.label for row in read_manifest(tmp_path / "out").kept) == {"dog": 2, "polar bear": 1}
    assert report["notes"] == ["'all_list.txt' was read as utf-8"]
    assert by_origin(tmp_path / "out")["web/none.png"].reason == "unreadable"


@pytest.mark.parametrize(
    ("labels", "more", "message"),
    [
        ("12", (), "set --classes to the class names"),
        ("1", ("--classes", "dog,cat"), "--first-label 0 or 1"),
        ("13", ("--classes", "dog,cat"), "names 2 classes"),
        ("01", ("--classes", "dog,cat", "--first-label", "1"), "names 2 classes"),
    ],
)
def test_numbers_that_name_no_class(
    labels: str, more: tuple[str, ...], message: str, tmp_path: Path, complaint
) -> None:  # type: ignore[no-untyped-def]
    listing = write(tmp_path / "l.txt", "".join(f"a.png {label}\n" for label in labels).encode())
    assert message in complaint("web", "ingest", listing, "-o", tmp_path / "out", *more)


@pytest.mark.parametrize(
    ("more", "expected"), [((), {"dog": 1, "cat": 1}), (("--first-label", "0"), {"dog": 1, "cat": 1})]
)
def test_numbers_from_zero(more: tuple[str, ...], expected: dict[str, int], tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "a.png", png(1))
    write(tmp_path / "b.png", png(2))
    listing = write(tmp_path / "l.txt", b"a.png 0\nb.png 1\n")
    ingest(capsys, listing, tmp_path / "out", "--classes", "dog,cat", *more)
    assert Counter(row.label for row in read_manifest(tmp_path / "out").kept) == expected


@pytest.mark.parametrize("encoding", ["utf-8", "gbk", "utf-8-sig", "utf-16"])
def test_lists_in_any_encoding(encoding: str, tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "图" / "小狗 一.png", png(1))
    listing = write(tmp_path / "all_list.txt", "图/小狗 一.png 狗\n".encode(encoding))
    code, report, _ = ingest(capsys, listing, tmp_path / "out")
    assert (code, report["classes"][0]["label"], report["classes"][0]["kept"]) == (0, "狗", 1)
    used = {"gbk": "gb18030"}.get(encoding, encoding)
    assert report["notes"] == [f"'all_list.txt' was read as {used}"]


def test_of_two_encodings_that_fit_the_one_whose_files_are_there_is_taken(tmp_path: Path, capsys: Capture) -> None:
    text = "béé.png dog\n"
    text.encode("latin-1").decode("gb18030")  # fits, and is nonsense
    write(tmp_path / "béé.png", png(1))
    listing = write(tmp_path / "l.txt", text.encode("latin-1"))
    code, report, _ = ingest(capsys, listing, tmp_path / "out")
    assert (code, report["notes"]) == (0, ["'l.txt' was read as latin-1"])


def test_files_whose_names_are_bytes_of_another_machine(tmp_path: Path, capsys: Capture) -> None:
    raw = os.fsdecode("小狗.png".encode("gbk"))
    write(tmp_path / raw, png(1))
    listing = write(tmp_path / "l.txt", "小狗.png dog\n".encode("gbk"))
    assert ingest(capsys, listing, tmp_path / "out")[0] == 0
    assert by_origin(tmp_path / "out")["小狗.png"].kept


def test_a_wrong_encoding_is_reported(tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    listing = write(tmp_path / "l.txt", "小狗.png dog\n".encode("gbk"))
    message = complaint("web", "ingest", listing, "-o", tmp_path / "out", "--encoding", "utf-8")
    assert "is not utf-8" in message


def test_a_table_with_addresses_and_licences(tmp_path: Path, capsys: Capture) -> None:
    class_folders(tmp_path / "files", {"x": 3})
    cells = [
        ("x/000.png", "dog", "http://a/1", "CC0"),
        ("x/001.png", "dog", "http://a/1", ""),
        ("x/002.png", "cat", "", ""),
    ]
    table = write_urls(tmp_path / "t.csv", cells, ("File", "Label", "URL", "License"))
    code, _, _ = ingest(capsys, table, tmp_path / "out", "--root", tmp_path / "files")
    rows = by_origin(tmp_path / "out")
    assert code == 0
    assert (rows["x/000.png"].url, rows["x/000.png"].licence) == ("http://a/1", "CC0")
    assert all(row.kept for row in rows.values()), "two files may come from one page"


def test_the_manifest_of_another_folder(tmp_path: Path, capsys: Capture) -> None:
    class_folders(tmp_path / "files", {"dog": 2})
    write(tmp_path / "files" / "dog" / "bad.png", b"")
    ingest(capsys, tmp_path / "files", tmp_path / "first")
    code, report, _ = ingest(capsys, tmp_path / "first" / "manifest.csv", tmp_path / "second")
    assert (code, report["classes"][0]["found"], report["classes"][0]["kept"]) == (0, 2, 2)


def test_paths_that_leave_the_root_are_refused(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "secret.png", png(1))
    root = class_folders(tmp_path / "root", {"dog": 1})
    (root / "dog" / "link.png").symlink_to(tmp_path / "secret.png")
    paths = ["../secret.png", str(tmp_path / "secret.png"), "dog/../../secret.png", "dog/link.png", "C:\\secret.png"]
    paths += ["dog/../dog/000.png"]
    table = write_urls(root / "t.csv", [(path, "dog") for path in paths], ("path", "class"))
    ingest(capsys, table, tmp_path / "out")
    rows = {origin: row.reason for origin, row in by_origin(tmp_path / "out").items()}
    assert rows == dict.fromkeys(paths[:-1], "outside") | {paths[-1]: ""}


def test_labels_that_are_paths_are_refused(tmp_path: Path, capsys: Capture) -> None:
    write(tmp_path / "a.png", png(1))
    write(tmp_path / "b.png", png(2))
    table = write_urls(tmp_path / "t.csv", [("a.png", "../../up"), ("b.png", "dog")], ("path", "class"))
    ingest(capsys, table, tmp_path / "out" / "deep")
    assert by_origin(tmp_path / "out" / "deep")["a.png"].reason == "no-class"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png", "out", "t.csv"]


@pytest.mark.parametrize(
    ("line", "classes", "expected"),
    [
        ("a/b.jpg 3", [], ("a/b.jpg", "3")),
        ("a b/c d.JPG polar bear", [], ("a b/c d.JPG", "polar bear")),
        ("a b/c polar bear", ["bear", "polar bear"], ("a b/c", "polar bear")),
        ("a b/c\tpolar bear", [], ("a b/c", "polar bear")),
        ("a.jpg.png x", [], ("a.jpg.png", "x")),
        ("alone.jpg", [], ("alone.jpg", "")),
    ],
)
def test_lines(line: str, classes: list[str], expected: tuple[str, str]) -> None:
    assert split_line(line, classes) == expected
