"""`ssdg select` on made-up and real run folders."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from results import write_run, write_suite

from ssdg.cli import call

Complaint = Callable[..., str]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Three runs of a task; the score of density is the order of the target."""
    scores = ((90.0, 50.0, 99.0, 1.0), (80.0, 70.0, None, 3.0), (70.0, 60.0, 98.0, 2.0))
    return [
        write_run(
            tmp_path / name,
            validation=v,
            target=t,
            unsupervised={"agreement": a, "information": 1.5, "density": d},
        )
        for name, (v, t, a, d) in zip(("first", "second", "third"), scores, strict=True)
    ]


def selected(capsys: pytest.CaptureFixture[str], *args: object) -> dict[str, Any]:
    capsys.readouterr()
    assert call(["select", *map(str, args), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_ranks_choice_and_judgement(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    selection = selected(capsys, *runs, "--by", "density")
    (task,) = selection["groups"]
    assert task["chosen"] == ["second"]
    ranks = {row["name"]: row["ranks"] for row in task["candidates"]}
    assert [ranks[name]["validation"] for name in ("first", "second", "third")] == [1, 2, 3]
    assert [ranks[name]["agreement"] for name in ("first", "second", "third")] == [1, None, 2]
    assert [ranks[name]["information"] for name in ("first", "second", "third")] == [2, 2, 2]
    scores = selection["judged"]["scores"]
    assert (scores["density"]["correlation"], scores["density"]["regret"]) == (1, 0)
    assert (scores["validation"]["picked"], scores["validation"]["regret"]) == (50, 20)
    assert (scores["information"]["correlation"], scores["information"]["picked"]) == (None, 60)
    assert (scores["agreement"]["correlation"], scores["agreement"]["regret"]) == (None, 20)


def test_the_table_says_what_the_target_was_used_for(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["select", *map(str, runs)]) == 0
    output = capsys.readouterr().out
    assert "best by validation: first" in output
    assert "70.00 (3)" in output
    assert "The target was used only to evaluate the scores; no rank and no selection depends on it." in output
    assert call(["select", *map(str, runs[:2])]) == 0
    assert "No correlation (fewer than 3 runs with a scored target): photo" in capsys.readouterr().out


def test_blind_does_not_read_the_target(runs: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    before = selected(capsys, *runs)
    for run in runs:
        result = json.loads((run / "result.json").read_text())
        result["target"] = "not even a number"
        result["epochs"] = [{"round": 1, "epoch": 1, "target": "nor this"}]
        (run / "result.json").write_text(json.dumps(result))
    selection = selected(capsys, *runs, "--blind")
    assert selection["judged"] is None
    assert selection["groups"] == before["groups"]
    assert call(["select", *map(str, runs), "--blind"]) == 0
    output = capsys.readouterr().out
    assert "The target was not read." in output
    assert "Spearman" not in output


def test_runs_without_scores_are_ranked_by_what_they_have(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write_run(tmp_path / "old", validation=85.0, target=65.0)
    bare = write_run(tmp_path / "bare")
    selection = selected(capsys, *runs, old, bare)
    ranks = {row["name"]: row["ranks"] for row in selection["groups"][0]["candidates"]}
    assert ranks["old"] == {"validation": 2, "agreement": None, "information": None, "density": None}
    assert set(ranks["bare"].values()) == {None}
    assert call(["select", str(bare)]) == 0
    output = capsys.readouterr().out
    assert "no run has the score validation; use another --by" in output
    assert "No run has a scored target, so the scores cannot be evaluated." in output


def test_tasks_are_apart_and_a_name_twice_is_told_by_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = [write_run(tmp_path / str(n) / "mcd", validation=50.0 + n, target=9.0) for n in range(2)]
    there = write_run(tmp_path / "mcd", validation=99.0, target=1.0, labeled="neon")
    selection = selected(capsys, *here, there, here[0])
    assert [group["chosen"] for group in selection["groups"]] == [[str(here[1])], ["mcd"]]
    assert [len(group["candidates"]) for group in selection["groups"]] == [2, 1]


def test_domains_found_by_style_are_the_same_task(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = {"photo": 40, "unlabeled#1": 25, "unlabeled#2": 15, "validation": 10}
    split = write_run(tmp_path / "split", validation=95.0, unlabeled=["unlabeled#1", "unlabeled#2"], images=images)
    result = json.loads((split / "result.json").read_text())
    result["discovery"] = {"of": ["neon", "sketch"], "purity": 99.0}
    (split / "result.json").write_text(json.dumps(result))
    selection = selected(capsys, *runs, split)
    assert [group["chosen"] for group in selection["groups"]] == [["split"]]


def test_a_benchmark_folder_is_its_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_suite(tmp_path / "bench", [("a", 0), ("b", 0), ("b", 1)])
    for number, cell in enumerate(("a0", "b0")):
        write_run(folder / "cells" / cell, validation=10.0 * number, target=50.0)
    selection = selected(capsys, folder)
    assert [row["name"] for row in selection["groups"][0]["candidates"]] == ["a · seed 0", "b · seed 0"]


def test_epochs_of_a_real_run(evolved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    selection = selected(capsys, evolved, "--epochs")
    (group,) = selection["groups"]
    assert [row["name"] for row in group["candidates"]][:2] == ["cycle 1 · epoch 1", "cycle 1 · epoch 2"]
    assert len(group["candidates"]) == 4
    assert all(value is not None for row in group["candidates"] for name, value in row["scores"].items())
    assert call(["select", str(evolved), "--epochs"]) == 0
    assert "mean over runs" in capsys.readouterr().out


def test_it_needs_no_torch(runs: list[Path]) -> None:
    code = (
        "import sys; from ssdg.cli import call; code = call(sys.argv[1:]); "
        "sys.exit(code or 10 * any(m.split('.')[0] == 'torch' for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code, "select", *map(str, runs)], check=False).returncode == 0


def test_bad_input(runs: list[Path], tmp_path: Path, complaint: Complaint) -> None:
    assert "no folder given" in complaint("select")
    assert "has no result.json" in complaint("select", tmp_path)
    assert "has no result.json" in complaint("select", tmp_path / "nowhere")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text("{}")
    assert "ssdg resume" in complaint("select", tmp_path / "begun")
    assert "1 more folders cannot be compared" in complaint("select", tmp_path / "nowhere", tmp_path / "begun")
    empty = write_suite(tmp_path / "bench", [("a", 0)])
    assert "no cell of the benchmark" in complaint("select", empty)
    assert "target" in complaint("select", runs[0], "--by", "target")  # there is no such score


def test_other_classes_and_other_images_are_other_groups(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rings = [
        write_run(tmp_path / name, validation=value, classes=["bar", "ring"])
        for name, value in (("low", 1.0), ("high", 2.0))
    ]
    images = {"photo": 40, "sketch": 20, "neon": 21, "validation": 10}
    more = write_run(tmp_path / "more", validation=1.0, images=images)
    selection = selected(capsys, rings[0], *runs, rings[1], more)
    assert [group["chosen"] for group in selection["groups"]] == [["high"], ["first"], ["more"]]
    titles = [group["task"] for group in selection["groups"]]
    assert len(set(titles)) == 3
    assert "2 classes (bar, ring)" in titles[0]
    assert "40 unlabeled" in titles[1]
    assert "41 unlabeled" in titles[2]
    assert call(["select", *map(str, [*runs, *rings])]) == 0
    output = capsys.readouterr().out
    assert output.index("best by validation: first") < output.index("best by validation: high")


def test_unfinished_and_damaged_runs_are_listed(
    runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, file, content in (("begun", "run.json", "{}"), ("broken", "result.json", "{"), ("other", "a.txt", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(content)
    folder = write_suite(tmp_path / "bench", [("a", 0), ("b", 0)])
    write_run(folder / "cells" / "a0", validation=99.0)
    (folder / "cells" / "b0").mkdir(parents=True)
    (folder / "cells" / "b0" / "result.json").write_text("[]")
    names = [tmp_path / name for name in ("begun", "broken", "other", "none", "bench")]
    selection = selected(capsys, *names, *runs)
    assert [group["chosen"] for group in selection["groups"]] == [["a · seed 0"]]
    reasons = {Path(entry["folder"]).name: entry["reason"] for entry in selection["skipped"]}
    assert list(reasons) == ["begun", "broken", "other", "none", "b0"]
    assert "ssdg resume" in reasons["begun"]
    assert "damaged" in reasons["broken"]
    assert "damaged" in reasons["b0"]
    assert "no result.json" in reasons["other"]
    assert call(["select", *map(str, [*names, *runs])]) == 0
    output = capsys.readouterr().out
    assert output.count("\nskipped: ") == 5
    assert "best by validation: a · seed 0" in output


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"method": "mcd", "seed": 0, "task": 3}'])
def test_damaged_files(content: str, tmp_path: Path, complaint: Complaint) -> None:
    (tmp_path / "result.json").write_text(content)
    assert "damaged" in complaint("select", tmp_path)
    assert "damaged" in complaint("select", tmp_path, "--blind")


def test_a_score_that_is_no_number(tmp_path: Path, complaint: Complaint) -> None:
    folder = write_run(tmp_path / "run", validation=float("nan"))
    assert "damaged" in complaint("select", folder)


def test_the_probe_next_to_a_run_is_a_candidate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, validation in (("a", 80.0), ("b", 85.0)):
        path = write_run(tmp_path / name, validation=validation, target=50.0) / "result.json"
        result = json.loads(path.read_text())
        result["probe"] = {"validation": 90.0, "target": 55.0, "unsupervised": {"information": 1.0}}
        result["config"] = {"backbone": "resnet18", "weights": "imagenet", "size": 224}
        path.write_text(json.dumps(result))
    label = "(probe of resnet18, imagenet, 224 px)"
    assert call(["select", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    (group,) = content["groups"]
    assert [row["name"] for row in group["candidates"]] == ["a", "b", label]  # one for both runs
    assert group["chosen"] == [label]
    assert content["judged"]["target"] == [{"a": 50.0, "b": 50.0, label: 55.0}]
    assert call(["select", str(tmp_path / "a"), "--blind", "--json"]) == 0
    assert "55.0" not in capsys.readouterr().out
