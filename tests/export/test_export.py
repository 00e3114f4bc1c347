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
from ssdg.export.graph import Form, describe, trace
from ssdg.export.onnx_files import EXTRA, KEY, onnx_session
from ssdg.export.parity import NOISE, from_paths, from_samples, noise, spread

ABOUT = {"format": 1, "classes": ["bar", "disc", "ring"], "size": 32, "learner": "eid", "backbone": "digits-cnn"}


def words(*given: object) -> list[str]:
    return [str(word) for word in given]


def pixels(count: int = 5) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).integers(0, 256, (count, 32, 32, 3), np.uint8)


def session_of(path: Path) -> tuple[Any, dict[str, Any]]:
    session = onnx_session(path.read_bytes(), 1)
    return session, json.loads(session.get_modelmeta().custom_metadata_map[KEY])


def test_an_onnx_file_and_what_it_tells(
    run: Path, model: Model, capsys: pytest.CaptureFixture[str], world: Path
) -> None:
    assert call(words("export", run, "--format", "onnx", "--images", world / "night")) == 0
    told = capsys.readouterr().out
    assert f"wrote {run / 'model.onnx'}" in told
    assert "24 of 24 images of night, 1, 7 and 32 at a time: largest difference of probabilities" in told
    assert "24 of 24 get the same class" in told
    session, about = session_of(run / "model.onnx")
    assert about == {**ABOUT, "input": "uint8-nhwc", "network": "mean", "temperature": 1.5, "reject": None}
    (given,), (probs,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("images", "tensor(uint8)", ["batch", 32, 32, 3])
    assert (probs.name, probs.type, probs.shape) == ("probs", "tensor(float)", ["batch", 3])
    for count in (1, 2, 9):
        (found,) = session.run(None, {"images": pixels(count)})
        plain = model.logits(pixels(count)).double().softmax(-1).mean(0) ** (1 / 1.5)
        assert np.allclose(found, plain / plain.sum(1, keepdim=True), atol=1e-5)


def test_scores_beside_probabilities_and_floats_for_images(run: Path, model: Model, tmp_path: Path) -> None:
    out = tmp_path / "new" / "model.onnx"
    given = words("export", run, "--format", "onnx", "--reject", "--preprocessing", "beside", "-o", out)
    assert call(given) == 0
    session, about = session_of(out)
    assert about["input"] == "float32-nchw"
    assert model.rejection is not None
    assert about["reject"] == model.rejection.model_dump(mode="json")
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
    form = Form("2")
    program = trace(model, form)
    assert not any("first" in name for name in program.state_dict)
    whole = trace(model, Form())
    assert sum(t.numel() for t in program.state_dict.values()) * 2 == sum(
        t.numel() for t in whole.state_dict.values()
    )
    assert call(words("export", run, "--format", "onnx", "--network", 2, "-o", tmp_path / "two.onnx")) == 0
    assert "the temperature 1.5 was chosen for the mean of the networks" in capsys.readouterr().err
    session, about = session_of(tmp_path / "two.onnx")
    assert (about["network"], about["temperature"]) == ("2", 1.5)
    (found,) = session.run(None, {"images": pixels()})
    assert np.allclose(found, model.probs(model.logits(pixels())[1:]), atol=1e-5)
    assert not np.allclose(found, model.probs(model.logits(pixels())), atol=1e-5)


def test_a_pt2_file(run: Path, model: Model, tmp_path: Path) -> None:
    out = tmp_path / "model.pt2"
    assert call(words("export", run, "--format", "torch-export", "--reject", "-o", out)) == 0
    extra = {EXTRA: ""}
    loaded = torch.export.load(BytesIO(out.read_bytes()), extra_files=extra).module()
    about = json.loads(extra[EXTRA])
    assert about["classes"] == ABOUT["classes"]
    assert about["reject"]["score"] == "kl-from-uniform"
    for count in (1, 6):
        probs, score = loaded(torch.from_numpy(pixels(count)))
        assert np.allclose(probs.detach(), model.probs(model.logits(pixels(count))), atol=1e-5)
        assert np.allclose(score.detach(), known_scores(model.logits(pixels(count))), atol=1e-5)


def test_no_file_names_this_machine(run: Path, tmp_path: Path) -> None:
    for kind, name in (("onnx", "m.onnx"), ("torch-export", "m.pt2")):
        assert call(words("export", run, "--format", kind, "-o", tmp_path / name)) == 0
        content = (tmp_path / name).read_bytes()
        for secret in (Path(ssdg.__file__).parent, Path(torch.__file__).parent, run, tmp_path):
            assert str(secret).encode() not in content, (kind, secret)


def test_a_model_without_a_temperature(evolved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(words("export", evolved / "model", "--format", "onnx", "-o", tmp_path / "m.onnx")) == 0
    told = capsys.readouterr()
    assert f"{NOISE} pictures of noise" in told.out
    assert "there were no images to check on" in told.err
    assert "has no temperature" in told.err
    session, about = session_of(tmp_path / "m.onnx")
    assert about["temperature"] is None
    (found,) = session.run(None, {"images": pixels()})
    assert np.allclose(found, load_model(evolved, "cpu").logits(pixels()).softmax(-1).mean(0), atol=1e-5)


def test_the_model_folder_is_copied(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "shipped"
    assert call(words("export", run, "--format", "safetensors", "-o", out)) == 0
    names = ["README.md", "model.json", "model.safetensors"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert all((out / name).read_bytes() == (run / "model" / name).read_bytes() for name in names)
    assert f"model copied into {out}" in capsys.readouterr().out


def test_as_json(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = words("export", run, "--format", "torch-export", "-o", tmp_path / "m.pt2", "--json")
    assert call(given) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == (tmp_path / "m.pt2").stat().st_size
    assert told["parity"]["probs"] < 1e-5
    assert told["parity"]["on"].endswith("thumbnails of the run's images")
    assert told["int8"] is None


def test_images_of_a_run_and_of_the_user(run: Path, world: Path, tmp_path: Path) -> None:
    found = from_samples(run / "samples", 32)
    assert found is not None
    assert found.pixels.shape == (89, 32, 32, 3)
    assert found.pixels.std() > 10
    assert from_samples(tmp_path, 32) is None
    mine = from_paths([world / "night"], ("bar", "disc", "ring"), 32)
    assert mine.truth is not None
    assert np.bincount(mine.truth).tolist() == [8, 8, 8]
    assert from_paths([world / "night" / "bar" / "0.png"], ("a", "b"), 48).pixels.shape == (1, 48, 48, 3)
    assert from_paths([world / "night"], ("bar", "disc"), 32).truth is None
    assert not noise(40).are_real
    assert spread(10, 3) == [0, 3, 6]
    assert spread(2, 3) == [0, 1]


def test_the_json_text_is_json(run: Path) -> None:
    from ssdg.artifact.load import read_card

    card = read_card(run / "model")
    assert json.loads(describe(card, Form(inside=False)))["input"] == "float32-nchw"
