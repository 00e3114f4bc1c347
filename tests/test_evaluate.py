"""Commands on trained runs, dry runs and the methods list."""

from __future__ import annotations

import csv
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runs import environment, short_settings, train_here
from ssdg.artifact.load import load_model
from ssdg.cli import call
from ssdg.engine.setup import open_run
from ssdg.errors import UserError


@pytest.fixture(scope="module")
def trained(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train_here(world, cache, folder, "eid", cycles=1)
    return folder


def args(*values: object) -> list[str]:
    return [str(value) for value in values]


def test_result_tells_numbers_and_where_they_come_from(trained: Path) -> None:
    result = json.loads((trained / "result.json").read_text())
    assert set(result["target"]["final"]) == {"network_1", "network_2", "mean"}
    assert result["target"]["epochs_averaged"] == len(result["epochs"]) == 2
    assert result["target"]["final"]["mean"] == result["epochs"][-1]["target"][-1]
    mean = sum(row["target"][0] for row in result["epochs"]) / 2
    assert result["target"]["last_five"]["network_1"] == pytest.approx(mean, abs=1e-3)
    rows = {row["key"]: row["domains"] for row in result["pseudo_labels"]}
    assert set(rows) == {"apl/sketch", "apl/neon", "eid"}
    assert 0 <= rows["apl/sketch"]["sketch"]["accuracy"] <= 100
    assert rows["eid"]["neon"]["kept"] <= rows["eid"]["neon"]["images"]
    # 3 APL batches... every step of every stage draws `images_per_step` images
    assert result["images_seen"] == sum(phase["images"] for phase in result["phases"].values())
    assert "auditor and the evaluator only" in result["hidden_labels"]
    assert result["versions"]["torch"]
    assert result["config"]["cycles"] == 1


def test_evaluate_sees_every_image_once_and_agrees_with_the_run(
    trained: Path, world: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = args("evaluate", trained, "--data", world / "night", "--cache", cache, "--device", "cpu", "--json")
    assert call(command) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["images"] == len(list((world / "night").rglob("*.png")))
    result = json.loads((trained / "result.json").read_text())
    assert scores["accuracy"] == result["target"]["final"]


def test_predict_writes_a_row_for_every_file(trained: Path, world: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(world / "night", tmp_path / "night")
    (folder / "broken.jpg").write_text("no image")
    out = tmp_path / "out.csv"
    assert call(args("predict", trained, folder, folder / "bar" / "0.png", "-o", out, "--device", "cpu")) == 0
    rows = list(csv.DictReader(out.open()))
    assert len(rows) == len(list(folder.rglob("*.*"))) + 1
    bad = [row for row in rows if row["error"]]
    assert [Path(row["path"]).name for row in bad] == ["broken.jpg"]
    good = [row for row in rows if not row["error"]]
    assert all(row["class"] != row["second"] for row in good)
    assert all(0.5 >= float(row["second_confidence"]) <= float(row["confidence"]) <= 1 for row in good)
    twice = [row for row in good if row["path"].endswith("bar/0.png")]
    assert twice[0] == twice[1]


def test_predictions_are_those_of_the_averaged_networks(trained: Path, world: Path, cache: Path) -> None:
    model = load_model(trained, "cpu")
    _, problem = open_run(short_settings("eid", data=str(world)), cache)
    assert problem.target is not None
    logits = model.logits(problem.target.images[np.arange(4)])
    probs = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum(-1, keepdims=True)
    from ssdg.data.sources.tree import read_tree

    predictions = {p.path: p for p in model.predict(read_tree(world / "night").images)}
    for row in range(4):
        path = problem.target.paths[row].removeprefix("night/")
        assert predictions[path].label == model.classes[probs.mean(0)[row].argmax()]
        assert predictions[path].confidence == pytest.approx(probs.mean(0)[row].max(), abs=1e-5)


def test_a_damaged_model_is_refused_and_runs_no_code(trained: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(trained / "model", tmp_path / "model")
    weights = (copy / "model.safetensors").read_bytes()
    for content in (weights[: len(weights) // 2], b"", pickle.dumps({"a": 1})):
        (copy / "model.safetensors").write_bytes(content)
        with pytest.raises(UserError, match="cannot be read"):
            load_model(copy, "cpu")
    card = json.loads((copy / "model.json").read_text())
    for key, value in (
        ("size", "big"),
        ("classes", ["one"]),
        ("format", 99),
        ("settings", {"lr": -1}),
        ("settings", 3),
    ):
        (copy / "model.json").write_text(json.dumps({**card, key: value}))
        with pytest.raises(UserError, match="damaged"):
            load_model(copy, "cpu")
    with pytest.raises(UserError, match="no trained model"):
        load_model(tmp_path / "nowhere", "cpu")


def test_own_folders_with_a_flat_target(
    world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, path in enumerate(sorted((world / "night").rglob("*.png"))):
        shutil.copy(path, flat / f"{number}.png")
    command = args(
        "train", "--preset", "paper", "--labeled", world / "photo", "--unlabeled", world / "sketch", world / "neon"
    )
    command += ["--method", "mcd", "batch=4", "epochs=1", "backbone=digits-cnn", "weights=none", "size=32"]
    command += args("--target", flat, "--out", tmp_path / "run", "--cache", cache, "--device", "cpu")
    assert call(command) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert "target" not in result
    assert result["task"]["unlabeled"] == ["sketch", "neon"]
    rows = list(csv.DictReader((tmp_path / "run" / "predictions.csv").open()))
    assert len(rows) == 24
    assert "to be predicted" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["eid", "source-only"])
def test_a_dry_run_touches_every_phase_and_keeps_nothing(
    method: str, world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = args(
        "train", "--preset", "paper", "--data", world, "--labeled", "photo", "--target", "night", "--cache", cache
    )
    command += args("--out", tmp_path / "run", "--method", method, "--device", "cpu", "--dry-run")
    assert call([*command, "backbone=digits-cnn", "weights=none", "size=32"]) == 0
    out = capsys.readouterr().out
    assert "dry run passed" in out
    assert ("cycle 2 · two networks of DCG" in out) == (method == "eid")
    assert not (tmp_path / "run").exists()


def test_methods_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["methods", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["eid"]["family"] == "ours"
    assert rows["mcd"]["needs"] == ["unlabeled"]
    assert rows["source-only"]["needs"] == []
    paper = rows["eid"]["settings"]
    assert (paper["cycles"], paper["clean_rate"], paper["epochs"], paper["labeler"]["epochs"]) == (3, 0.4, 15, 30)


def test_help_and_version_are_quick_for_torch_is_not_imported() -> None:
    code = "import sys; from ssdg.cli import call; call(['--help']); call(['train', '--help']); "
    code += "sys.exit(sum(name in sys.modules for name in ('torch', 'numpy', 'pydantic')))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "resume" in done.stdout
    assert "--save-seconds" in done.stdout
