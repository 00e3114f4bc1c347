"""Planning, evaluation and auditing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from runs import short_settings, train_here
from ssdg.data.hidden import Problem
from ssdg.data.pixel_files import FilePixels
from ssdg.data.sets import ImageTable, LabeledSet, PseudoLabels, Task, UnlabeledSet
from ssdg.data.streams import Pipeline
from ssdg.engine.audit import audit_labels
from ssdg.engine.plan import plan
from ssdg.engine.scores import accuracies, all_logits
from ssdg.engine.setup import open_run
from ssdg.engine.stages import apply_rule, load_labels, save_labels, stage_name
from ssdg.errors import UserError
from ssdg.schema import to_json


@pytest.mark.parametrize("method", ["eid", "source-only"])
def test_the_plan_is_what_happens(method: str, world: Path, cache: Path, tmp_path: Path) -> None:
    config, problem = open_run(short_settings(method, data=str(world)), cache)
    planned = plan(config, problem.task)
    result = train_here(world, cache, tmp_path, method)
    done = {name: phase["steps"] for name, phase in result["phases"].items()}
    assert {stage_name(p.key, p.round): p.steps for p in planned} == done


class Brightness:
    """A learner whose two networks say how bright an image is."""

    nets = nn.ModuleDict()

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.mean((1, 2, 3))
        return torch.stack([torch.stack([mean, 1 - mean], 1), torch.stack([1 - mean, mean], 1)])


def grey_table(count: int) -> ImageTable:
    values = np.arange(count, dtype=np.uint8)[:, None, None, None]
    return ImageTable.from_array(np.ascontiguousarray(np.broadcast_to(values, (count, 4, 4, 3))))


@pytest.mark.parametrize("batch", [1, 7, 10, 64])
def test_logits_of_every_image_once_in_order(batch: int) -> None:
    logits = all_logits(Brightness(), grey_table(10), Pipeline("none", torch.device("cpu"), 2), batch=batch)  # type: ignore[arg-type]
    assert logits.shape == (2, 10, 2)
    torch.testing.assert_close(logits[0, :, 0] * 255, torch.arange(10.0))


def test_accuracies_of_each_network_and_of_their_mean() -> None:
    # Network 1 is sure and right, wrong; network 2 is barely wrong, barely right: the mean follows network 1.
    logits = torch.tensor([[[9.0, 0.0], [9.0, 0.0]], [[0.0, 0.1], [0.0, 0.1]]])
    assert accuracies(logits, np.array([0, 1])) == [50.0, 50.0, 50.0]
    assert accuracies(logits, np.array([0, 0])) == [100.0, 0.0, 100.0]


def test_the_audit_counts_by_domain() -> None:
    pool = UnlabeledSet(grey_table(5), np.array([1, 1, 2, 2, 2]))
    empty = LabeledSet(grey_table(1), np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1, np.bool_))
    problem = Problem(
        Task(("a", "b"), empty), ("l", "u", "v"), truth={"u": np.array([0, 1]), "v": np.array([-1, 0, 1])}
    )
    y = np.array([0, 0, 0, 0, 0])
    keep = np.array([True, False, True, False, True])
    report = audit_labels(PseudoLabels(y, keep, np.ones(5, np.float32), y[None]), pool, problem)
    assert to_json(report["u"]) == {"images": 2, "kept": 1, "accuracy": 50.0, "kept_accuracy": 100.0}
    assert to_json(report["v"]) == {
        "images": 3,
        "kept": 2,
        "accuracy": 50.0,
        "kept_accuracy": 0.0,
    }  # one has no truth


@pytest.mark.parametrize("has_preadv", [True, False])
def test_pixels_are_those_of_the_file(has_preadv: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_preadv:
        monkeypatch.delattr("os.preadv", raising=False)
    pixels = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
    (tmp_path / "x").write_bytes(pixels.tobytes())
    stored = FilePixels(tmp_path / "x", pixels.shape)
    for rows in (np.array([3, 3, 49]), np.arange(50), np.zeros(0, np.intp)):
        assert np.array_equal(stored[rows], pixels[rows])
    (tmp_path / "x").write_bytes(pixels.tobytes()[:-1])
    assert np.array_equal(stored[np.array([48])], pixels[[48]])
    with pytest.raises(UserError, match="is truncated; delete it"):
        stored[np.array([49])]


def test_a_stage_depends_on_its_inputs_and_not_on_target_or_folder(world: Path, cache: Path, tmp_path: Path) -> None:
    """The labeler of `sketch` in cycle 1 is the same in the tasks P→night and P→neon."""
    for target, others in (("night", ["neon", "sketch"]), ("neon", ["night", "sketch"])):
        train_here(world, cache, tmp_path / target, "eid", target=target, unlabeled=others, cycles=1)
    first, second = (tmp_path / t / "stages" / "1-apl-sketch.safetensors" for t in ("night", "neon"))
    from safetensors.torch import load_file

    a, b = load_file(first), load_file(second)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert json.loads((tmp_path / "night" / "run.json").read_text())["hash"]


def test_probabilities_of_labels_are_means_over_networks() -> None:
    first, second = [[0.5, 0.25, 0.25], [0.125, 0.75, 0.125]], [[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]]
    logits = torch.tensor([first, second]).log()
    labels = apply_rule(logits, lambda logits: (torch.tensor([0, 2]), torch.tensor([True, False])))
    assert labels.probs is not None
    np.testing.assert_allclose(labels.probs.astype(float), [[0.375, 0.375, 0.25], [0.3125, 0.5, 0.1875]])
    np.testing.assert_allclose(labels.confidence, [0.375, 0.1875], rtol=1e-6)  # in the class of the rule
    assert labels.votes.tolist() == [[0, 1], [1, 0]]
    assert (labels.y.tolist(), labels.keep.tolist()) == ([0, 2], [True, False])


@pytest.mark.parametrize("has_probs", [True, False], ids=["with probabilities", "of version 0.1"])
def test_files_of_labels_with_and_without_probabilities(has_probs: bool, tmp_path: Path) -> None:
    arrays = {
        "y": np.array([1, 0]),
        "keep": np.array([True, False]),
        "confidence": np.array([0.75, 0.5], np.float32),
        "votes": np.array([[1, 0], [1, 1]]),
    }
    if has_probs:
        arrays["probs"] = np.array([[0.25, 0.75], [0.5, 0.5]], np.float16)
    np.savez(tmp_path / "labels.npz", **arrays)  # type: ignore[arg-type]
    labels = load_labels(tmp_path / "labels.npz", 2)
    assert (labels.probs is not None) == has_probs
    for name, value in arrays.items():
        assert np.array_equal(getattr(labels, name), value)
        assert getattr(labels, name).dtype == value.dtype
    save_labels(tmp_path / "again.npz", labels)
    with np.load(tmp_path / "again.npz", allow_pickle=False) as file:
        assert set(file) == set(arrays)
    with pytest.raises(UserError, match="labels 2 images where the pool has 3"):
        load_labels(tmp_path / "labels.npz", 3)
