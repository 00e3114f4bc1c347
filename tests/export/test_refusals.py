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
from ssdg.export import exporter
from ssdg.export.graph import Graph, GraphOptions, trace
from ssdg.export.parity import compare, split_batches


def args(*values: object) -> list[str]:
    return [str(value) for value in values]


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
    assert call(args("export", run, "--format", kind, "-o", out)) == 1
    error = capsys.readouterr().err
    assert "error: the exported file differs from torch by 0.001" in " ".join(error.split())
    assert "no file was written" in error
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    if kind == "torch-export":
        assert call(args("export", run, "--format", kind, "-o", out, "--tolerance", 0.01)) == 0


def test_other_classes_are_refused_whatever_the_tolerance(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoiled(monkeypatch, 0.9)
    assert call(args("export", run, "--format", "torch-export", "-o", tmp_path / "m.pt2", "--tolerance", 10)) == 1


def test_a_file_that_says_nothing_finite_is_refused() -> None:
    probs = np.array([[0.6, 0.4]])
    parity = compare({"probs": probs}, {"probs": np.array([[np.nan, 0.4]], np.float32)})
    assert parity.worst == np.inf
    with pytest.raises(exporter.ParityError):
        exporter.require_parity(parity, 1e9)


def test_close_calls_may_fall_the_other_way() -> None:
    close, clear = np.array([[0.50001, 0.49999]]), np.array([[0.501, 0.499]])
    assert compare({"probs": close}, {"probs": close[:, ::-1]}).exchanged == 0
    assert compare({"probs": clear}, {"probs": clear[:, ::-1]}).exchanged == 1


def test_batches_are_one_an_odd_number_and_plain_ones() -> None:
    assert [len(part) for part in split_batches(pixels(100))] == [1, 7, 32, 32, 28]
    assert [len(part) for part in split_batches(pixels(8))] == [1, 7]
    few = list(split_batches(pixels(3)))
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
    command = ("export", run, "--format")
    assert "this model has no --network 3; choose from 1, 2, mean" in complaint(*command, "onnx", "--network", 3)
    assert "this model has no --network both" in complaint(*command, "onnx", "--network", "both")
    assert "leave out --reject or --network" in complaint(*command, "onnx", "--network", 1, "--reject")
    assert "ends in .onnx" in complaint(*command, "onnx", "-o", tmp_path / "model.pt2")
    assert "ends in .pt2" in complaint(*command, "torch-export", "-o", tmp_path)
    assert "--quantize int8 works only with onnx files" in complaint(*command, "torch-export", "--quantize", "int8")
    assert "--tolerance -1 is out of range" in complaint(*command, "onnx", "--tolerance", -1)
    assert "--tolerance nan is out of range" in complaint(*command, "onnx", "--tolerance", "nan")
    assert "with --quantize at most 1" in complaint(*command, "onnx", "--quantize", "int8", "--tolerance", 2)
    assert "needs a folder for the copy" in complaint(*command, "safetensors")
    for option in ("--reject", "--network=1", "--quantize=int8", "--preprocessing=beside", "--tolerance=1"):
        error = complaint(*command, "safetensors", option, "-o", tmp_path / "x")
        assert f"leave out {option.split('=')[0]}" in error
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.txt").write_text("x")
    assert "is not overwritten" in complaint(*command, "safetensors", "-o", tmp_path / "thesis")
    assert "contains no trained model" in complaint("export", tmp_path, "--format", "onnx")
    assert "Invalid value" in complaint(*command, "tflite")
    alone = ("export", evolved / "model", "--format", "onnx", "--quantize", "int8")
    assert "has no thumbnails; add --images" in complaint(*alone)
    (tmp_path / "empty").mkdir()
    assert "contains no image" in complaint(*command, "onnx", "--images", tmp_path / "empty")
    (tmp_path / "bad.png").write_text("x")
    assert "can be read" in complaint(*command, "onnx", "--images", tmp_path / "bad.png")
    assert not list(tmp_path.glob("*.onnx"))


def test_thresholds_that_are_not_there(run: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    old = shutil.copytree(run / "model", tmp_path / "old")
    card = json.loads((old / "model.json").read_text())
    (old / "model.json").write_text(json.dumps({**card, "reject": None}))
    assert "has no thresholds for --reject" in complaint("export", old, "--format", "onnx", "--reject")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_extra_is_reported(package: str, run: Path, monkeypatch: pytest.MonkeyPatch, complaint) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(sys.modules, package, None)
    assert "pip install 'ssdg[export]'" in complaint("export", run, "--format", "onnx")


def test_a_method_that_cannot_be_followed(model: Model) -> None:
    class Fixed:
        nets, opts = model.learner.nets, model.learner.opts

        def logits(self, x: torch.Tensor) -> torch.Tensor:
            return model.learner.logits(x).view(2, len(x), 3)  # the number of images becomes a constant

    fixed = Model(model.classes, 32, Fixed(), model.device)  # type: ignore[arg-type]
    with pytest.raises(ssdg.UserError, match=r"write x.shape\[0\] and -1 in view instead of len\(x\)"):
        trace(fixed, GraphOptions())
