"""Marks of web-labels and outliers, the table of OOD images, and the contact sheet."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crawls import Capture, by_origin, ingest, run
from PIL import Image
from scenes import scene

from data.pictures import encoded, write
from ssdg.data.sources.manifest import read_manifest
from ssdg.web.audit.label_issues import mark_images

cleanlab = pytest.importorskip("cleanlab", reason="the extra web is not installed")
NET = ("--backbone", "digits-cnn", "--size", 32)


def clusters(counts: dict[str, int], seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Features around one direction for each label."""
    rng = np.random.default_rng(seed)
    labels = [label for label, count in counts.items() for _ in range(count)]
    centers = {label: np.eye(20)[number] * 3 for number, label in enumerate(counts)}
    features = np.stack([centers[label] + 0.3 * rng.normal(size=20) for label in labels])
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32), labels


def test_planted_wrong_labels_and_outliers_are_marked() -> None:
    features, labels = clusters({"a": 30, "b": 30, "c": 30})
    wrong = [3, 4, 5, 40, 41, 42]
    for number in wrong:
        labels[number] = "b" if number < 30 else "c"
    features[70] = np.eye(20)[19]
    marks = mark_images(features, labels, outlier_rate=1.2 / 90)
    issues = set(np.flatnonzero(marks.issue).tolist()) - {70}
    assert issues <= set(wrong)
    assert len(issues) >= 5  # confident learning estimates how many there are, and may be off by one
    assert (marks.suggested[4], marks.suggested[40], marks.suggested[0]) == ("a", "b", "")
    assert np.flatnonzero(marks.outlier).tolist() == [70]
    assert marks.quality[3] < 0.5 < marks.quality[0]


def test_few_images_and_no_web_label() -> None:
    features, labels = clusters({"a": 8, "b": 3, "c": 1, "": 4})
    marks = mark_images(features, labels, 0.1)
    notes = " ".join(marks.notes)
    assert "c: only one image" in notes
    assert "b: fewer than 5 images" in notes
    assert [quality is None for quality in marks.quality] == [label in ("c", "") for label in labels]
    assert None not in marks.outlier_score


@pytest.mark.parametrize("counts", [{}, {"a": 1}, {"a": 1, "b": 1}, {"a": 9}])
def test_too_little_data_to_judge_is_reported(counts: dict[str, int]) -> None:
    features, labels = clusters(counts) if counts else (np.zeros((0, 1), np.float32), [])
    marks = mark_images(features, labels, 0.1)
    assert not marks.issue.any()
    assert "label issues were not checked" in " ".join(marks.notes)


def tinted_crawl(root: Path, wrong: int = 0) -> Path:
    """Noisy red dogs and blue cats; some of the dogs lie among the cats."""
    for number in range(14):
        for kind, (label, tint) in enumerate((("dog", (255, 90, 90)), ("cat", (90, 90, 255)))):
            image = scene(2 * number + kind).resize((32, 32))
            folder = "cat" if label == "dog" and number < wrong else label
            tinted = Image.blend(image, Image.new("RGB", (32, 32), tint), 0.7)
            write(root / folder / f"{label}{number}.png", encoded(tinted))
    return root


@pytest.fixture
def crawl(tmp_path: Path, capsys: Capture) -> Path:
    ingest(capsys, tinted_crawl(tmp_path / "found", wrong=2), tmp_path / "crawl")
    return tmp_path / "crawl"


def audit(capsys: Capture, folder: Path, cache: Path, *more: object) -> tuple[int, dict[str, Any], str]:
    return run(
        capsys,
        "web",
        "audit",
        folder,
        "--json",
        "--cache",
        cache,
        *NET,
        *(more if "--weights" in more else ("--weights", "none", *more)),
    )


def test_marks_do_not_take_out_unless_asked(crawl: Path, cache: Path, capsys: Capture) -> None:
    _, report, _ = audit(capsys, crawl, cache, "--outlier-rate", 0.1)
    assert report["total"]["outliers"] == 2
    assert report["total"]["kept"] == 28
    rows = read_manifest(crawl).rows.values()
    assert sum(row.extra["audit_outlier"] == "yes" for row in rows) == 2
    assert all(0 <= float(row.extra["audit_label_quality"]) <= 1 for row in rows)
    _, report, _ = audit(capsys, crawl, cache, "--outlier-rate", 0.1, "--refuse", "outliers")
    assert report["total"]["kept"] == 26
    assert sum(row.reason == "outlier" for row in read_manifest(crawl).rows.values()) == 2


def test_the_same_audit_writes_the_same_bytes(crawl: Path, cache: Path, capsys: Capture, tmp_path: Path) -> None:
    import torch

    from ssdg.models.backbones import build_backbone

    torch.save(build_backbone("digits-cnn").state_dict(), tmp_path / "w.pth")
    outputs = []
    for _ in range(2):
        audit(capsys, crawl, cache, "--weights", tmp_path / "w.pth")
        outputs.append(
            [path.read_bytes() for path in (crawl / "manifest.csv", crawl / "audit" / "contact-sheet.html")]
        )
    assert outputs[0] == outputs[1]


def test_features_of_a_trained_run(crawl: Path, evolved: Path, cache: Path, capsys: Capture) -> None:
    code, report, _ = run(capsys, "web", "audit", crawl, "--json", "--run", evolved, "--cache", cache)
    assert code == 0
    assert report["total"]["outliers"] == 2


def annotations(path: Path, rows: list[tuple[str, str]], column: str) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("path", column), *rows])
    return path


def test_the_table_of_ood_images(crawl: Path, cache: Path, capsys: Capture, tmp_path: Path) -> None:
    """By origin and by path; the score has no information here, the counts are by hand."""
    by_path = by_origin(crawl)
    rows = [
        (row.path if number % 2 else origin, "1" if "dog1" in origin else "0")
        for number, (origin, row) in enumerate(by_path.items())
    ]
    _, report, _ = audit(
        capsys, crawl, cache, "--annotations", annotations(tmp_path / "a.csv", [*rows, ("x", "1")], "ood")
    )
    # dog1 and dog10 to dog13; dog1 was found as a cat
    assert report["ood"] == [
        {"label": "cat", "images": 16, "ood": 1, "ood_percent": 6.25},
        {"label": "dog", "images": 12, "ood": 4, "ood_percent": 33.33},
        {"label": "all", "images": 28, "ood": 5, "ood_percent": 17.86},
    ]
    assert 0 <= report["agreement"]["outlier_auroc"] <= 100
    assert "1 paths in 'a.csv'" in " ".join(report["notes"])


def test_true_classes_as_annotations(crawl: Path, cache: Path, capsys: Capture, tmp_path: Path) -> None:
    rows = [(origin, re.findall(r"/(cat|dog)", f"{origin}")[-1]) for origin in by_origin(crawl)]
    rows = [(origin, "zebra" if origin == "dog/dog5.png" else truth) for origin, truth in rows]
    _, report, _ = audit(capsys, crawl, cache, "--annotations", annotations(tmp_path / "a.csv", rows, "class"))
    assert report["agreement"]["wrong_web_labels"] == 2
    assert report["ood"][-1]["ood"] == 1


def test_annotations_that_cannot_be_used(crawl: Path, tmp_path: Path, complaint: Any) -> None:
    def refused(rows: list[tuple[str, str]], column: str) -> str:
        path = annotations(tmp_path / "a.csv", rows, column)
        return complaint("web", "audit", crawl, "--no-labels", "--annotations", path)  # type: ignore[no-any-return]

    before = (crawl / "manifest.csv").read_bytes()
    assert "none of the 1 paths" in refused([("x", "1")], "ood")
    assert "use 1 or 0" in refused([("dog/dog5.png", "maybe")], "ood")
    assert "needs the column path" in refused([("dog/dog5.png", "1")], "color")
    assert (crawl / "manifest.csv").read_bytes() == before


def test_without_cleanlab_one_sentence_says_what_to_do(
    crawl: Path, complaint: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ssdg.web.audit.label_issues.find_spec", lambda name: None)
    message = complaint("web", "audit", crawl, *NET, "--weights", "none")
    assert "pip install 'ssdg[web]'" in message
    assert "--no-labels" in message


def test_the_contact_sheet_escapes_what_strangers_named(tmp_path: Path, capsys: Capture) -> None:
    nasty = "<script>alert(1)<"
    for number in range(3):
        write(tmp_path / "found" / nasty / f"{number}.png", encoded(scene(number)))
        write(tmp_path / "found" / "dog & cat" / f"{number}.png", encoded(scene(10 + number)))
    write(tmp_path / "target" / '"><img src=x onerror=alert(2)>.png', encoded(scene(1).resize((50, 50))))
    ingest(capsys, tmp_path / "found", tmp_path / "crawl")
    run(capsys, "web", "audit", tmp_path / "crawl", "--json", "--no-labels", "--against", tmp_path / "target")
    page = (tmp_path / "crawl" / "audit" / "contact-sheet.html").read_text()
    assert "<script" not in page
    assert "onerror=alert(2)>" not in page
    assert "&lt;script&gt;alert(1)&lt;" in page
    assert not re.search(r"(src|href)=[\"'](?!data:image/jpeg;base64,)", page), "nothing is loaded from elsewhere"
    assert page.count("<img ") == 6
    with Image.open(tmp_path / "crawl" / "audit" / "contact-sheet-1.png") as picture:
        assert picture.width > 1000


def test_pages_of_an_earlier_audit_go(crawl: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def pages() -> list[str]:
        return sorted(path.name for path in (crawl / "audit").glob("*.png"))

    monkeypatch.setattr("ssdg.web.audit.contact_sheet._MAX_PAGE_HEIGHT", 10)
    run(capsys, "web", "audit", crawl, "--json", "--no-labels")
    assert pages() == ["contact-sheet-1.png", "contact-sheet-2.png"]
    monkeypatch.undo()
    run(capsys, "web", "audit", crawl, "--json", "--no-labels")
    assert pages() == ["contact-sheet-1.png"]


def test_the_tables_fit_a_terminal(crawl: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from ssdg.cli import call

    monkeypatch.setenv("COLUMNS", "80")
    call(["web", "audit", str(crawl), "--no-labels"])
    output = capsys.readouterr().out
    assert "…" not in output
    assert "contact-sheet.html" in output
