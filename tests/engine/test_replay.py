"""A run gone through again from its files, and the features that a figure takes on the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from runs import train_here, weights_of
from ssdg.bench.tables.tsne import balanced_rows, compute_evolution
from ssdg.data.sets import MixedSet
from ssdg.engine.pipelines import image_pipeline
from ssdg.engine.replay import open_past_run
from ssdg.engine.samples import FinishedStage, first_mixed
from ssdg.errors import UserError
from ssdg.schema import to_json

ALL = 1000  # more images than the tiny world has


@pytest.fixture
def copy(evolved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(evolved, tmp_path / "copy")


def result_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text()))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_replay_shows_every_stage_and_ends_with_the_runs_weights(copy: Path, cache: Path) -> None:
    before, passed, last = files_of(copy), [], {}

    def look(stage: FinishedStage) -> None:
        passed.append(f"{stage.request.round}-{stage.request.key.replace('/', '-')}")
        if stage.request.product:
            last.update({name: value.clone() for name, value in stage.request.learner.nets.state_dict().items()})

    audits = open_past_run(copy, cache=cache, device="cpu").replay(look)
    assert files_of(copy) == before
    assert passed == list(result_of(copy)["phases"])
    assert [to_json(audit) for audit in audits] == result_of(copy)["pseudo_labels"]
    final = weights_of(copy)
    assert last.keys() == final.keys()
    assert all(torch.equal(last[name], final[name]) for name in final)


def test_the_intermediate_domain_is_that_of_the_cycle(evolved: Path, cache: Path) -> None:
    """In cycle 2 it is made of the labeled images and of the clean set that cycle 1 chose."""
    past = open_past_run(evolved, cache=cache, device="cpu")
    sources = {}

    def look(stage: FinishedStage) -> None:
        if "apl" in stage.request.key:
            sources[stage.request.round] = stage.request.inputs.labeled

    past.replay(look)
    assert sources[1] is past.problem.task.labeled
    assert isinstance(sources[2], MixedSet)
    with np.load(evolved / "labels" / "1-eid.npz") as file:
        assert sources[2].clean.y.tolist() == file["y"][file["keep"]].tolist()


def test_mixed_images_lie_between_a_labeled_and_a_clean_one(evolved: Path, cache: Path) -> None:
    past = open_past_run(evolved, cache=cache, device="cpu")
    drawn: list[tuple[MixedSet, torch.Tensor]] = []

    def look(stage: FinishedStage) -> None:
        if stage.request.key == "apl/sketch" and isinstance(stage.request.inputs.labeled, MixedSet):
            config = past.config.model_copy(update={"augment": "none"})
            pipeline = image_pipeline(config, len(past.problem.task.classes), past.machine)
            mixed = stage.request.inputs.labeled
            drawn.append((mixed, torch.cat([batch.x for batch in first_mixed(stage, mixed, 6, pipeline)])))

    past.replay(look)
    mixed, images = drawn[0]
    assert len(images) == 6  # one batch of four and a part of the next
    sides = [s.images[np.arange(len(s))].transpose(0, 3, 1, 2) / 255 for s in (mixed.base, mixed.clean)]
    a, b = (torch.from_numpy(side).flatten(1).double() for side in sides)
    for image in images.flatten(1).double():
        gap = (b - a[:, None]).flatten(0, 1)  # every pair
        start = a[:, None].expand(-1, len(b), -1).flatten(0, 1)
        weight = ((image - start) * gap).sum(1) / gap.square().sum(1)
        error = (start + weight[:, None] * gap - image).abs().amax(1)
        best = int(error.argmin())
        assert error[best] < 1e-5
        assert 0 <= weight[best] <= 1


def test_features_and_numbers_are_those_of_the_run(evolved: Path, cache: Path) -> None:
    """The shipped head of network 1, put on the last features, is right as often as the result says."""
    evolution, result = compute_evolution(evolved, images=ALL, cache=cache, device="cpu"), result_of(evolved)
    head = weights_of(evolved)
    logits = torch.from_numpy(evolution.targets[-1].features) @ head["first.1.weight"].T + head["first.1.bias"]
    right = 100 * float((logits.argmax(1).numpy() == evolution.y).mean())
    assert right == pytest.approx(result["target"]["final"]["network_1"], abs=1e-3)
    assert [view.accuracy for view in evolution.targets] == [
        [row["target"][0] for row in result["epochs"] if row["round"] == cycle][-1] for cycle in (1, 2)
    ]
    accuracies = [a["domains"]["neon"]["accuracy"] for a in result["pseudo_labels"] if a["key"] == "apl/neon"]
    assert [view.accuracy for view in evolution.labelers] == accuracies
    assert [list(view.groups) for view in evolution.labelers] == [
        ["labeled", "unlabeled"],
        ["labeled", "unlabeled", "intermediate"],
    ]
    assert (evolution.labeled, evolution.unlabeled, evolution.target) == ("photo", ("neon", "sketch"), "night")
    assert evolution.labeler_domain == "neon"


def test_few_images_are_taken_fairly_and_alike(evolved: Path, cache: Path) -> None:
    first, again = (compute_evolution(evolved, images=12, cache=cache, device="cpu") for _ in range(2))
    assert np.bincount(first.y).tolist() == [4, 4, 4]
    assert [len(group) for group in first.labelers[1].groups.values()] == [4, 4, 4]
    for one, two in zip(first.labelers, again.labelers, strict=True):
        assert all(np.array_equal(one.groups[name], two.groups[name]) for name in one.groups)


def test_balanced_rows_fill_up_from_the_larger_classes() -> None:
    y = np.array([0] * 10 + [1] * 2)
    rows = balanced_rows(y, 6)
    assert np.bincount(y[rows]).tolist() == [4, 2]
    assert balanced_rows(y, 6).tolist() == rows.tolist() == sorted(set(rows.tolist()))
    assert balanced_rows(y, 99).tolist() == list(range(12))


def test_another_labeler_can_be_asked_for(evolved: Path, cache: Path) -> None:
    evolution = compute_evolution(evolved, unlabeled="sketch", images=ALL, cache=cache, device="cpu")
    assert evolution.labeler_domain == "sketch"
    with pytest.raises(UserError, match="did you mean 'neon'"):
        compute_evolution(evolved, unlabeled="neno", images=ALL, cache=cache, device="cpu")


def test_in_domain_adaptation_the_labeler_is_the_product(world: Path, cache: Path, tmp_path: Path) -> None:
    train_here(world, cache, tmp_path, "eid", cycles=2, setting="uda", epochs=1)
    evolution = compute_evolution(tmp_path, images=ALL, cache=cache, device="cpu")
    assert evolution.product == "labeler of night"
    assert [view.cycle for view in evolution.targets] == [1, 2]


def test_what_cannot_be_replayed(copy: Path, world: Path, cache: Path, tmp_path: Path) -> None:
    def refused(message: str, folder: Path = copy) -> None:
        with pytest.raises(UserError, match=message):
            compute_evolution(folder, images=ALL, cache=cache, device="cpu")

    with np.load(copy / "labels" / "1-eid.npz") as file:
        labels = dict(file)
    np.savez(copy / "labels" / "1-eid.npz", **{**labels, "keep": ~labels["keep"]})
    refused("2-apl-neon.safetensors was computed from other data")
    (copy / "labels" / "1-eid.npz").unlink()
    refused("has not finished labels/1-eid.npz")
    (copy / "stages" / "1-dcg.safetensors").unlink()
    refused("has not finished stages/1-dcg.safetensors; let it end: ssdg resume")
    claim = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**claim, "fingerprint": "another"}))
    refused("images have changed")
    refused("not a run folder", tmp_path / "nowhere")
    train_here(world, cache, tmp_path / "plain", "source-only", epochs=1)
    refused("method 'source-only' of the run in .* has no labeler; use a run of eid", tmp_path / "plain")
