"""`ssdg export --quantize int8`: what is in 8 bits, what it is measured on, and when it is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from ssdg.cli import call
from ssdg.export import exporter
from ssdg.export.graph import GraphOptions
from ssdg.export.onnx_files import METADATA_KEY, onnx_session
from ssdg.export.parity import CheckImages, make_noise, to_graph_input
from ssdg.export.quantize import find_end_nodes, speed_ratio, split_images


def args(*values: object) -> list[str]:
    return [str(value) for value in values]


@pytest.fixture(scope="module")
def plain(evolved: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("plain") / "model.onnx"
    assert call(args("export", evolved, "--format", "onnx", "-o", out)) == 0
    return out


def test_a_quantized_file(
    evolved: Path, plain: Path, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "small.onnx"
    images = (world / "night", world / "photo", world / "neon")
    command = args("export", evolved, "--format", "onnx", "--quantize", "int8", "--images", *images)
    capsys.readouterr()
    assert call([*command, *args("-o", out, "--reject", "--tolerance", 1, "--json")]) == 0
    report = json.loads(capsys.readouterr().out)["int8"]
    assert report["images"] == 36
    assert report["calibrated_on"] == 36
    assert report["on_others"]
    assert 0 <= report["agreement"] <= 1
    assert 0 < report["difference"] < 0.5
    assert {*report["accuracy"]} == {"fp32", "int8"}
    assert report["speed"]["times"] > 0
    assert report["bytes"]["int8"] == out.stat().st_size < 0.5 * plain.stat().st_size
    session = onnx_session(out.read_bytes(), 1)
    metadata = json.loads(session.get_modelmeta().custom_metadata_map[METADATA_KEY])
    assert metadata["classes"] == ["bar", "disc", "ring"]
    assert [output.name for output in session.get_outputs()] == ["probs", "score"]
    for count in (1, 5):
        probs, score = session.run(None, {"images": make_noise(32).pixels[:count]})
        assert np.allclose(probs.sum(1), 1, atol=1e-5)
        assert score.shape == (count,)
    kinds = Counter(str(t.data_type) for t in onnx.load(out).graph.initializer if len(t.dims) == 4 and t.dims[0] > 1)
    assert kinds == {str(onnx.TensorProto.INT8): 6, str(onnx.TensorProto.FLOAT): 2}  # first ones stay as they are


def test_the_ends_of_both_networks_are_left_alone(plain: Path) -> None:
    graph = onnx.load(plain).graph
    kinds = {node.name: node.op_type for node in graph.node}
    assert Counter(kinds[name] for name in find_end_nodes(graph)) == {"Conv": 2, "Gemm": 2}


def test_words_for_people(evolved: Path, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = args("export", evolved, "--format", "onnx", "--quantize", "int8", "--images", world / "night")
    assert call([*command, *args("-o", tmp_path / "small.onnx", "--tolerance", 1)]) == 0
    out = capsys.readouterr().out
    assert "int8 predicts the same class as torch in fp32 for " in out
    assert "% of 24 images; its ranges come from 24 images (the same images" in out
    assert "accuracy (%): " in out
    assert "times as fast as fp32" in out


def test_a_file_of_other_classes_is_refused(
    evolved: Path, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def turned(content: bytes, *_: object) -> bytes:
        """The same file with 1 - p for p: its likeliest class is another."""
        proto = onnx.load_from_string(content)
        for node in proto.graph.node:
            node.output[:] = ["plain" if name == "probs" else name for name in node.output]
        proto.graph.initializer.append(onnx.helper.make_tensor("one", onnx.TensorProto.FLOAT, [1], [1.0]))
        proto.graph.node.append(onnx.helper.make_node("Sub", ["one", "plain"], ["probs"]))
        return bytes(proto.SerializeToString())

    monkeypatch.setattr(exporter, "int8_bytes", turned)
    out = tmp_path / "small.onnx"
    command = args("export", evolved, "--format", "onnx", "--quantize", "int8", "-o", out)
    assert call(command) == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "images (allowed: 10 %); no file was written" in error
    assert not out.exists()
    assert call([*command, "--tolerance", "1"]) == 0


def test_ranges_and_figures_are_of_different_images() -> None:
    many = CheckImages(np.arange(400, dtype=np.uint8)[:, None, None, None].repeat(3, 3), "", np.arange(400) % 3)
    ranges, rest = split_images(many)
    assert len(ranges) == 128
    assert len(rest.pixels) == 200
    assert not {*ranges[:100].ravel().tolist()} & {*rest.pixels[:100].ravel().tolist()}
    assert rest.truth is not None
    assert rest.truth.tolist() == [n % 3 for n in range(1, 400, 2)]
    few = CheckImages(many.pixels[:20], "")
    assert split_images(few)[1] is few


def test_agreement_is_what_is_required() -> None:
    exporter.require_agreement({"agreement": 0.9, "images": 10}, 0.1)
    with pytest.raises(exporter.ParityError, match=r"assigns another class to 20.0 % of 10 images"):
        exporter.require_agreement({"agreement": 0.8, "images": 10}, 0.1)


def test_speed_is_a_ratio_of_medians(plain: Path) -> None:
    ratio, batch = speed_ratio(plain.read_bytes(), plain.read_bytes(), make_noise(32).pixels, GraphOptions(), 1)
    assert ratio > 0
    assert batch == 32


def test_separate_preprocessing_takes_floats() -> None:
    converted = to_graph_input(np.full((2, 4, 4, 3), 255, np.uint8), GraphOptions(has_preprocessing=False))
    assert converted.dtype == np.float32
    assert converted.shape == (2, 3, 4, 4)
    assert (converted == 1).all()
