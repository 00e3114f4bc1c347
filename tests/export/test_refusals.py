"""`ssdg export`: files that differ from torch are not written, and what is refused before."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ssdg
from ssdg.artifact.load import Model
from ssdg.cli import call
from ssdg.export import exporter as making
from ssdg.export.graph import Form, Graph, trace
from ssdg.export.parity import batches, compare


def words(*given: object) -> list[str]:
    return [str(word) for word in given]


def pixels(count: int = 5) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(0, 256, (count, 32, 32, 3), np.uint8)


def spoiled(monkeypatch: pytest.MonkeyPatch, by: float) -> None:
    """A graph whose probabilities are off, as a fault of an exporter would make them."""
    whole = Graph.forward

    def forward(self: Graph, images: torch.Tensor) -> tuple[torch.Tensor, ...]:
        probs, *rest = whole(self, images)
        return (probs + by * torch.tensor([1.0, -1.0, 0.0]), *rest)

    monkeypatch.setattr(Graph, "forward", forward)


@pytest.mark.parametrize("kind", ["onnx", "torch-export"])
def test_a_file_that_differs_is_not_written(
    kind: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spoiled(monkeypatch, 1e-3)
    out = tmp_path / f"old.{'onnx' if kind == 'onnx' else 'pt2'}"
    out.write_text("old")
    assert call(words("export", run, "--format", kind, "-o", out)) == 1
    told = capsys.readouterr().err
    assert "error: the exported file differs from torch by 0.001" in " ".join(told.split())
    assert "no file was written" in told
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    if kind == "torch-export":
        assert call(words("export", run, "--format", kind, "-o", out, "--tolerance", 0.01)) == 0


def test_other_classes_are_refused_whatever_the_tolerance(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled(monkeypatch, 0.9)
    given = words("export", run, "--format", "torch-export", "-o", tmp_path / "m.pt2", "--tolerance", 10)
    assert call(given) == 1


def test_a_file_that_says_nothing_finite_is_refused() -> None:
    probs = np.array([[0.6, 0.4]])
    parity = compare({"probs": probs}, {"probs": np.array([[np.nan, 0.4]], np.float32)})
    assert parity.worst == np.inf
    with pytest.raises(making.Unfaithful):
        making.require_parity(parity, 1e9)


def test_close_calls_may_fall_the_other_way() -> None:
    close, clear = np.array([[0.50001, 0.49999]]), np.array([[0.501, 0.499]])
    assert compare({"probs": close}, {"probs": close[:, ::-1]}).exchanged == 0
    assert compare({"probs": clear}, {"probs": clear[:, ::-1]}).exchanged == 1


def test_batches_are_one_an_odd_number_and_plain_ones() -> None:
    assert [len(part) for part in batches(pixels(100))] == [1, 7, 32, 32, 28]
    assert [len(part) for part in batches(pixels(8))] == [1, 7]
    few = list(batches(pixels(3)))
    assert [len(part) for part in few] == [1, 7]
    assert np.array_equal(few[1][2], pixels(3)[0])


@pytest.mark.parametrize(
    "spoil", ['{"tile": 48}', '{"tile": 48, "columns": 20, "domains": {"a": {"sprite": "../x"}}}']
)
def test_damaged_thumbnails(spoil: str, run: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    folder = shutil.copytree(run, tmp_path / "run")
    (folder / "samples" / "index.json").write_text(spoil)
    assert "the thumbnails in" in complaint("export", folder, "--format", "onnx")


def test_mistakes(run: Path, evolved: Path, world: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    here = ("export", run, "--format")
    assert "--network 3 is none of this model's; give 1 or 2 or mean" in complaint(*here, "onnx", "--network", 3)
    assert "--network both is none" in complaint(*here, "onnx", "--network", "both")
    assert "leave out --reject or --network" in complaint(*here, "onnx", "--network", 1, "--reject")
    assert "ends in .onnx" in complaint(*here, "onnx", "-o", tmp_path / "model.pt2")
    assert "ends in .pt2" in complaint(*here, "torch-export", "-o", tmp_path)
    assert "--quantize int8 is for onnx files" in complaint(*here, "torch-export", "--quantize", "int8")
    assert "--tolerance -1 is none" in complaint(*here, "onnx", "--tolerance", -1)
    assert "--tolerance nan is none" in complaint(*here, "onnx", "--tolerance", "nan")
    assert "with --quantize up to 1" in complaint(*here, "onnx", "--quantize", "int8", "--tolerance", 2)
    assert "needs a folder to copy the model to" in complaint(*here, "safetensors")
    for word in ("--reject", "--network=1", "--quantize=int8", "--preprocessing=beside", "--tolerance=1"):
        told = complaint(*here, "safetensors", word, "-o", tmp_path / "x")
        assert f"leave out {word.split('=')[0]}" in told
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.txt").write_text("x")
    assert "is not overwritten" in complaint(*here, "safetensors", "-o", tmp_path / "thesis")
    assert "holds no trained model" in complaint("export", tmp_path, "--format", "onnx")
    assert "Invalid value" in complaint(*here, "tflite")
    alone = ("export", evolved / "model", "--format", "onnx", "--quantize", "int8")
    assert "has no thumbnails; give --images" in complaint(*alone)
    (tmp_path / "empty").mkdir()
    assert "holds no image" in complaint(*here, "onnx", "--images", tmp_path / "empty")
    (tmp_path / "bad.png").write_text("x")
    assert "can be read" in complaint(*here, "onnx", "--images", tmp_path / "bad.png")
    assert not list(tmp_path.glob("*.onnx"))


def test_thresholds_that_are_not_there(run: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    old = shutil.copytree(run / "model", tmp_path / "old")
    card = json.loads((old / "model.json").read_text())
    (old / "model.json").write_text(json.dumps({**card, "reject": None}))
    assert "has no thresholds for --reject" in complaint("export", old, "--format", "onnx", "--reject")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_extra_is_told(package: str, run: Path, monkeypatch: pytest.MonkeyPatch, complaint) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, package, None)
    assert "pip install 'ssdg[export]'" in complaint("export", run, "--format", "onnx")


def test_a_method_that_cannot_be_followed(model: Model) -> None:
    class Fixed:
        nets, opts = model.learner.nets, model.learner.opts

        def logits(self, x: torch.Tensor) -> torch.Tensor:
            return model.learner.logits(x).view(2, len(x), 3)  # the number of images becomes a constant

    fixed = Model(model.classes, 32, Fixed(), model.device)  # type: ignore[arg-type]
    with pytest.raises(ssdg.UserError, match=r"write x.shape\[0\] and -1 in view instead of len\(x\)"):
        trace(fixed, Form())
