import json

import numpy as np
import pytest
from pictures import benchmark, encoded, npz, picture, png, write, write_splits

from ssdg.cli.data import app
from ssdg.data.sources.benchmark import read_benchmark
from ssdg.data.verify import describe, verify
from ssdg.errors import UserError


def kinds(root):
    return sorted((finding.kind, finding.domain) for finding in verify(root))


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        app([*map(str, arguments)])
    return ended.value.code or 0, capsys.readouterr().out


def test_a_clean_root_has_no_finding(tmp_path, capsys):
    benchmark(tmp_path)
    assert verify(tmp_path) == []
    assert run(capsys, "verify", tmp_path)[0] == 0


def test_corrupt_files_with_reasons(tmp_path):
    benchmark(tmp_path)
    write(tmp_path / "one/cat/text.jpg", b"hello")
    write(tmp_path / "two/cat/cut.jpg", encoded(picture(1, 200, 200), "JPEG")[:-400])
    texts = [f"{finding.domain} {finding.text}" for finding in verify(tmp_path)]
    assert texts[0] == "one one/cat/text.jpg: not an image in a known format"
    assert texts[1].startswith("two two/cat/cut.jpg: cannot be decoded: ")
    assert len(texts) == 2


def test_copies_within_and_across_domains(tmp_path):
    benchmark(tmp_path)
    write(tmp_path / "one/dog/copy.png", png(0))
    write(tmp_path / "two/dog/copy.png", png(1))
    assert kinds(tmp_path) == [("duplicate", "one"), ("duplicate", "one, two")]


def test_lists(tmp_path):
    benchmark(tmp_path, ("one",), per_class=2)
    names = ["one/cat/000.png 1", "one/cat/001.png 1", "one/dog/002.png 2"]
    write_splits(
        tmp_path / "splits",
        "one",
        train=[*names, "one/cat/gone.png 1"],
        crossval=["one/cat/000.png 1", "one/cat/000.png 1"],
    )
    texts = {finding.kind: finding.text for finding in verify(tmp_path)}
    assert set(texts) == {"missing", "repeated", "unlisted", "overlap"}
    assert "gone.png" in texts["missing"]
    assert "003.png" in texts["unlisted"]
    assert "000.png" in texts["repeated"]
    assert "000.png" in texts["overlap"]


def test_counts_and_classes(tmp_path):
    benchmark(tmp_path, ("photo", "sketch"))
    write(tmp_path / "photo/cow/1.png", png(9999))
    assert kinds(tmp_path) == [("classes", "sketch"), ("count", "photo"), ("count", "sketch")]


def test_a_damaged_npz_file_is_listed_but_never_lost_by_a_run(tmp_path, capsys):
    benchmark(tmp_path, ("one", "two"))
    write(tmp_path / "three.npz", b"PK no archive")
    (finding,) = verify(tmp_path)
    assert (finding.kind, finding.domain) == ("unreadable", "")
    assert finding.text.startswith("three.npz: cannot read ")
    code, out = run(capsys, "describe", tmp_path)
    assert code == 0
    assert "1 files cannot be read" in out
    with pytest.raises(UserError, match=r"three\.npz"):
        read_benchmark(tmp_path)


def test_description(tmp_path, capsys):
    benchmark(tmp_path, ("photo", "sketch"))
    npz(tmp_path / "mnist.npz", [0, 1, 1], side=5)
    description = describe(tmp_path)
    assert description.sizes["photo"] == {(12, 10): 12}
    assert description.sizes["mnist"] == {(5, 5): 3}
    code, out = run(capsys, "describe", tmp_path, "--json")
    assert code == 0
    data = json.loads(out)
    assert data["known_as"] == "PACS"
    assert data["domains"][0]["classes"] == {"0": 1, "1": 2}
    code, out = run(capsys, "describe", tmp_path)
    assert code == 0
    assert "photo" in out
    assert "12x10" in out


def test_verify_reports_by_exit_code(tmp_path, capsys):
    benchmark(tmp_path)
    write(tmp_path / "one/cat/[red]empty.png", b"")
    code, out = run(capsys, "verify", tmp_path)
    assert code == 1
    assert "[red]empty.png" in out.replace("\n", "")
    code, out = run(capsys, "verify", tmp_path, "--json")
    assert code == 1
    assert json.loads(out) == [
        {"kind": "unreadable", "domain": "one", "text": "one/cat/[red]empty.png: the file is empty"}
    ]


def test_a_class_folder_is_reported_by_class(tmp_path, capsys):
    for number, name in enumerate(("cat", "dog")):
        for index in range(3):
            write(tmp_path / f"pets/{name}/{index}.png", png(10 * number + index))
    (tmp_path / "pets/fox").mkdir()
    write(tmp_path / "pets/dog/bad.png", b"")
    write(tmp_path / "pets/dog/copy.png", png(0))
    write(tmp_path / "pets/stray.png", b"x")
    code, out = run(capsys, "verify", tmp_path / "pets")
    assert code == 1
    assert "domain" not in out
    assert "class" in out.splitlines()[1]
    code, out = run(capsys, "verify", tmp_path / "pets", "--json")
    assert sorted((row["kind"], row["class"]) for row in json.loads(out)) == [
        ("classes", "fox"),
        ("duplicate", "cat, dog"),
        ("unreadable", ""),
        ("unreadable", "dog"),
    ]
    out = run(capsys, "statistics", tmp_path / "pets", "--format", "csv")[1]
    assert "pets,cat,3,,," in out.splitlines()
    assert "layout: <class>/<image>" in run(capsys, "describe", tmp_path / "pets")[1]
    benchmark(tmp_path / "root")  # with classes in one of its folders, the folders are domains
    write(tmp_path / "root/flat/1.png", b"")
    assert ("unreadable", "flat") in kinds(tmp_path / "root")


def test_many_findings_are_cut_on_screen_only(tmp_path, capsys):
    np.savez(
        tmp_path / "x.npz",
        images=np.arange(25).repeat(48).reshape(25, 4, 4, 3).astype(np.uint8),
        labels=np.arange(25),
    )
    np.savez(tmp_path / "y.npz", **np.load(tmp_path / "x.npz"))
    assert "25 findings, 5 not shown" in run(capsys, "verify", tmp_path)[1]
    assert len(json.loads(run(capsys, "verify", tmp_path, "--json")[1])) == 25


def test_list(capsys):
    code, out = run(capsys, "list")
    assert code == 0
    assert "Office-Webdata" in out
    listed = json.loads(run(capsys, "list", "--json")[1])
    assert listed[0]["name"] == "PACS"
    assert len(listed[0]["tasks"]) == 12
