"""The images that the inputs of `ssdg predict` name, their order, and that they are found as a stream."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
from pictures import make_link_farm

from ssdg.data.sources.tree import Item, read_tree
from ssdg.errors import UserError
from ssdg.inference import find_images as module
from ssdg.inference.find_images import STDIN, UnreadablePath, check_inputs, find_images, read_list


def touch(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return root


def paths(*inputs: object, listed: bytes | None = None, null: bool = False) -> list[str]:
    stream = io.BytesIO(listed) if listed is not None else None
    return [entry.path for entry in find_images([str(value) for value in inputs], stream, null=null)]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Below the working folder, so that paths are short."""
    monkeypatch.chdir(tmp_path)
    return touch(
        tmp_path / "photos",
        *(
            "b.jpg",
            "a/2.png",
            "a/1.JPG",
            "a-b/3.gif",
            "a.jpg",
            "notes.txt",
            ".hidden.jpg",
            "c/d/e/4.webp",
            "rows.npz",
        ),
    )


def test_a_folder_has_the_order_of_a_sorted_list_of_its_paths(tree: Path) -> None:
    listing = paths("photos")
    assert listing == sorted(listing)
    assert listing == [f"photos/{item.path}" for item in read_tree(tree).images]
    assert listing == [f"photos/{n}" for n in ("a-b/3.gif", "a.jpg", "a/1.JPG", "a/2.png", "b.jpg", "c/d/e/4.webp")]


def test_a_folder_of_many_files_is_gone_through_in_pieces(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tree, *(f"many/{n:03}.jpg" for n in range(50)), *(f"many/{n:03}/x.jpg" for n in range(0, 50, 7)))
    whole = paths("photos")
    calls = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: calls.append(folder) or real(folder))
    for names in (1, 3, 50):
        calls.clear()
        monkeypatch.setattr(module, "MAX_NAMES", names)
        assert paths("photos") == whole
    assert calls.count("photos/many") == 2  # 58 names by 50
    assert len(whole) == len({*whole})


def test_words_keep_their_order_and_may_repeat(tree: Path) -> None:
    assert paths("photos/b.jpg", "photos/a", "photos/b.jpg", "./photos/a.jpg") == [
        *("photos/b.jpg", "photos/a/1.JPG", "photos/a/2.png", "photos/b.jpg", "photos/a.jpg")
    ]
    assert paths("photos/notes.txt") == ["photos/notes.txt"]  # a file that is named is taken, whatever it is


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("photos/**/*.jpg", ["photos/a.jpg", "photos/b.jpg"]),
        ("photos/*/*.*", ["photos/a-b/3.gif", "photos/a/1.JPG", "photos/a/2.png"]),
        ("**/[0-9].p?g", ["photos/a/2.png"]),
        ("photos/**/e/**/*", ["photos/c/d/e/4.webp"]),
        ("photos/**", ["a-b/3.gif", "a.jpg", "a/1.JPG", "a/2.png", "b.jpg", "c/d/e/4.webp"]),
        ("./p*/b.jpg", ["photos/b.jpg"]),
        ("photos/*.txt", []),
    ],
)
def test_patterns(tree: Path, pattern: str, matches: list[str]) -> None:
    assert paths(pattern) == [path if path.startswith("photos") else f"photos/{path}" for path in matches]


def test_a_pattern_enters_no_folder_that_it_cannot_match(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: entered.append(folder) or real(folder))
    paths("photos/a*/*.png")
    assert entered == ["photos", "photos/a-b", "photos/a"]


def test_a_file_that_looks_like_a_pattern_is_a_file(tree: Path) -> None:
    touch(tree, "x[1].jpg", "x1.jpg")
    assert paths("photos/x[1].jpg") == ["photos/x[1].jpg"]
    assert paths("photos/x[1]*.jpg") == ["photos/x1.jpg"]


def test_archives(tree: Path) -> None:
    with zipfile.ZipFile(tree / "more.zip", "w") as archive:
        for name in ("z.jpg", "k/y.png", "readme.txt", "__MACOSX/z.jpg"):
            archive.writestr(name, b"x")
    assert paths("photos/more.zip") == ["photos/more.zip/k/y.png", "photos/more.zip/z.jpg"]
    inside = [path for path in paths("photos") if "more" in path]
    assert inside == ["photos/more/k/y.png", "photos/more/z.jpg"]
    touch(tree, "more/z.jpg")  # unpacked next to it
    assert paths("photos").count("photos/more/z.jpg") == 1
    assert paths("photos/*.zip") == ["photos/more/k/y.png"]


def test_lists(tree: Path) -> None:
    listed = b"photos/b.jpg\r\n\nphotos/a\nphotos/none.jpg\nphotos/a.jpg"
    expected = ["photos/b.jpg", "photos/a/1.JPG", "photos/a/2.png", "photos/none.jpg", "photos/a.jpg"]
    assert paths(STDIN, listed=listed) == expected
    assert paths("photos/a.jpg", STDIN, "photos/b.jpg", listed=listed) == ["photos/a.jpg", *expected, "photos/b.jpg"]
    touch(tree, "line\nbreak.jpg")
    assert paths(STDIN, listed=b"photos/line\nbreak.jpg\0photos/a.jpg\0", null=True) == [
        "photos/line\nbreak.jpg",
        "photos/a.jpg",
    ]


def test_a_list_is_read_piece_by_piece() -> None:
    class Endless(io.RawIOBase):
        taken = 0

        def readable(self) -> bool:
            return True

        def readinto(self, into: bytearray) -> int:
            line = b"some/where/an/image.jpg\n" * (len(into) // 24)
            into[: len(line)] = line
            self.taken += len(line)
            return len(line)

    raw = Endless()
    lines = read_list(io.BufferedReader(raw), null=False)
    assert {next(lines) for _ in range(10_000)} == {"some/where/an/image.jpg"}
    assert raw.taken < 1_000_000


def test_what_a_list_cannot_be() -> None:
    with pytest.raises(UserError, match="add --null"):
        list(read_list(io.BytesIO(b"a.jpg\0b.jpg\0"), null=False))
    with pytest.raises(UserError, match="a path of more than"):
        list(read_list(io.BytesIO(b"a" * 300_000), null=False))
    with pytest.raises(UserError, match="leave out --null"):
        list(read_list(io.BytesIO(b"a.jpg\n" * 100_000), null=True))


def test_what_cannot_be_read_is_found_with_a_reason(tree: Path) -> None:
    touch(tree, "broken.zip")
    os.mkfifo(tree / "pipe.jpg")
    (tree / "gone.jpg").symlink_to("nowhere")
    path_list = io.BytesIO(b"photos/pipe.jpg\nphotos/none\n")
    entries = {entry.path: entry for entry in find_images(["photos", STDIN], path_list)}
    broken, pipe, none = (entries[f"photos/{name}"] for name in ("broken.zip", "pipe.jpg", "none"))
    assert broken == UnreadablePath("photos/broken.zip", "cannot be read: File is not a zip file")
    assert pipe == UnreadablePath("photos/pipe.jpg", "is not a regular file")
    assert none == UnreadablePath("photos/none", "does not exist")
    assert not isinstance(entries["photos/gone.jpg"], UnreadablePath)  # reading it gives the reason


def test_loops_of_links_end_and_marked_folders_are_passed_over(tree: Path) -> None:
    before = paths("photos")
    (tree / "c" / "loop").symlink_to(tree)
    touch(tree, "secret/.nomedia", "secret/5.jpg")
    assert paths("photos") == before


def test_folders_that_many_links_lead_to_are_rows(tmp_path: Path) -> None:
    make_link_farm(tmp_path)
    for value in (str(tmp_path), f"{tmp_path}/**/*.png"):
        rows = list(find_images([value]))
        assert 1 <= sum(isinstance(row, Item) for row in rows) <= 16
        reasons = {row.reason for row in rows if isinstance(row, UnreadablePath)}
        assert reasons == {"cannot be read: more than 16 links lead to this folder"}


def test_a_link_to_itself_is_a_row_among_the_others(tree: Path) -> None:
    before = paths("photos")
    (tree / "c" / "self").symlink_to("self")
    entries = {entry.path: entry for entry in find_images(["photos"])}
    loop = entries.pop("photos/c/self")
    assert isinstance(loop, UnreadablePath)
    assert loop.reason == "cannot be read: Too many levels of symbolic links"
    assert list(entries) == before


def test_a_pattern_of_many_wildcards_takes_no_exponential_time(tree: Path) -> None:
    touch(tree, f"c/{'a/' * 40}x.jpg")
    assert paths(f"photos/{'**/' * 20}*.png") == paths("photos/**/*.png")
    assert paths(f"photos/{'**/a/' * 20}x.jpg") == paths("photos/c/**/x.jpg")
    assert paths(f"photos/{'**/a/' * 41}x.jpg") == []


def test_too_deep_folders_are_a_row(tree: Path) -> None:
    before = paths("photos")
    touch(tree, f"c/{'a/' * 64}x.jpg")
    for value in ("photos", "photos/**/*.jpg"):
        (row,) = (entry for entry in find_images([value]) if isinstance(entry, UnreadablePath))
        assert row == UnreadablePath(f"photos/c/{'/'.join('a' * 64)}", "cannot be read: more than 64 folders deep")
    assert [path for path in paths("photos") if not path.startswith("photos/c/a")] == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_may_not_be_read_is_a_row(tree: Path) -> None:
    (tree / "a").chmod(0)
    entries = list(find_images(["photos"]))
    (tree / "a").chmod(0o755)
    assert UnreadablePath("photos/a", "cannot be read: Permission denied") in entries


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "no images given; name images, folders"),
        (["photos/none"], "'photos/none' does not exist"),
        (["photos", "empty"], "'empty' contains no image"),
        (["photos/*.pdf"], r"'photos/\*.pdf' matches no image"),
        (["nowhere/*.jpg"], "'nowhere' cannot be read: No such file or directory"),
        (["photos/bad.zip"], "'photos/bad.zip' cannot be read: File is not a zip file; give"),
        ([STDIN, "photos", STDIN], "standard input is given twice"),
    ],
)
def test_words_that_lead_nowhere(tree: Path, inputs: list[str], message: str) -> None:
    Path("empty").mkdir()
    touch(tree, "bad.zip")
    with pytest.raises(UserError, match=message):
        check_inputs(inputs)


def test_names_that_are_no_text_can_be_written(tree: Path) -> None:
    name = os.fsdecode(b"photos/\xff.jpg")
    Path(name).write_bytes(b"x")
    for entry in (*find_images(["photos"]), *find_images([STDIN], io.BytesIO(b"photos/\xff.jpg"))):
        entry.path.encode()
    assert next(find_images([name])).file == name
