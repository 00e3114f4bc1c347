"""Preset `fast`: no stage of any method costs more than a fifth of what the paper gives it."""

from __future__ import annotations

from typing import Any

import pytest

from builders import X, at_epoch, batch, built, labeled_set, unlabeled_set
from passes import count_passes
from ssdg.config import resolve
from ssdg.data.sets import Task
from ssdg.engine.plan import plan
from ssdg.methods import METHODS
from ssdg.methods.adaptation.mcd import Mcd, McdSettings

SIZES = {"alike": (1000, 1000), "many labeled": (5000, 300), "many unlabeled": (300, 5000)}


def step_cost(settings: dict[str, Any]) -> int:
    """Passes of a step in units of a forward pass where the presets differ in them: in those of MCD."""
    return 3 * settings["inner_steps"] + 4 if "inner_steps" in settings else 1


@pytest.mark.parametrize("inner_steps", [1, 4])
def test_the_passes_of_mcd_by_its_inner_steps(inner_steps: int) -> None:
    settings = McdSettings(inner_steps=inner_steps)
    forward, backward = count_passes(built(Mcd, settings), batch(u=X), at_epoch(0))
    assert forward + 2 * backward == step_cost(settings.model_dump())


def costs(method: str, preset: str, task: Task) -> dict[str, int]:
    """Of every stage, in images, by key, over all cycles."""
    given = {"method": method, "preset": preset, "labeled": "l", "target": "t"}
    config = resolve(given, kind="photo", size=32)
    own = config.settings.model_dump()
    total: dict[str, int] = {}
    for stage in plan(config, task):
        settings = own.get("labeler", own) if stage.key.startswith("apl") else own
        total[stage.key] = total.get(stage.key, 0) + stage.steps * settings["batch"] * step_cost(settings)
    return total


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("method", sorted(name for name, method in METHODS.items() if method.family != "frozen"))
def test_every_stage_costs_at_most_a_fifth(method: str, sizes: str) -> None:
    labeled, unlabeled = SIZES[sizes]
    pools = {name: unlabeled_set([0] * unlabeled, domain, size=1) for domain, name in enumerate(("u", "v"), 1)}
    task = Task(("a", "b"), labeled_set([0] * labeled, [0, 1] * (labeled // 2), size=1), pools)
    paper, fast = (costs(method, preset, task) for preset in ("paper", "fast"))
    assert paper.keys() == fast.keys()
    for key in paper:
        assert 0 < fast[key] <= paper[key] / 5, key
