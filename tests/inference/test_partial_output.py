"""Resuming a partial output: no image is classified twice, and no output of another job is adopted."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from PIL import Image
from pyarrow import parquet

from exported import write_colors
from predicted import SUFFIXES, left, predict_args
from ssdg.artifact.load import Model
from ssdg.cli import call
from ssdg.inference.onnx_model import OnnxClassifier


class Broken(Exception):
    """Stands for whatever ends a process."""


def interrupted(monkeypatch: pytest.MonkeyPatch, kind: type, command: list[str], batches: int = 5) -> None:
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
            call(command)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_not_classified_again(
    suffix: str, model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / f"out{suffix}"
    part = tmp_path / f"out{suffix}.part"
    interrupted(monkeypatch, OnnxClassifier, predict_args(model, photos, out=out), batches=6)  # one is a trial
    text = part.read_text(encoding="utf-8")
    assert text.count(".png") == 5 * 8
    lines = text.splitlines(keepends=True)
    first = 1 if suffix == ".csv" else 0
    for name in ("red", "green", "blue"):
        lines[first] = lines[first].replace(name, "seen")
    part.write_text("".join(lines), encoding="utf-8", newline="")
    assert call(predict_args(model, photos, out=out)) == 0
    if suffix == ".csv":
        rows = list(csv.DictReader(out.open(newline="")))
    elif suffix == ".jsonl":
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        rows = parquet.read_table(out).to_pylist()
    assert len(rows) == 200
    assert [number for number, row in enumerate(rows) if "seen" in row.values()] == [0]


def test_a_run_of_torch_resumes_as_well(
    evolved: Path, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "out.csv", tmp_path / "whole.csv"
    more = ("--device", "cpu", "--threads", 1)
    assert call(predict_args(evolved, world / "night", out=whole, more=more)) == 0
    interrupted(monkeypatch, Model, predict_args(evolved, world / "night", out=out, more=more), batches=1)
    assert len((tmp_path / "out.csv.part").read_text().splitlines()) == 9
    assert call(predict_args(evolved, world / "night", out=out, more=more)) == 0
    assert out.read_bytes() == whole.read_bytes()


def test_auto_keeps_the_batch_that_a_part_was_begun_with(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["predict", str(model), str(photos), "-o", str(tmp_path / "out.csv")]
    monkeypatch.setattr("ssdg.inference.onnx_model.free_memory", lambda: 4 * 64 * 8 * 8 * 12 * 16)
    interrupted(monkeypatch, OnnxClassifier, command)
    description = tmp_path / "out.csv.part.json"
    assert json.loads(description.read_text())["batch"] == 16
    monkeypatch.setattr("ssdg.inference.onnx_model.free_memory", lambda: 1 << 40)
    interrupted(monkeypatch, OnnxClassifier, command, batches=3)
    assert json.loads(description.read_text())["batch"] == 16
    assert (tmp_path / "out.csv.part").read_text().count(".png") == (4 + 2) * 16


def test_partial_files_of_other_commands_are_refused(
    model: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint
) -> None:  # type: ignore[no-untyped-def]
    out, part, description = (tmp_path / f"out.csv{end}" for end in ("", ".part", ".part.json"))
    command = predict_args(model, photos, out=out)
    interrupted(monkeypatch, OnnxClassifier, command)
    content = part.read_bytes()
    other = write_colors(tmp_path / "other.onnx", learner="mcd")
    assert "was started with another model; add --anew to start over" in complaint(
        *predict_args(other, photos, out=out)
    )
    assert "was started with other paths" in complaint(*predict_args(model, photos, photos, out=out))
    assert "was started with another --batch" in complaint(*predict_args(model, photos, out=out, batch=9))
    assert "was started with another --reject" in complaint(*predict_args(model, photos, out=out, reject=0.5))
    text = description.read_text()
    reason = "cannot be resumed, because 'out.csv.part.json' is missing or damaged; add --anew"
    for bad in (
        "",
        "{",
        "[]",
        "{}",
        text.replace('"batch": 8', '"batch": 0'),
        text.replace('"batch": 8', '"batch": "x"'),
    ):
        description.write_text(bad)
        assert reason in complaint(*[arg for arg in command if arg not in ("--batch", "8")])
    description.unlink()
    assert reason in complaint(*command)
    assert part.read_bytes() == content
    assert call([*command, "--anew"]) == 0
    assert left(tmp_path) == {"out.csv", "other.onnx"}


def test_images_that_came_or_went_meanwhile(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint
) -> None:  # type: ignore[no-untyped-def]
    folder, out = tmp_path / "in", tmp_path / "out.jsonl"
    folder.mkdir()
    for number in range(60):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / f"{number:02}.png")
    command = predict_args(model, folder, out=out)
    interrupted(monkeypatch, OnnxClassifier, command, batches=4)  # a trial, and 24 images
    (folder / "10.png").rename(folder / "99.png")
    assert f"row 11: '{folder}/10.png' before, '{folder}/11.png' now); add --anew" in complaint(*command)
    (folder / "99.png").rename(folder / "10.png")
    Image.new("RGB", (8, 8), (0, 200, 0)).save(folder / "50a.png")  # behind what is written
    assert call(command) == 0
    assert out.read_text().count(".png") == 61
    interrupted(monkeypatch, OnnxClassifier, command, batches=4)
    for path in sorted(folder.iterdir())[20:]:
        path.unlink()
    assert "before, no image now); add --anew" in complaint(*command)
    assert out.read_text().count(".png") == 61
