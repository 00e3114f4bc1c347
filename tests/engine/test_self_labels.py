"""Runs whose networks label themselves (`apl=self`): resumed, replayed, shipped and shared like any other."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from runs import same_weights, short_settings, train_here, weights_of
from ssdg import load_model
from ssdg.bench.tables.tsne import compute_evolution
from ssdg.cli import call
from ssdg.data.sources.tree import read_tree
from ssdg.engine import stages
from ssdg.engine.loop import Clock
from ssdg.engine.plan import plan, warm_settings
from ssdg.engine.reference_probe import HeadStart
from ssdg.engine.replay import open_past_run
from ssdg.engine.run import Builder, NetworkSettings, run
from ssdg.engine.samples import FinishedStage
from ssdg.engine.setup import open_run
from ssdg.errors import Stopped, UserError
from ssdg.machine import start_machine
from ssdg.methods.eid.averaged import build_networks
from ssdg.methods.source_only import warm_build
from ssdg.models.backbones import backbones_of
from ssdg.schema import stage_name, to_json

SELF: dict[str, Any] = {
    "apl": "self",
    "labeler": {},
    "start_epochs": 2,
    "epochs": 1,
    "cycles": 3,
    "batch": 8,
    "lr": 0.02,
    "lr_shape": "hump",
}
CYCLES, DOMAINS = (1, 2, 3), ("neon", "sketch")


def train(world: Path, cache: Path, folder: Path, **more: Any) -> dict[str, Any]:
    return train_here(world, cache, folder, "eid", **{**SELF, **more})


@pytest.fixture(scope="module")
def done(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run. Read only: write to a copy."""
    folder = tmp_path_factory.mktemp("done")
    train(world, cache, folder)
    return folder


def result_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text()))


def comparable(folder: Path) -> dict[str, Any]:
    """The result without what the clock decides."""
    result = result_of(folder)
    for phase in result["phases"].values():
        phase.pop("seconds"), phase.pop("images_per_second")
    return {key: value for key, value in result.items() if key != "seconds"}


def labels_of(folder: Path, cycle: int, domain: str) -> dict[str, Any]:
    with np.load(folder / "labels" / f"{cycle}-apl-{domain}.npz") as file:
        return dict(file)


def finish(advance: Callable[[], object], expected: type[BaseException], limit: int = 100) -> int:
    """Repeat what is interrupted every time until it is not; return the number of interruptions."""
    for count in range(limit):
        try:
            advance()
        except expected:
            continue
        return count
    raise AssertionError("no progress")


def test_the_files_of_a_run(done: Path) -> None:
    result = result_of(done)
    assert list(result["phases"]) == ["1-start", "1-dcg", "2-dcg", "3-dcg"]
    assert {path.stem for path in (done / "labels").iterdir()} == {f"{c}-apl-{d}" for c in CYCLES for d in DOMAINS}
    by = [(audit["round"], audit["key"], audit["stage"]) for audit in result["pseudo_labels"]]
    assert by == [(c, f"apl/{d}", "start" if c == 1 else "dcg") for c in CYCLES for d in DOMAINS]
    for cycle, share in zip(CYCLES, (0.3, 0.6, 0.9), strict=True):
        for domain in DOMAINS:
            labels = labels_of(done, cycle, domain)
            n = len(labels["y"])
            assert labels["votes"].shape == (2, n)
            assert labels["probs"].shape == (n, 3)
            np.testing.assert_allclose(labels["probs"].astype(float).sum(1), 1, atol=2e-3)
            counts = np.bincount(labels["y"][labels["keep"]], minlength=3)
            assert counts.max() <= np.ceil(share * n / 3)


def test_labels_are_those_of_remembered_probabilities(done: Path) -> None:
    for domain in DOMAINS:
        remembered = labels_of(done, 1, domain)["probs"].astype(float)
        for cycle in (2, 3):
            labels = labels_of(done, cycle, domain)
            remembered = (remembered + labels["probs"].astype(float)) / 2
            top = np.sort(remembered, 1)
            is_clear = top[:, -1] - top[:, -2] > 2e-3  # files have half precision
            assert is_clear.any()
            assert np.array_equal(remembered.argmax(1)[is_clear], labels["y"][is_clear])


def test_a_run_stopped_after_every_step(
    done: Path, world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = sum(phase["steps"] for phase in result_of(done)["phases"].values())
    monkeypatch.setattr(Clock, "is_time_to_stop", lambda self, step: True)
    assert finish(lambda: train(world, cache, tmp_path), Stopped) == steps
    assert same_weights(done, tmp_path)
    assert comparable(done) == comparable(tmp_path)


def test_a_run_killed_after_every_labeling(
    done: Path, world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = stages.save_labels

    def save_and_die(*args: Any) -> None:
        save(*args)
        raise MemoryError

    monkeypatch.setattr(stages, "save_labels", save_and_die)
    assert finish(lambda: train(world, cache, tmp_path), MemoryError) == len(CYCLES) * len(DOMAINS)
    assert same_weights(done, tmp_path)
    assert comparable(done) == comparable(tmp_path)


def test_a_resumed_run_remembers_what_the_files_of_earlier_cycles_say(
    done: Path, world: Path, cache: Path, tmp_path: Path
) -> None:
    """Exchange two classes in the probabilities of cycle 1, which nothing but the memory reads."""
    folder = Path(shutil.copytree(done, tmp_path / "run"))
    path = folder / "labels" / "1-apl-neon.npz"
    labels = labels_of(folder, 1, "neon")
    labels["probs"] = np.eye(3, dtype=np.float16)[(labels["y"] + 1) % 3]
    np.savez(path, **labels)
    for name in ("result.json", "labels/2-apl-neon.npz", "labels/2-apl-sketch.npz", "stages/2-dcg.safetensors"):
        (folder / name).unlink()
    for path in [*folder.glob("*/3-*"), *(folder / "model").iterdir()]:
        path.unlink()
    train(world, cache, folder)
    assert labels_of(folder, 2, "neon")["y"].tolist() != labels_of(done, 2, "neon")["y"].tolist()
    assert labels_of(folder, 2, "sketch")["y"].tolist() == labels_of(done, 2, "sketch")["y"].tolist()


def test_settings_reach_the_run(done: Path, world: Path, cache: Path, tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {"memory": 0.0},
        {"last_share": 0.3},
        {"average_decay": 0.5},
        {"lr_shape": "fixed"},
    ]
    for number, change in enumerate(changes):
        train(world, cache, tmp_path / str(number), **change)
        assert not same_weights(done, tmp_path / str(number)), change


@pytest.mark.parametrize("first_labels", ["self", "mcd"])
def test_hidden_labels_cannot_reach_the_weights(first_labels: str, world: Path, cache: Path, tmp_path: Path) -> None:
    """Move the files of unlabeled and target domains to other class folders: the weights stay bit-identical."""
    other = Path(shutil.copytree(world, tmp_path / "other"))
    rng = np.random.default_rng(0)
    for domain in ("sketch", "neon", "night"):
        files = sorted((other / domain).rglob("*.png"))
        targets = [files[i].with_stem(f"moved{n}") for n, i in enumerate(rng.permutation(len(files)))]
        for file, target in zip(files, targets, strict=True):
            file.rename(target)
    labeler = {} if first_labels == "self" else {"epochs": 1, "batch": 8}
    for root, name in ((world, "true"), (other, "permuted")):
        train(root, cache, tmp_path / name, first_labels=first_labels, labeler=labeler, cycles=2)
    assert same_weights(tmp_path / "true", tmp_path / "permuted")
    audits = [result_of(tmp_path / name)["pseudo_labels"] for name in ("true", "permuted")]
    assert audits[0] != audits[1]  # the hidden labels did change


def predictions_of(folder: Path) -> dict[str, str]:
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        return {"/".join(Path(row["path"]).parts[-2:]): row["class"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("networks", [1, 2])
def test_the_model_predicts_with_the_averages(
    networks: int, done: Path, world: Path, cache: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(done, tmp_path / "run"))
    if networks == 1:
        shutil.rmtree(folder)
        train(world, cache, folder, networks=1)
    model, expected = load_model(folder, "cpu"), predictions_of(folder)
    assert json.loads((folder / "model" / "model.json").read_text())["learner"] == "eid"
    scores = {f"network_{number + 1}" for number in range(networks)}
    assert set(result_of(folder)["target"]["final"]) == {"mean", *scores}

    def predicted() -> dict[str, tuple[str, float]]:
        rows = model.predict(read_tree(world / "night").images)
        return {"/".join(Path(str(row.path)).parts[-2:]): (row.label, row.confidence) for row in rows}

    before = predicted()
    assert {path: label for path, (label, _) in before.items()} == expected
    with torch.no_grad():
        for name in ("first", "second")[:networks]:
            for parameter in model.learner.nets[name].parameters():
                parameter.zero_()
        assert predicted() == before
        for parameter in model.learner.nets["first_average"].parameters():
            parameter.zero_()
    assert predicted() != before


def test_the_model_is_exported(done: Path, world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "model.onnx"
    words = ("export", done, "--format", "onnx", "--images", world / "night", "-o", out)
    assert call([str(word) for word in words]) == 0
    assert "same class for 24 of 24" in capsys.readouterr().out


def test_a_replay_ends_with_the_runs_weights(done: Path, cache: Path) -> None:
    passed, last = [], {}

    def look(stage: FinishedStage) -> None:
        passed.append(stage_name(stage.request.key, stage.request.round))
        last.update({name: value.clone() for name, value in stage.request.learner.nets.state_dict().items()})

    audits = open_past_run(done, cache=cache, device="cpu").replay(look)
    assert passed == list(result_of(done)["phases"])
    assert [to_json(audit) for audit in audits] == result_of(done)["pseudo_labels"]
    final = weights_of(done)
    assert last.keys() == final.keys()
    assert all(torch.equal(last[name], final[name]) for name in final)


def test_the_figure_shows_the_networks_as_the_labeler(done: Path, cache: Path) -> None:
    """Labels that the networks of a cycle assign are those that the next one learns; the last ones assign none."""
    evolution, result = compute_evolution(done, images=1000, cache=cache, device="cpu"), result_of(done)
    accuracies = [
        audit["domains"]["neon"]["accuracy"] for audit in result["pseudo_labels"] if audit["key"] == "apl/neon"
    ]
    assert [(view.cycle, view.accuracy) for view in evolution.labelers] == [
        (1, accuracies[1]),
        (2, accuracies[2]),
        (3, None),
    ]
    assert all(list(view.groups) == ["labeled", "unlabeled"] for view in evolution.labelers)
    assert (evolution.labeler_domain, evolution.product) == ("neon", "networks of DCG")
    # The head of the first average, put on the last features, is right as often as the result says.
    head = weights_of(done)
    weight, bias = head["first_average.average.1.weight"], head["first_average.average.1.bias"]
    logits = torch.from_numpy(evolution.targets[-1].features) @ weight.T + bias
    accuracy = 100 * float((logits.argmax(1).numpy() == evolution.y).mean())
    assert accuracy == pytest.approx(result["target"]["final"]["network_1"], abs=1e-3)


def test_the_figure_is_drawn(done: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["figure", str(done), "tsne", "-o", str(tmp_path / "tsne.png"), "--images", "24", "--cache", str(cache)]
    assert call(words) == 0, capsys.readouterr().err
    assert (tmp_path / "tsne.png").stat().st_size > 0


def test_a_single_cycle_has_no_labels_to_show(world: Path, cache: Path, tmp_path: Path) -> None:
    train(world, cache, tmp_path, cycles=1)
    with pytest.raises(UserError, match=r"has no labeler; use a run of eid .* apl=self and two cycles or more"):
        compute_evolution(tmp_path, images=1000, cache=cache, device="cpu")


def test_the_report(done: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["report", str(done), "-o", str(tmp_path / "page.html")]) == 0, capsys.readouterr().err
    assert "self-labels (APL)" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_plan_has_the_stages_of_the_run_and_no_fewer_steps(done: Path, world: Path, cache: Path) -> None:
    """Which images a cycle selects is not known before: the plan counts all."""
    config, problem = open_run(short_settings("eid", data=str(world), **SELF), cache)
    planned = {stage_name(stage.key, stage.round): stage.steps for stage in plan(config, problem.task)}
    steps = {name: phase["steps"] for name, phase in result_of(done)["phases"].items()}
    assert list(planned) == list(steps)
    assert planned["1-start"] == steps["1-start"]
    assert all(planned[name] >= steps[name] for name in steps)


def test_in_domain_adaptation_the_averages_are_shipped(world: Path, cache: Path, tmp_path: Path) -> None:
    result = train(world, cache, tmp_path, setting="uda", cycles=2)
    assert list(result["phases"]) == ["1-start", "1-dcg", "2-dcg"]
    assert [audit["key"] for audit in result["pseudo_labels"]] == ["apl/night", "apl/night"]
    card = json.loads((tmp_path / "model" / "model.json").read_text())
    assert (card["method"], card["learner"]) == ("eid", "eid")
    model, expected = load_model(tmp_path, "cpu"), predictions_of(tmp_path)
    rows = list(model.predict(read_tree(world / "night").images))
    assert {"/".join(Path(str(row.path)).parts[-2:]): row.label for row in rows} == expected


TRUNK: dict[str, Any] = {"warm_epochs": 1, "freeze": "stage2"}


@pytest.mark.parametrize(
    ("settings", "num_views"),
    [
        ({"augment": "none", "label_views": 2}, 0),  # there are none
        ({"augment": "character-views", "label_views": 2}, 2),
        ({"augment": "character-views"}, 0),
        ({**TRUNK, "views": 3, "label_views": 2}, 2),
        ({**TRUNK, "views": 1, "label_views": 4}, 1),  # those that are stored
    ],
)
def test_views_vote_on_labels(
    settings: dict[str, Any], num_views: int, world: Path, cache: Path, tmp_path: Path
) -> None:
    train(world, cache, tmp_path, start_epochs=0, cycles=1, **settings)
    assert labels_of(tmp_path, 1, "neon")["votes"].shape[0] == 2 * (1 + num_views)  # of two networks


def test_first_labels_by_a_frozen_labeler(world: Path, cache: Path, tmp_path: Path) -> None:
    """Its views, which all vote, are stored though the networks are trained as a whole."""
    settings = {"first_labels": "self-training", "labeler": {"rates": (0.5,)}, "warm_epochs": 1, "views": 3}
    result = train(world, cache, tmp_path, **settings, cycles=1, start_epochs=0)
    assert list(result["phases"]) == ["1-warm", "1-probe-round1", "1-probe-round2", "1-dcg"]
    votes = {path.stem: len(np.load(path)["votes"]) for path in (tmp_path / "labels").glob("*-neon.npz")}
    assert votes == {"1-first-neon": 1 + 3}  # the networks label from cycle 2 on


def test_stages_of_other_schedules_are_not_shared(world: Path, cache: Path, tmp_path: Path) -> None:
    """The start of a run of two cycles covers another part of its schedule than that of a run of three."""

    def cached(folder: Path, shelf: Path | None, cycles: int) -> None:
        config, problem = open_run(short_settings("eid", data=str(world), **{**SELF, "cycles": cycles}), cache)
        run(config, problem, folder, start_machine("cpu"), stage_cache=shelf)

    cached(tmp_path / "two", tmp_path / "shelf", 2)
    before = len(list((tmp_path / "shelf").glob("*.safetensors")))
    cached(tmp_path / "two again", tmp_path / "shelf", 2)
    assert len(list((tmp_path / "shelf").glob("*.safetensors"))) == before == 3
    cached(tmp_path / "three", tmp_path / "shelf", 3)
    assert len(list((tmp_path / "shelf").glob("*.safetensors"))) == before + 4
    cached(tmp_path / "fresh", None, 3)
    assert same_weights(tmp_path / "fresh", tmp_path / "three")
    assert same_weights(tmp_path / "two", tmp_path / "two again")


class Filler:
    """A trainer that sets every parameter to 0.25."""

    def train(self, key: str, learner: Any, inputs: Any, settings: Any, title: str) -> None:
        with torch.no_grad():
            for parameter in learner.nets.parameters():
                parameter.fill_(0.25)


def test_a_warm_start_is_that_of_networks_and_averages(world: Path, cache: Path) -> None:
    config, problem = open_run(short_settings("eid", data=str(world), warm_epochs=1, **SELF), cache)
    plain = Builder(NetworkSettings.of(config), 3, start_machine("cpu")).build
    build = warm_build(problem.task, Filler(), plain, warm_settings(config))  # type: ignore[arg-type]
    networks = build("dcg", build_networks, config.settings)
    backbones = backbones_of(networks.nets)
    assert len(backbones) == 4
    assert all((p == 0.25).all() for backbone in backbones for p in backbone.parameters())
    check_averages_start_at_networks(networks)


def test_heads_of_networks_and_averages_start_from_the_probe(world: Path, cache: Path) -> None:
    config, _ = open_run(short_settings("eid", data=str(world), **SELF), cache)
    plain = Builder(NetworkSettings.of(config), 3, start_machine("cpu")).build("dcg", build_networks, config.settings)
    width = int(backbones_of(plain.nets)[0].num_features)  # type: ignore[arg-type]
    start = HeadStart(torch.ones(3, width), torch.ones(3))
    builder = Builder(NetworkSettings.of(config), 3, start_machine("cpu"), lambda: start)
    networks = builder.build("dcg", build_networks, config.settings)
    head, random_head = networks.nets["first"][-1], plain.nets["first"][-1]  # type: ignore[index]
    torch.testing.assert_close(head.weight, 0.1 * random_head.weight + 1)
    check_averages_start_at_networks(networks)


def check_averages_start_at_networks(networks: Any) -> None:
    for name in ("first", "second"):
        network, average = networks.nets[name].state_dict(), networks.nets[f"{name}_average"].average.state_dict()
        assert all(torch.equal(value, average[key]) for key, value in network.items())


def test_a_warm_start_comes_before_the_start(world: Path, cache: Path, tmp_path: Path) -> None:
    result = train(world, cache, tmp_path, warm_epochs=1, cycles=1)
    assert list(result["phases"]) == ["1-warm", "1-start", "1-dcg"]
