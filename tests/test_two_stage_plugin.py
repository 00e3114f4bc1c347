"""A plugin with two stages, nested settings and names that no shared code knows: report, dry run, bench and table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ssdg.cli import call
from ssdg.methods import METHODS
from ssdg.report.page import build

PLUGIN = '''
"""Scouts label each domain, a judge learns from what it selects."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from ssdg.methods import (
    Build, Inputs, Learner, Method, Settings, Task, Trainer, argmax_rule, concat_labeled, find_method, register,
)

SourceOnly = find_method("source-only").learner


class ScoutSettings(Settings):
    passes: int = Field(3, ge=1, description="how often scouts and judge take turns")
    caution: float = Field(0.5, gt=0, le=1, description="share of the pool that the jury selects")
    scout_backbone: str | None = None
    scout_weights: str | None = None
    scout: Any = Field(default_factory=dict, validate_default=True, description="settings of the scouts")

    path_fields: ClassVar[tuple[str, ...]] = ("scout_weights",)
    crawl_defaults: ClassVar[Mapping[str, Any]] = {"caution": 0.25}

    @classmethod
    def nested_methods(cls, values):
        return {"scout": find_method("dann")}

    def model_post_init(self, context):
        if isinstance(self.scout, dict):
            object.__setattr__(self, "scout", find_method("dann").settings.model_validate(self.scout))

    def extra_backbones(self):
        return {"scout_backbone": (self.scout_backbone, self.scout_weights)} if self.scout_backbone else {}

    def shortened(self, *, batch, iterations):
        short = super().shortened(batch=batch, iterations=iterations)
        return short.model_copy(update={"passes": 1})

    def schedules(self):
        return {"caution": [self.caution] * self.epochs}


def fit(task: Task, trainer: Trainer, build: Build, cfg: ScoutSettings) -> Learner:
    dann = find_method("dann")
    scouts = {name: build(f"scouts/{name}", dann.learner, cfg.scout) for name in task.unlabeled}
    judge = build("judge", SourceOnly, cfg, num_domains=1 + len(scouts))
    labeled = task.labeled
    for turn in range(1, cfg.passes + 1):
        parts = []
        for name, pool in task.unlabeled.items():
            inputs = dann.inputs(task.labeled, pool, cfg.scout)
            titles = {"title": f"scout of {name}", "group": "scouts"}
            trainer.train(f"scouts/{name}", scouts[name], inputs, cfg.scout, round=turn, **titles)
            labels = trainer.label(f"scouts/{name}", scouts[name], pool, argmax_rule, round=turn, title="scouts")
            parts.append(pool.labeled_by(labels))
        inputs = Inputs(concat_labeled([labeled, *parts]))
        trainer.train("judge", judge, inputs, cfg, round=turn, product=True, title="the judge")
        trainer.label("jury", judge, task.pool, argmax_rule, round=turn, kind="clean-set", title="the jury")
    return judge


register(Method("scouting", "ours", "none", "scouts and a judge", SourceOnly, ScoutSettings, ("unlabeled",), {}, fit))
'''
SMALL = ["backbone=digits-cnn", "weights=none", "size=32", "batch=4", "epochs=2", "lr=0.01", "passes=2"]
SMALL += ["scout.epochs=1", "scout.batch=4", "scout.lr=0.01"]


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[Path]:
    known = dict(METHODS)
    path = tmp_path / "scouting.py"
    path.write_text(PLUGIN, encoding="utf-8")
    yield path
    METHODS.clear()
    METHODS.update(known)
    for name in [name for name in sys.modules if name.startswith("ssdg_plugin_")]:
        del sys.modules[name]


def command(*args: object) -> int:
    return call([str(arg) for arg in args])


def train(world: Path, cache: Path, plugin: Path, *args: object) -> int:
    data = ["--data", world, "--labeled", "photo", "--target", "night", "--cache", cache, "--device", "cpu"]
    return command("train", "--preset", "paper", *data, "--plugin", plugin, "--method", "scouting", *SMALL, *args)


def test_it_gets_a_full_report(plugin: Path, world: Path, cache: Path, tmp_path: Path) -> None:
    assert train(world, cache, plugin, "--out", tmp_path / "run") == 0
    (view,) = build([tmp_path / "run"])["runs"]
    titles = [figure["title"] for figure in view["curves"]]
    for part in ("losses: scouts", "losses: the judge", "schedule: the judge", "clean set", "pseudo-label"):
        assert any(part.lower() in title.lower() for title in titles), (part, titles)
    panels = {panel["title"] for panel in view["pictures"]["panels"]}
    assert panels == {
        f"{who}, cycle {n}" for who in ("scout of neon", "scout of sketch", "the judge") for n in (1, 2)
    }
    stages = {stage["title"] for domain in view["labels"]["domains"] for stage in domain["stages"]}
    assert stages == {"scouts", "the jury"}
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert {phase["title"] for phase in result["phases"].values()} == {
        "scout of neon",
        "scout of sketch",
        "the judge",
    }


def test_it_gets_a_dry_run_with_its_own_short_form(
    plugin: Path, world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(world, cache, plugin, "--out", tmp_path / "run", "--dry-run") == 0
    out = capsys.readouterr().out
    assert "dry run passed" in out
    assert "cycle 1 · the judge" in out
    assert "cycle 2" not in out  # its own short form has one pass
    assert not (tmp_path / "run").exists()


def test_its_settings_have_the_hooks_of_any_other(
    plugin: Path, world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", tmp_path / "run"]
    assert train(world, cache, plugin, *out, "scout.epoch=1") == 2
    assert "scout.epochs" in capsys.readouterr().err
    assert train(world, cache, plugin, *out, "scout=1") == 2
    assert "scout=1 is not a group of settings" in capsys.readouterr().err
    assert train(world, cache, plugin, *out, "scout_backbone=resnet19") == 2
    assert "resnet18" in capsys.readouterr().err
    assert train(world, cache, plugin, *out, "scout_backbone=resnet18", "warm_epochs=1") == 2
    assert "give scout_backbone or warm_epochs" in capsys.readouterr().err


def test_it_gets_a_row_in_a_table(
    plugin: Path, world: Path, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text("methods: [source-only, scouting]\n")
    grid = [
        "--out",
        tmp_path / "grid",
        "--data",
        world,
        "--tasks",
        "photo:night",
        "--cache",
        cache,
        "--device",
        "cpu",
    ]
    assert command("bench", "run", suite, *grid, "--jobs", 1, f"plugin={plugin}", *SMALL) == 0
    capsys.readouterr()
    assert command("table", tmp_path / "grid") == 0
    assert "scouting" in capsys.readouterr().out
    assert command("figure", tmp_path / "grid", "pseudo-labels", "-o", tmp_path / "labels.png") == 0
    assert (tmp_path / "labels.png").exists()
