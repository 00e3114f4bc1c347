"""Exported files in use: right answers, one sentence for every file that is none, and no torch."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from exported import CLASSES, SIZE, card, color_graph, model_of, write_colors, write_photos
from ssdg import load_onnx
from ssdg.cli import call
from ssdg.errors import UserError
from ssdg.inference.onnx_model import DamagedError, has_external_data


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_photos(tmp_path / "photos")


def solid(*colors: tuple[int, int, int]) -> np.ndarray:
    return np.stack([np.full((SIZE, SIZE, 3), color, np.uint8) for color in colors])


@pytest.mark.parametrize("kind", ["uint8-nhwc", "float32-nchw"])
def test_answers_by_hand(kind: str, tmp_path: Path) -> None:
    model = load_onnx(write_colors(tmp_path / "model.onnx", kind=kind), "cpu", threads=1)
    assert (model.classes, model.size) == (tuple(CLASSES), SIZE)
    answer = model.answer(solid((255, 0, 0), (0, 51, 0)))
    for row, z in zip(range(2), ([4, 0, 0], [0, 0.8, 0]), strict=True):
        assert answer.probs[row] == pytest.approx(np.exp(z) / np.exp(z).sum(), abs=1e-6)
        assert answer.scores is not None
        assert answer.scores[row] == pytest.approx(np.log(np.exp(z).sum()) - np.mean(z) - np.log(3), abs=1e-6)


def test_predict_from_a_file(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_colors(tmp_path / "model.onnx")
    (photos / "broken.jpg").write_text("no image")
    out = tmp_path / "out.csv"
    assert call(["predict", str(model), str(photos), "-o", str(out), "--reject", "0.5"]) == 0
    rows = {Path(row["path"]).stem: row for row in csv.DictReader(out.open())}
    assert {name: row["class"] for name, row in rows.items()} == {
        **{"red": "red", "green": "green", "blue": "blue", "grey": "unknown", "broken": ""}
    }
    assert rows["red"]["confidence"] == f"{np.exp(4) / (np.exp(4) + 2):.6f}"
    assert rows["grey"]["guess"] == "red"  # all are as likely: the first
    assert rows["broken"]["error"] == "not an image in a known format"
    assert "4 images classified into" in capsys.readouterr().out


def test_evaluate_from_a_file(photos: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_colors(tmp_path / "model.onnx")
    for name in ("red", "green", "blue", "ood"):
        (photos / name).mkdir()
        (photos / f"{name if name != 'ood' else 'grey'}.png").rename(photos / name / "1.png")
    Image.new("RGB", (9, 9), (0, 0, 255)).save(photos / "green" / "2.png")
    command = ["evaluate", str(model), "--data", str(photos), "--cache", str(cache), "--json", "--reject", "0.5"]
    assert call(command) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["accuracy"] == {"mean": 75.0}
    assert scores["per_class"]["green"] == {"images": 2, "accuracy": 50.0}
    assert scores["reject"]["ood"]["recall"] == 100.0


def test_without_scores_everything_works_but_reject(photos: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    model = write_colors(tmp_path / "model.onnx", with_score=False)
    out = tmp_path / "out.jsonl"
    assert call(["predict", str(model), str(photos), "-o", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 4
    assert "or it was exported without scores" in complaint("predict", model, photos, "-o", out, "--reject")


def saved(path: Path, metadata: Any, graph: onnx.GraphProto | None = None) -> Path:
    onnx.save(model_of(graph or color_graph(), metadata), path)
    return path


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "it has no property 'ssdg'"),
        ("{", "Expecting property name"),
        ("[]", "Input should be a valid dictionary"),
        (card(format=2), "format: Input should be less than or equal to 1"),
        (card(classes=["red", "green"]), r"its 'probs' is tensor\(float\) \['N', 3\], not tensor\(float\)"),
        (card(classes=["red", "red", "blue"]), "class names must be unique"),
        (card(classes=["one"]), "classes: "),
        (card(size=16), r"its 'images' is tensor\(uint8\) \['N', 8, 8, 3\]"),
        (card(size=10**9), "size: "),
        (card(input="float32-nchw"), r"its 'images' is tensor\(uint8\)"),
        (card(input="pickle"), "input: "),
        (card(network="all"), "network: "),
        (card(reject={"images": 3, "thresholds": [1, 0] * 50}), "thresholds must be in ascending order"),
    ],
)
def test_properties_that_do_not_fit(metadata: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        load_onnx(saved(tmp_path / "model.onnx", metadata), "cpu")
    assert "write it again with ssdg export" in str(caught.value)
    assert "\n" not in str(caught.value)


def renamed(old: str, new: str) -> onnx.GraphProto:
    graph = color_graph()
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    for value in (*graph.input, *graph.output):
        value.name = new if value.name == old else value.name
    return graph


def fixed_batch() -> onnx.GraphProto:
    graph = color_graph()
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return graph


def lying() -> onnx.GraphProto:
    """It does not say how many probabilities there are, and gives one per image."""
    graph = color_graph(with_score=False)
    graph.node[3].output[0] = "all"
    graph.node.append(helper.make_node("Compress", ["all", "first"], ["probs"], axis=1))
    graph.initializer.append(numpy_helper.from_array(np.array([True, False, False]), "first"))
    graph.output[0].type.tensor_type.shape.dim[1].dim_param = "K"
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (renamed("images", "pixels"), "its inputs are pixels, not images"),
        (renamed("probs", "logits"), "its outputs are logits, score, without probs"),
        (fixed_batch(), "it accepts only batches of 1 images|Got invalid dimensions"),
        (lying(), r"its 'probs' is float32 \(2, 1\), not float32 \(2, 3\)"),
    ],
)
def test_graphs_that_do_not_fit(graph: onnx.GraphProto, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load_onnx(saved(tmp_path / "model.onnx", card(), graph), "cpu")


def test_no_cut_and_no_flipped_byte_gets_through_with_more_than_a_sentence(tmp_path: Path) -> None:
    path = write_colors(tmp_path / "model.onnx")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    contents = [whole[:cut] for cut in range(0, len(whole), 41)]
    for at in rng.integers(0, len(whole), 100):
        contents.append(whole[:at] + bytes([whole[at] ^ int(rng.integers(1, 256))]) + whole[at + 1 :])
    refused = 0
    for content in (b"not a model", b"\x80" * 30, bytes(range(256)), *contents):
        path.write_bytes(content)
        with suppress(UserError):
            load_onnx(path, "cpu", threads=1)
            continue
        refused += 1
    assert refused > len(range(0, len(whole), 41))  # every cut, and more


def external(location: str) -> onnx.GraphProto:
    graph = color_graph()
    tensor = graph.initializer[0]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    for key, value in (("location", location), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    return graph


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "weights.bin"])
def test_other_files_are_never_read(location: str, tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(np.float32(1).tobytes())
    path = saved(tmp_path / "model.onnx", card(), external(location))
    with pytest.raises(UserError, match="its weights are in another file, which is not read"):
        load_onnx(path, "cpu")


def test_external_data_is_found_wherever_it_hides() -> None:
    tensor = external("x").initializer[0]
    inner = color_graph()
    inner.node.append(helper.make_node("Constant", [], ["hidden"], value=tensor))
    outer = color_graph()
    outer.node.append(helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=color_graph()))
    sparse = color_graph()
    sparse.sparse_initializer.add().values.CopyFrom(tensor)
    function = model_of(color_graph(), None)
    function.functions.add(name="f").node.append(inner.node[-1])
    for model in (model_of(outer, None), model_of(sparse, None), function):
        assert has_external_data(memoryview(model.SerializeToString()))
    assert not has_external_data(memoryview(model_of(color_graph(), card()).SerializeToString()))
    deep = b""
    for _ in range(150):  # a graph in an attribute of a node of a graph ...
        for field in (6, 5, 1):
            deep = bytes([field << 3 | 2]) + varint(len(deep)) + deep
    with pytest.raises(DamagedError, match="too deep"):
        has_external_data(memoryview(bytes([7 << 3 | 2]) + varint(len(deep)) + deep))


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def test_mistakes(photos: Path, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    model, out = write_colors(tmp_path / "model.onnx"), tmp_path / "out.csv"
    assert "'none.onnx' does not exist" in complaint("predict", "none.onnx", photos, "-o", out)
    assert "unknown device 'gpu'" in complaint("predict", model, photos, "-o", out, "--device", "gpu")
    assert "no CUDA device is found" in complaint("predict", model, photos, "-o", out, "--device", "cuda")
    assert "--batch 0 is not a batch size" in complaint("predict", model, photos, "-o", out, "--batch", 0)
    assert "no images given" in complaint("predict", model, "-o", out)
    assert "ends with .csv, .jsonl, .parquet" in complaint("predict", model, photos, "-o", tmp_path / "out.txt")
    assert "threads" in complaint("predict", model, photos, "-o", out, "--threads", 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "photos"]
