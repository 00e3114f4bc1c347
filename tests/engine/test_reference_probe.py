"""The probe next to a run with pretrained weights, and heads that start from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from runs import same_weights, short_settings
from ssdg.display import below_probe
from ssdg.engine.pipelines import open_pipelines
from ssdg.engine.reference_probe import HeadStart, fit_probe, solve_head
from ssdg.engine.run import run
from ssdg.engine.setup import open_run
from ssdg.errors import UserError
from ssdg.machine import start_machine
from ssdg.models.backbones import build_backbone
from ssdg.models.heads import LinearHead, UnitHead


def train(
    world: Path, cache: Path, folder: Path, weights: str, method: str, probe: bool, **more: Any
) -> dict[str, Any]:
    settings = short_settings(method, data=str(world), **{"weights": weights, **more})
    config, problem = open_run(settings, cache, device="cpu")
    return run(config, problem, folder, start_machine("cpu"), cache=cache, probe=probe)


def test_a_run_stores_the_scores_of_its_probe(world: Path, cache: Path, tmp_path: Path, weights: str) -> None:
    result = train(world, cache, tmp_path / "run", weights, "source-only", probe=True)
    probe = result["probe"]
    assert probe == json.loads((tmp_path / "run" / "probe.json").read_text())
    assert 0 <= probe["target"] <= 100
    assert probe["images"] == result["task"]["images"]["photo"]
    kinds = [json.loads(line)["event"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert kinds.index("probe") < kinds.index("epoch")  # known before training


def test_the_probe_does_not_change_the_run(world: Path, cache: Path, tmp_path: Path, weights: str) -> None:
    with_probe = train(world, cache, tmp_path / "a", weights, "source-only", probe=True)
    without = train(world, cache, tmp_path / "b", weights, "source-only", probe=False)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert with_probe["target"] == without["target"]
    assert with_probe["hash"] == without["hash"]
    assert "probe" not in without


def test_its_scores_are_those_of_the_method(world: Path, cache: Path, tmp_path: Path, weights: str) -> None:
    reference = train(world, cache, tmp_path / "a", weights, "source-only", probe=True)["probe"]
    method = train(world, cache, tmp_path / "b", weights, "probe", probe=True, warm_epochs=0)
    assert reference["target"] == method["target"]["final"]["mean"]
    assert "probe" not in method  # it would be compared with itself


def test_networks_without_pretrained_weights_have_no_probe(world: Path, cache: Path, tmp_path: Path) -> None:
    assert "probe" not in train(world, cache, tmp_path / "run", "none", "source-only", probe=True)


def test_heads_start_from_the_probe_and_differ(world: Path, cache: Path, weights: str) -> None:
    settings = short_settings("mcd", data=str(world), weights=weights, head="probe")
    config, problem = open_run(settings, cache, device="cpu")
    pipelines = open_pipelines(config, problem, start_machine("cpu"), cache)
    start = solve_head(config, problem, pipelines)
    backbone = build_backbone("digits-cnn", weights).eval()
    images = problem.task.labeled.images[np.arange(len(problem.task.labeled))]
    with torch.inference_mode():
        features = backbone(torch.from_numpy(images).permute(0, 3, 1, 2) / 255)
    logits = features @ start.weight.T + start.bias
    y = torch.from_numpy(problem.task.labeled.y)
    assert (logits.argmax(1) == y).float().mean() > 0.9  # it solves the labeled images
    heads = nn.ModuleList([LinearHead(256, 3), LinearHead(256, 3), LinearHead(256, 4), UnitHead(256, 3)])
    before = [head.weight.detach().clone() for head in heads]
    start.put_into(heads)
    assert torch.equal(heads[0].weight, 0.1 * before[0] + start.weight)
    assert not torch.equal(heads[0].weight, heads[1].weight)
    assert torch.equal(heads[2].weight, before[2])
    assert torch.equal(heads[3].weight, before[3])


def test_a_run_can_start_from_the_probe(world: Path, cache: Path, tmp_path: Path, weights: str) -> None:
    for name, head in (("a", "probe"), ("b", "probe"), ("c", "random")):
        train(world, cache, tmp_path / name, weights, "eid", probe=False, head=head)
    assert same_weights(tmp_path / "a", tmp_path / "b")
    assert not same_weights(tmp_path / "a", tmp_path / "c")


def test_a_probe_needs_pretrained_weights(world: Path, cache: Path) -> None:
    settings = short_settings("source-only", data=str(world), head="probe")
    with pytest.raises(UserError, match="head=probe needs pretrained weights"):
        open_run(settings, cache, device="cpu")


def test_the_probe_learns_labeled_images_only(world: Path, cache: Path, weights: str) -> None:
    settings = short_settings("source-only", data=str(world), weights=weights)
    config, problem = open_run(settings, cache, device="cpu")
    probe, pipeline = fit_probe(config, problem, open_pipelines(config, problem, start_machine("cpu"), cache))
    x = pipeline.plain(problem.task.labeled.images, np.arange(len(problem.task.labeled)))
    with torch.inference_mode():
        predicted = probe.logits(x)[0].argmax(1)
    assert (predicted == torch.from_numpy(problem.task.labeled.y)).all()


@pytest.mark.parametrize(
    ("probe", "target", "expected"),
    [
        ({"target": 50.0}, 49.0, "below the probe: 49.00 % on unseen night"),
        ({"target": 50.0}, 51.0, ""),
        ({"validation": 95.0}, None, "below the probe: 90.00 % on held-out labeled images"),
        ({}, 10.0, ""),
    ],
)
def test_a_run_below_the_probe_is_reported(probe: dict[str, float], target: float | None, expected: str) -> None:
    result: dict[str, Any] = {"task": {"target": "night"}, "probe": probe, "validation": {"final": {"mean": 90.0}}}
    if target is not None:
        result["target"] = {"final": {"mean": target}}
    assert below_probe(result).startswith(expected)
    assert bool(below_probe(result)) == bool(expected)


def test_a_tenth_of_the_random_numbers_stays() -> None:
    head = LinearHead(2, 2)
    bias = head.bias.detach().clone()
    HeadStart(torch.ones(2, 2), torch.tensor([1.0, -1.0])).put_into(nn.ModuleList([head]))
    assert torch.equal(head.bias, 0.1 * bias + torch.tensor([1.0, -1.0]))
