"""What a method holds while it trains: no public attribute, however deep, is a hidden label or a target score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from runs import short_settings
from ssdg.config import RunConfig
from ssdg.data.hidden import Problem, Target
from ssdg.engine.events import Events
from ssdg.engine.run import run
from ssdg.engine.setup import open_run
from ssdg.engine.stages import StageTrainer
from ssdg.machine import start_machine
from ssdg.methods import METHODS, find_method
from ssdg.methods.api import argmax_rule
from ssdg.schema import Audit, DomainAudit, HistoryRow, Result, Scores, StageMeta

WALLED = (Problem, Target, StageTrainer, Events, RunConfig)
SCORES = (Audit, DomainAudit, HistoryRow, Result, Scores, StageMeta)
LEAVES = (str, bytes, int, float, bool, type(None), type, ModuleType, FunctionType, torch.dtype, torch.device, Path)
MOST = 200_000  # objects

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of attributes that the walk reads


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """Items of containers and public attributes, without calling anything but properties."""
    if isinstance(value, Mapping):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{number}]", item) for number, item in enumerate(value))
    if isinstance(value, np.ndarray):
        yield ".base", value.base
        return
    if isinstance(value, torch.Tensor):
        return
    for name in [name for name in dir(value) if not name.startswith("_")]:
        try:
            attribute = getattr(value, name)
        except Exception:  # a property without a value
            continue
        yield f".{name}", attribute


def reachable(roots: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every object that public attributes and items lead to, with the first path to it."""
    waiting, seen, kept = list(roots.items()), set(), []
    while waiting:
        path, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kept.append(value)  # ids stay unique
        assert len(kept) < MOST
        yield path, value
        if hasattr(value, "__self__"):  # a method: of the object that was walked, or of one behind it
            waiting.append((f"{path}.__self__", value.__self__))
        elif not isinstance(value, LEAVES):
            waiting += [(path + name, child) for name, child in children(value)]


def hidden_arrays(problem: Problem) -> list[np.ndarray[Any, Any]]:
    assert problem.target is not None
    return [problem.target.y, *problem.truth.values(), *problem.web_labels.values()]


def breaches(roots: Mapping[str, Any], problem: Problem, world: Path) -> Iterable[str]:
    """Paths to what a method must not reach."""
    hidden = hidden_arrays(problem)
    for path, value in reachable(roots):
        is_hidden = isinstance(value, np.ndarray) and any(np.shares_memory(value, array) for array in hidden)
        names_data = isinstance(value, str) and str(world) in value
        if is_hidden or names_data or isinstance(value, WALLED + SCORES):
            yield f"{path}: {type(value).__name__}"


@pytest.mark.parametrize("name", ["eid", "mcd", "mixstyle", "source-only"])
def test_no_public_attribute_reaches_a_hidden_label_or_a_score(
    name: str, world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked after training, when scores and audits exist, and in the middle of a step."""
    config, problem = open_run(short_settings(name, data=str(world), epochs=1), cache, device="cpu")
    assert problem.truth
    method, held = find_method(name), {}

    def algorithm(task: Any, trainer: Any, build: Any, settings: Any) -> Any:
        learner = replace(method).fit(task, trainer, build, settings)
        held.update(task=task, trainer=trainer, build=build, settings=settings, learner=learner)

        def spying(batch: Any, at: Any) -> Any:
            held.update(batch=batch, at=at)
            return {"loss": torch.zeros(())}

        monkeypatch.setattr(learner, "step", spying, raising=False)
        inputs = method.inputs(task.labeled, task.pool, settings)
        trainer.train("again", learner, inputs, settings)
        held["labels"] = trainer.label("again", learner, task.pool, argmax_rule, round=1)
        return learner

    monkeypatch.setitem(METHODS, name, replace(method, algorithm=algorithm))
    run(config, problem, tmp_path / "run", start_machine("cpu", config.precision), cache=cache)
    assert {"task", "trainer", "build", "settings", "learner", "batch", "at", "labels"} <= held.keys()
    assert not list(breaches(held, problem, world))


def test_the_walk_finds_what_it_looks_for(world: Path, cache: Path) -> None:
    """A leak anywhere below a public attribute, also as a view of an array, is reported."""
    config, problem = open_run(short_settings("eid", data=str(world)), cache, device="cpu")
    assert problem.target is not None
    view = problem.target.y[::2].view()
    leaks = {"a": {"b": [view]}, "c": config, "d": problem.task, "e": [[HistoryRow(epoch=1, target=[50.0])]]}
    paths = [leak.split(":")[0] for leak in breaches(leaks, problem, world)]
    assert {path[0] for path in paths} == {"a", "c", "e"}


def test_a_trainer_and_a_build_offer_their_verbs_only() -> None:
    from ssdg.methods.api import Build, Trainer

    runner: Any = object()
    assert [name for name in dir(Trainer(runner)) if not name.startswith("_")] == ["label", "train"]
    assert [name for name in dir(Build(runner)) if not name.startswith("_")] == ["make"]
