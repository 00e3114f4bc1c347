"""The warm start: all backbones start from the one trained on the labeled domain, heads keep their initialization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from runs import short_settings, train_here
from ssdg.engine.plan import warm_settings
from ssdg.engine.run import Builder, NetworkSettings
from ssdg.engine.setup import open_run
from ssdg.machine import start_machine
from ssdg.methods import find_method
from ssdg.methods.eid.dual import DualNetworks
from ssdg.methods.eid.labeling import Labeling
from ssdg.methods.source_only import SourceOnly, warm_build
from ssdg.models.backbones import backbones_of


class Filler:
    """A trainer that sets every parameter to 0.25."""

    def train(self, key: str, learner: Any, inputs: Any, settings: Any, title: str) -> None:
        self.key, self.args = key, {"labeled": inputs.labeled, "settings": settings}
        with torch.no_grad():
            for parameter in learner.nets.parameters():
                parameter.fill_(0.25)


def test_every_backbone_starts_from_the_source_network(world: Path, cache: Path) -> None:
    config, problem = open_run(short_settings("eid", data=str(world), warm_epochs=3, warm_lr=0.2), cache)
    trainer, cfg = Filler(), config.settings
    plain = Builder(NetworkSettings.of(config), 3, start_machine("cpu")).build
    build = warm_build(problem.task, trainer, plain, warm_settings(config))  # type: ignore[arg-type]
    dual = build("dcg", DualNetworks, cfg)
    learners = [*Labeling(find_method("mcd"), cfg.labeler).build(problem.task, build).values(), dual]  # type: ignore[attr-defined]
    assert trainer.args["labeled"] is problem.task.labeled
    assert (trainer.args["settings"].epochs, trainer.args["settings"].lr) == (3, 0.2)
    backbones = [backbone for learner in learners for backbone in backbones_of(learner.nets)]
    assert len(backbones) == 2 + 2  # a labeler for each of two domains, two networks of DCG
    assert all((p == 0.25).all() for backbone in backbones for p in backbone.parameters())
    first, second = (network[-1].weight for network in dual.networks)  # type: ignore[index]
    assert not torch.equal(first, second)


def test_one_warm_start_for_two_batches(world: Path, cache: Path) -> None:
    def warm(**settings: Any) -> Any:
        config, _ = open_run(short_settings("eid", data=str(world), warm_epochs=3, **settings), cache)
        return warm_settings(config)

    assert [warm(batch=batch).batch for batch in (4, 8)] == [4, 8]
    assert warm(batch=4, warm_batch=6) == warm(batch=8, warm_batch=6)
    assert warm(batch=4, warm_batch=6).batch == 6


def test_a_backbone_chosen_by_the_method_is_left_alone(world: Path, cache: Path) -> None:
    config, problem = open_run(short_settings("mcd", data=str(world), warm_epochs=1), cache)
    plain = Builder(NetworkSettings.of(config), 3, start_machine("cpu")).build
    build = warm_build(problem.task, Filler(), plain, warm_settings(config))  # type: ignore[arg-type]
    built, expected = (
        b("x", SourceOnly, config.settings, backbone="resnet18", weights="none") for b in (build, plain)
    )
    torch.testing.assert_close(built.nets.state_dict(), expected.nets.state_dict(), rtol=0, atol=0)


def test_no_warm_start_is_no_stage(world: Path, cache: Path, tmp_path: Path) -> None:
    assert list(train_here(world, cache, tmp_path, "source-only")["phases"]) == ["1-main"]


@pytest.mark.parametrize("method", ["source-only", "fixmatch", "mcd+mixstyle"])
def test_every_method_can_start_warm(method: str, world: Path, cache: Path, tmp_path: Path) -> None:
    result = train_here(world, cache, tmp_path, method, warm_epochs=1)
    assert next(iter(result["phases"])) == "1-warm"
    assert result["phases"]["1-warm"]["steps"] < sum(phase["steps"] for phase in result["phases"].values())


def test_it_is_a_stage_of_the_run(world: Path, cache: Path, tmp_path: Path) -> None:
    result = train_here(world, cache, tmp_path, "eid", warm_epochs=1, cycles=1)
    assert next(iter(result["phases"])) == "1-warm"
    assert all(row["round"] == 1 for row in result["epochs"])
    assert len(result["epochs"]) == 2  # only DCG is the product
