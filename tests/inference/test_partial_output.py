"""A part of a file is gone on with: nothing is classified twice, and no wrong part is taken over."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from PIL import Image
from pyarrow import parquet

from exported import write_colours
from predicted import SUFFIXES, left, words
from ssdg.artifact.load import Model
from ssdg.cli import call
from ssdg.inference.onnx_model import OnnxClassifier


class Broken(Exception):
    """Stands for whatever ends a process."""


def interrupted(monkeypatch: pytest.MonkeyPatch, kind: type, given: list[str], batches: int = 5) -> None:
    """Run a command that ends in the middle."""
    real, count = kind.answer, 0

    def answer(self: object, images: object) -> object:
        nonlocal count
        count += 1
        if count > batches:
            raise Broken
        return real(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "answer", answer)
        with pytest.raises(Broken):
            call(given)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_not_classified_again(
    suffix: str, model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / f"out{suffix}"
    part = tmp_path / f"out{suffix}.part"
    interrupted(monkeypatch, OnnxClassifier, words(model, photos, out=out), batches=6)  # one is a trial
    text = part.read_text(encoding="utf-8")
    assert text.count(".png") == 5 * 8
    lines = text.splitlines(keepends=True)
    first = 1 if suffix == ".csv" else 0
    for word in ("red", "green", "blue"):
        lines[first] = lines[first].replace(word, "seen")
    part.write_text("".join(lines), encoding="utf-8", newline="")
    assert call(words(model, photos, out=out)) == 0
    if suffix == ".csv":
        rows = list(csv.DictReader(out.open(newline="")))
    elif suffix == ".jsonl":
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        rows = parquet.read_table(out).to_pylist()
    assert len(rows) == 200
    assert [number for number, row in enumerate(rows) if "seen" in row.values()] == [0]


def test_a_run_of_torch_goes_on_as_well(
    evolved: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "out.csv", tmp_path / "whole.csv"
    more = ("--device", "cpu", "--threads", 1)
    assert call(words(evolved, world / "night", out=whole, more=more)) == 0
    interrupted(monkeypatch, Model, words(evolved, world / "night", out=out, more=more), batches=1)
    assert len((tmp_path / "out.csv.part").read_text().splitlines()) == 9
    assert call(words(evolved, world / "night", out=out, more=more)) == 0
    assert out.read_bytes() == whole.read_bytes()


def test_auto_keeps_the_batch_that_a_part_was_begun_with(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["predict", str(model), str(photos), "-o", str(tmp_path / "out.csv")]
    monkeypatch.setattr("ssdg.inference.onnx_model.free_memory", lambda: 4 * 64 * 8 * 8 * 12 * 16)
    interrupted(monkeypatch, OnnxClassifier, given)
    about = tmp_path / "out.csv.part.json"
    assert json.loads(about.read_text())["batch"] == 16
    monkeypatch.setattr("ssdg.inference.onnx_model.free_memory", lambda: 1 << 40)
    interrupted(monkeypatch, OnnxClassifier, given, batches=3)
    assert json.loads(about.read_text())["batch"] == 16
    assert (tmp_path / "out.csv.part").read_text().count(".png") == (4 + 2) * 16


def test_other_parts_are_not_taken_over(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint
) -> None:  # type: ignore[no-untyped-def]
    out, part, about = (tmp_path / f"out.csv{end}" for end in ("", ".part", ".part.json"))
    given = words(model, photos, out=out)
    interrupted(monkeypatch, OnnxClassifier, given)
    kept = part.read_bytes()
    other = write_colours(tmp_path / "other.onnx", learner="mcd")
    assert "was begun with another model; give --anew to begin again" in complaint(*words(other, photos, out=out))
    assert "was begun with other paths" in complaint(*words(model, photos, photos, out=out))
    assert "was begun with another --batch" in complaint(*words(model, photos, out=out, batch=9))
    assert "was begun with another --reject" in complaint(*words(model, photos, out=out, reject=0.5))
    told = about.read_text()
    for bad in (
        "",
        "{",
        "[]",
        "{}",
        told.replace('"batch": 8', '"batch": 0'),
        told.replace('"batch": 8', '"batch": "x"'),
    ):
        about.write_text(bad)
        assert "nothing tells what it belongs to" in complaint(*[w for w in given if w not in ("--batch", "8")])
    about.unlink()
    assert "nothing tells what it belongs to" in complaint(*given)
    assert part.read_bytes() == kept
    assert call([*given, "--anew"]) == 0
    assert left(tmp_path) == {"out.csv", "other.onnx"}


def test_images_that_came_or_went_meanwhile(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint
) -> None:  # type: ignore[no-untyped-def]
    folder, out = tmp_path / "in", tmp_path / "out.jsonl"
    folder.mkdir()
    for number in range(60):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number:02}.png")
    given = words(model, folder, out=out)
    interrupted(monkeypatch, OnnxClassifier, given, batches=4)  # a trial, and 24 images
    (folder / "10.png").rename(folder / "99.png")
    told = complaint(*given)
    assert f"row 11: '{folder}/10.png' then, '{folder}/11.png' now); give --anew" in told
    (folder / "99.png").rename(folder / "10.png")
    Image.new("RGB", (8, 8), (0, 200, 0)).save(folder / "50a.png")  # behind what is written
    assert call(given) == 0
    assert out.read_text().count(".png") == 61
    interrupted(monkeypatch, OnnxClassifier, given, batches=4)
    for path in sorted(folder.iterdir())[20:]:
        path.unlink()
    assert "then, no image now); give --anew" in complaint(*given)
    assert out.read_text().count(".png") == 61
