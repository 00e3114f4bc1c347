"""`ssdg web audit`: what it removes from the manifest, what it leaves alone, and how to undo it."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crawls import Capture, by_origin, ingest, run
from scenes import scene

from data.pictures import encoded, write, zip_files
from ssdg.data.problem import folder_problem
from ssdg.data.roles import read_crawl
from ssdg.data.sources.manifest import KEPT, REFUSED, Manifest, Row, read_manifest, write_manifest

FAST = ("--no-labels",)


def audit(capsys: Capture, folder: Path, *more: object) -> tuple[int, dict[str, Any], str]:
    return run(capsys, "web", "audit", folder, "--json", *more)


def small(seed: int) -> bytes:
    return encoded(scene(seed).resize((60, 60)), "JPEG", quality=60)


@pytest.fixture
def crawl(tmp_path: Path, capsys: Capture) -> Path:
    """Two classes of five; dog/copy.jpg is a smaller dog/0.png, cat/both.jpg a smaller dog/1.png."""
    for number in range(5):
        write(tmp_path / "found" / "dog" / f"{number}.png", encoded(scene(number)))
        write(tmp_path / "found" / "cat" / f"{number}.png", encoded(scene(10 + number)))
    write(tmp_path / "found" / "dog" / "copy.jpg", small(0))
    write(tmp_path / "found" / "cat" / "both.jpg", small(1))
    ingest(capsys, tmp_path / "found", tmp_path / "crawl")
    return tmp_path / "crawl"


def reasons(folder: Path) -> dict[str, str]:
    return {origin: row.reason for origin, row in by_origin(folder).items() if not row.kept}


def file_of(folder: Path, origin: str) -> Path:
    return folder / by_origin(folder)[origin].path


def test_of_copies_the_one_of_most_pixels_stays(crawl: Path, capsys: Capture) -> None:
    code, report, err = audit(capsys, crawl, *FAST)
    assert (code, err) == (0, "")
    assert reasons(crawl) == {"dog/copy.jpg": "near-duplicate", "cat/both.jpg": "near-duplicate"}
    row = by_origin(crawl)["dog/copy.jpg"]
    assert by_origin(crawl)["dog/0.png"].path in row.detail
    assert float(row.extra["audit_similarity"]) > 0.9
    assert (crawl / row.path).is_file()
    assert [(entry["label"], entry["images"], entry["duplicates"], entry["kept"]) for entry in report["classes"]] == [
        ("cat", 6, 1, 5),
        ("dog", 6, 1, 5),
    ]


def test_copies_of_another_web_label_are_reported(crawl: Path, capsys: Capture) -> None:
    _, report, _ = audit(capsys, crawl, *FAST)
    assert by_origin(crawl)["dog/1.png"].extra["audit_other_labels"] == "cat"
    assert by_origin(crawl)["dog/0.png"].extra["audit_other_labels"] == ""
    assert report["total"]["two_labels"] == 1
    audit(capsys, crawl, *FAST, "--refuse", "two-labels")
    assert reasons(crawl)["dog/1.png"] == "two-labels"


def test_refused_exact_copies_report_their_web_label(tmp_path: Path, capsys: Capture) -> None:
    for label in ("cat", "dog"):
        write(tmp_path / "found" / label / "same.png", encoded(scene(1)))
        write(tmp_path / "found" / label / "own.png", encoded(scene(len(label) + ord(label[0]))))
    ingest(capsys, tmp_path / "found", tmp_path / "crawl")
    audit(capsys, tmp_path / "crawl", *FAST)
    assert by_origin(tmp_path / "crawl")["cat/same.png"].extra["audit_other_labels"] == "dog"


def against(kind: str, folder: Path) -> Path:
    """The images of dog/2 and cat/3, changed, and one that is not in the crawl."""
    changed = [scene(2).transpose(0).resize((80, 80)), scene(13).resize((40, 48)), scene(99)]
    files = {f"photo/dog/{number}.jpg": encoded(image, "JPEG") for number, image in enumerate(changed)}
    if kind == "zip":
        return zip_files(folder / "target.zip", files)
    if kind == "npz":
        folder.mkdir()
        pixels = np.stack([np.asarray(image.resize((64, 64))) for image in changed])
        np.savez(folder / "target.npz", images=pixels, labels=np.zeros(3, np.int64))
        return folder / "target.npz"
    for name, data in files.items():
        write(folder / name, data)
    return folder


@pytest.mark.parametrize("kind", ["folder", "zip", "npz"])
def test_leaks_are_taken_out_and_listed(kind: str, crawl: Path, tmp_path: Path, capsys: Capture) -> None:
    target = against(kind, tmp_path / "target")
    _, report, _ = audit(capsys, crawl, *FAST, "--against", target)
    leaks = {entry["path"]: entry["other"] for entry in report["found"] if entry["kind"] == "leak"}
    assert {origin for origin, reason in reasons(crawl).items() if reason == "leak"} == {"dog/2.png", "cat/3.png"}
    other = "target.npz#0" if kind == "npz" else f"{target.name}/photo/dog/0.jpg"
    assert leaks[by_origin(crawl)["dog/2.png"].path] == other
    assert "mirrored" in by_origin(crawl)["dog/2.png"].detail
    assert len(read_crawl(crawl, "crawl").items) == 12 - 2 - 2


def test_leaks_are_only_reported_when_they_are_to_stay(crawl: Path, tmp_path: Path, capsys: Capture) -> None:
    target = against("folder", tmp_path / "target")
    (target / "self.png").symlink_to("self.png")  # listed as unreadable, not the end of the audit
    _, report, _ = audit(capsys, crawl, *FAST, "--against", target, "--keep-leaks")
    assert [entry["taken_out"] for entry in report["found"] if entry["kind"] == "leak"] == [False, False]
    assert by_origin(crawl)["dog/2.png"].kept
    assert by_origin(crawl)["dog/2.png"].extra["audit_found"] == "leak"


def test_images_of_one_color_leak_by_content_only(tmp_path: Path, capsys: Capture) -> None:
    from PIL import Image

    for value in (10, 20):
        write(tmp_path / "found" / "dog" / f"{value}.png", encoded(Image.new("RGB", (30, 30), (value,) * 3)))
    write(tmp_path / "target" / "x.png", encoded(Image.new("RGB", (30, 30), (20,) * 3)))
    ingest(capsys, tmp_path / "found", tmp_path / "crawl")
    audit(capsys, tmp_path / "crawl", *FAST, "--against", tmp_path / "target")
    assert reasons(tmp_path / "crawl") == {"dog/20.png": "leak"}


def test_a_folder_around_the_crawl_is_compared_without_it(
    crawl: Path, tmp_path: Path, capsys: Capture, complaint: Any
) -> None:
    audit(capsys, crawl, *FAST, "--against", tmp_path / "crawl" / "..")
    assert sum(reason == "leak" for reason in reasons(crawl).values()) == 12  # found/ holds them all
    assert "no image outside the crawl" in complaint("web", "audit", crawl, *FAST, "--against", crawl)


def test_damaged_files(crawl: Path, capsys: Capture) -> None:
    file_of(crawl, "dog/2.png").unlink()
    file_of(crawl, "dog/3.png").write_bytes(encoded(scene(77)))
    file_of(crawl, "dog/4.png").write_bytes(b"no image")
    file_of(crawl, "cat/2.png").unlink()
    file_of(crawl, "cat/2.png").symlink_to(crawl.parent / "found" / "cat" / "2.png")
    _, report, _ = audit(capsys, crawl, *FAST)
    damaged = {origin: row.detail for origin, row in by_origin(crawl).items() if row.reason == "damaged"}
    assert "missing" in damaged.pop("dog/2.png")
    assert "sha256" in damaged.pop("dog/3.png")
    assert "not an image" in damaged.pop("dog/4.png")
    assert "leaves the folder" in damaged.pop("cat/2.png")
    assert not damaged
    assert report["total"]["damaged"] == 4


def test_an_ingest_restores_damaged_files(crawl: Path, capsys: Capture) -> None:
    file_of(crawl, "dog/2.png").write_bytes(b"no image")
    audit(capsys, crawl, *FAST)
    ingest(capsys, crawl.parent / "found", crawl)
    assert by_origin(crawl)["dog/2.png"].kept
    assert reasons(crawl) == {"dog/copy.jpg": "near-duplicate", "cat/both.jpg": "near-duplicate"}


def test_every_audit_decides_anew(crawl: Path, tmp_path: Path, capsys: Capture) -> None:
    target = against("folder", tmp_path / "target")
    audit(capsys, crawl, *FAST)
    before = (crawl / "manifest.csv").read_bytes()
    audit(capsys, crawl, *FAST, "--against", target)
    assert (crawl / "manifest.csv").read_bytes() != before
    audit(capsys, crawl, *FAST)
    assert (crawl / "manifest.csv").read_bytes() == before


def test_what_people_put_aside_stays_aside_and_what_they_spare_stays(
    crawl: Path, tmp_path: Path, capsys: Capture
) -> None:
    manifest = read_manifest(crawl)
    rows = {}
    for key, row in manifest.rows.items():
        cells = {"audit_spare": "yes" if row.origin in ("dog/copy.jpg", "dog/2.png") else "", "note": "mine"}
        state = REFUSED if row.origin == "dog/4.png" else KEPT
        rows[key] = Row(**{**vars(row), "state": state, "extra": cells})
    write_manifest(crawl, Manifest(rows, ("audit_spare", "note")))
    audit(capsys, crawl, *FAST, "--against", against("folder", tmp_path / "target"))
    audited = by_origin(crawl)
    assert {origin for origin, row in audited.items() if not row.kept} == {"dog/4.png", "cat/3.png", "cat/both.jpg"}
    assert audited["dog/2.png"].extra["audit_found"] == "leak"
    assert {row.extra["note"] for row in audited.values()} == {"mine"}


def test_training_does_not_see_what_was_taken_out(crawl: Path, tmp_path: Path, capsys: Capture, cache: Path) -> None:
    """Neither as a crawl nor as unlabeled images; nor the pictures of the contact sheet."""
    for label in ("cat", "dog"):
        for number in range(3):
            write(tmp_path / "labeled" / label / f"{number}.png", encoded(scene(100 * ord(label[0]) + number)))
    audit(capsys, crawl, *FAST, "--against", against("folder", tmp_path / "target"))
    as_web = folder_problem(tmp_path / "labeled", [], web=[crawl], size=32, cache=cache)
    as_pile = folder_problem(tmp_path / "labeled", [crawl], size=32, cache=cache)
    for problem in (as_web, as_pile):
        assert len(problem.task.unlabeled["crawl"]) == 8


def test_a_dry_run_touches_nothing(crawl: Path, capsys: Capture) -> None:
    def state() -> dict[str, tuple[int, bytes]]:
        files = [path for path in crawl.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    _, report, _ = audit(capsys, crawl, *FAST, "--dry-run")
    assert report["total"]["duplicates"] == 2
    assert report["sheet"] is None
    assert state() == before


def test_nothing_left_of_a_class_is_a_failure(crawl: Path, capsys: Capture) -> None:
    for number in range(5):
        file_of(crawl, f"cat/{number}.png").unlink()
    code, _, err = audit(capsys, crawl, *FAST)
    assert code == 1
    assert "no images left of cat" in err


def test_a_killed_audit_leaves_the_manifest_whole(crawl: Path) -> None:
    """It is killed at the moment at which the new manifest would get its name."""
    before = (crawl / "manifest.csv").read_bytes()
    code = (
        "import os, signal, pathlib\n"
        "old = pathlib.Path.replace\n"
        "def kill(self, target):\n"
        "    if target.name == 'manifest.csv': os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return old(self, target)\n"
        "pathlib.Path.replace = kill\n"
        "from ssdg.cli import call\n"
        f"call(['web', 'audit', {str(crawl)!r}, '--no-labels'])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], env={**os.environ}, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (crawl / "manifest.csv").read_bytes() == before


def test_a_custom_manifest_with_three_columns(tmp_path: Path, capsys: Capture) -> None:
    for number in range(3):
        write(tmp_path / "dog" / f"{number}.png", encoded(scene(number)))
    with (tmp_path / "manifest.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "class", "state"])
        writer.writerows([f"dog/{number}.png", "dog", "kept"] for number in range(3))
        writer.writerow(["../secret.png", "dog", "refused"])
    _, report, _ = audit(capsys, tmp_path, *FAST)
    assert report["total"]["kept"] == 3


def test_mistakes(crawl: Path, tmp_path: Path, complaint: Any) -> None:
    assert "ssdg web ingest" in complaint("web", "audit", tmp_path / "found")
    assert "is not a folder" in complaint("web", "audit", tmp_path / "none")
    assert "does not exist" in complaint("web", "audit", crawl, *FAST, "--against", tmp_path / "none")
    assert "does not exist" in complaint("web", "audit", crawl, *FAST, "--against", tmp_path / "none.npz")
    assert "choose from label-issues" in complaint("web", "audit", crawl, "--refuse", "labels")
    assert "--no-labels" in complaint("web", "audit", crawl, *FAST, "--refuse", "outliers")
