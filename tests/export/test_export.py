"""`ssdg export`: the contract of its files."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ssdg
from ssdg.artifact.calibration import known_scores
from ssdg.artifact.load import Model, load_model
from ssdg.cli import call
from ssdg.export.graph import GraphOptions, describe, trace
from ssdg.export.onnx_files import METADATA_FILE, METADATA_KEY, onnx_session
from ssdg.export.parity import NUM_NOISE, load_thumbnails, load_user_images, make_noise, spread_evenly

METADATA = {"format": 1, "classes": ["bar", "disc", "ring"], "size": 32, "resize": "squash", "learner": "eid"}
METADATA |= {"backbone": "digits-cnn"}


def args(*values: object) -> list[str]:
    return [str(value) for value in values]


def pixels(count: int = 5) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(0, 256, (count, 32, 32, 3), np.uint8)


def session_of(path: Path) -> tuple[Any, dict[str, Any]]:
    session = onnx_session(path.read_bytes(), 1)
    return session, json.loads(session.get_modelmeta().custom_metadata_map[METADATA_KEY])


def test_an_onnx_file_and_its_metadata(
    run: Path, model: Model, capsys: pytest.CaptureFixture[str], world: Path
) -> None:
    assert call(args("export", run, "--format", "onnx", "--images", world / "night")) == 0
    out = capsys.readouterr().out
    assert f"wrote {run / 'model.onnx'}" in out
    assert "24 of 24 images of night in batches of 1, 7 and 32: largest difference of probabilities" in out
    assert "same class for 24 of 24" in out
    session, metadata = session_of(run / "model.onnx")
    assert metadata == {**METADATA, "input": "uint8-nhwc", "network": "mean", "temperature": 1.5, "reject": None}
    (images,), (probs,) = session.get_inputs(), session.get_outputs()
    assert (images.name, images.type, images.shape) == ("images", "tensor(uint8)", ["batch", 32, 32, 3])
    assert (probs.name, probs.type, probs.shape) == ("probs", "tensor(float)", ["batch", 3])
    for count in (1, 2, 9):
        (actual,) = session.run(None, {"images": pixels(count)})
        plain = model.logits(pixels(count)).double().softmax(-1).mean(0) ** (1 / 1.5)
        assert np.allclose(actual, plain / plain.sum(1, keepdim=True), atol=1e-5)


def test_scores_next_to_probabilities_and_floats_for_images(run: Path, model: Model, tmp_path: Path) -> None:
    out = tmp_path / "new" / "model.onnx"
    assert call(args("export", run, "--format", "onnx", "--reject", "--preprocessing", "beside", "-o", out)) == 0
    session, metadata = session_of(out)
    assert metadata["input"] == "float32-nchw"
    assert model.rejection is not None
    assert metadata["reject"] == model.rejection.model_dump(mode="json")
    assert [output.name for output in session.get_outputs()] == ["probs", "score"]
    assert session.get_inputs()[0].shape == ["batch", 3, 32, 32]
    images = pixels().transpose(0, 3, 1, 2).astype(np.float32) / 255
    probs, score = session.run(None, {"images": images})
    logits = model.logits(pixels())
    assert np.allclose(probs, model.probs(logits), atol=1e-5)
    assert np.allclose(score, known_scores(logits), atol=1e-5)
    assert score.dtype == np.float32
    assert score.shape == (5,)


def test_one_network_alone_is_half_of_the_file(
    run: Path, model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = GraphOptions("2")
    program = trace(model, options)
    assert not any("first" in name for name in program.state_dict)
    whole = trace(model, GraphOptions())
    assert sum(t.numel() for t in program.state_dict.values()) * 2 == sum(
        t.numel() for t in whole.state_dict.values()
    )
    assert call(args("export", run, "--format", "onnx", "--network", 2, "-o", tmp_path / "two.onnx")) == 0
    assert "the temperature 1.5 was chosen for the mean of the networks" in capsys.readouterr().err
    session, metadata = session_of(tmp_path / "two.onnx")
    assert (metadata["network"], metadata["temperature"]) == ("2", 1.5)
    (probs,) = session.run(None, {"images": pixels()})
    assert np.allclose(probs, model.probs(model.logits(pixels())[1:]), atol=1e-5)
    assert not np.allclose(probs, model.probs(model.logits(pixels())), atol=1e-5)


def test_a_pt2_file(run: Path, model: Model, tmp_path: Path) -> None:
    out = tmp_path / "model.pt2"
    assert call(args("export", run, "--format", "torch-export", "--reject", "-o", out)) == 0
    extra = {METADATA_FILE: ""}
    loaded = torch.export.load(BytesIO(out.read_bytes()), extra_files=extra).module()
    metadata = json.loads(extra[METADATA_FILE])
    assert metadata["classes"] == METADATA["classes"]
    assert metadata["reject"]["score"] == "kl-from-uniform"
    for count in (1, 6):
        probs, score = loaded(torch.from_numpy(pixels(count)))
        assert np.allclose(probs.detach(), model.probs(model.logits(pixels(count))), atol=1e-5)
        assert np.allclose(score.detach(), known_scores(model.logits(pixels(count))), atol=1e-5)


def test_no_file_names_this_machine(run: Path, tmp_path: Path) -> None:
    for kind, name in (("onnx", "m.onnx"), ("torch-export", "m.pt2")):
        assert call(args("export", run, "--format", kind, "-o", tmp_path / name)) == 0
        content = (tmp_path / name).read_bytes()
        for secret in (Path(ssdg.__file__).parent, Path(torch.__file__).parent, run, tmp_path):
            assert str(secret).encode() not in content, (kind, secret)


def test_a_model_without_a_temperature(evolved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(args("export", evolved / "model", "--format", "onnx", "-o", tmp_path / "m.onnx")) == 0
    printed = capsys.readouterr()
    assert f"{NUM_NOISE} images of noise" in printed.out
    assert "checked on noise, because there are no images" in printed.err
    assert "has no temperature" in printed.err
    session, metadata = session_of(tmp_path / "m.onnx")
    assert metadata["temperature"] is None
    (probs,) = session.run(None, {"images": pixels()})
    assert np.allclose(probs, load_model(evolved, "cpu").logits(pixels()).softmax(-1).mean(0), atol=1e-5)


def test_the_model_folder_is_copied(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "shipped"
    assert call(args("export", run, "--format", "safetensors", "-o", out)) == 0
    names = ["README.md", "model.json", "model.safetensors"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert all((out / name).read_bytes() == (run / "model" / name).read_bytes() for name in names)
    assert f"model copied into {out}" in capsys.readouterr().out


def test_as_json(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(args("export", run, "--format", "torch-export", "-o", tmp_path / "m.pt2", "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bytes"] == (tmp_path / "m.pt2").stat().st_size
    assert report["parity"]["probs"] < 1e-5
    assert report["parity"]["on"].endswith("thumbnails of the run's images")
    assert report["int8"] is None


def test_images_of_a_run_and_of_the_user(run: Path, world: Path, tmp_path: Path) -> None:
    thumbnails = load_thumbnails(run / "samples", 32)
    assert thumbnails is not None
    assert thumbnails.pixels.shape == (89, 32, 32, 3)
    assert thumbnails.pixels.std() > 10
    assert load_thumbnails(tmp_path, 32) is None
    mine = load_user_images([world / "night"], ("bar", "disc", "ring"), 32)
    assert mine.truth is not None
    assert np.bincount(mine.truth).tolist() == [8, 8, 8]
    assert load_user_images([world / "night" / "bar" / "0.png"], ("a", "b"), 48).pixels.shape == (1, 48, 48, 3)
    assert load_user_images([world / "night"], ("bar", "disc"), 32).truth is None
    assert not make_noise(40).are_real
    assert spread_evenly(10, 3) == [0, 3, 6]
    assert spread_evenly(2, 3) == [0, 1]


def test_the_json_text_is_json(run: Path) -> None:
    from ssdg.artifact.load import read_card

    card = read_card(run / "model")
    assert json.loads(describe(card, GraphOptions(has_preprocessing=False)))["input"] == "float32-nchw"
