"""A stage that another run has computed is taken as it is: the same bits as computing it anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runs import same_weights, short_settings
from ssdg.engine.events import read_event_dicts
from ssdg.engine.run import run
from ssdg.engine.setup import open_run, with_other_targets
from ssdg.files import write_bytes
from ssdg.machine import start_machine

SHORT: dict[str, Any] = {"cycles": 2, "epochs": 1}


def train(
    world: Path,
    cache: Path,
    folder: Path,
    method: str,
    shelf: Path | None,
    targets: tuple[str, ...] = (),
    **more: Any,
) -> dict[str, Any]:
    config, problem = open_run(short_settings(method, data=str(world), **more), cache, device="cpu")
    problem = with_other_targets(config, problem, targets, cache)
    return run(config, problem, folder, start_machine("cpu"), stage_cache=shelf)


def stripped(result: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on the clock."""
    phases = {
        name: {k: v for k, v in phase.items() if not k.endswith(("seconds", "second"))}
        for name, phase in result["phases"].items()
    }
    return {**{k: v for k, v in result.items() if k != "seconds"}, "phases": phases}


@pytest.fixture(scope="module")
def shelf(world: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Filled by a run on another target, and by one of another method with the same labeler."""
    folder = tmp_path_factory.mktemp("shelf")
    train(world, cache, folder / "other", "eid", folder / "shelf", target="sketch", **SHORT)
    return folder / "shelf"


def epoch_events(folder: Path) -> list[dict[str, Any]]:
    epochs = [event for event in read_event_dicts(folder / "events.jsonl") if event["event"] == "epoch"]
    return [{k: v for k, v in event.items() if k != "time"} for event in epochs]


def test_a_labeler_of_the_same_domain_is_shared_between_targets(
    world: Path, cache: Path, shelf: Path, tmp_path: Path
) -> None:
    """photo with neon unlabeled is in both runs; sketch and night are each in one."""
    before = {path.name for path in shelf.glob("*.safetensors")}
    fresh = train(world, cache, tmp_path / "fresh", "eid", None, **SHORT)
    shared = train(world, cache, tmp_path / "shared", "eid", shelf, **SHORT)
    assert same_weights(tmp_path / "fresh", tmp_path / "shared")
    assert stripped(fresh) == stripped(shared)
    new = {path.name for path in shelf.glob("*.safetensors")} - before
    assert len(new) == 5  # apl/sketch of cycle 1, both of cycle 2, dcg of both; apl/neon of cycle 1 was found
    assert epoch_events(tmp_path / "shared") == epoch_events(tmp_path / "fresh")  # those of the stage found as well
    other = shelf.parent / "other" / "stages" / "1-apl-neon.safetensors"
    assert (tmp_path / "shared" / "stages" / "1-apl-neon.safetensors").read_bytes() == other.read_bytes()


def test_a_pair_takes_the_labelers_of_eid(world: Path, cache: Path, shelf: Path, tmp_path: Path) -> None:
    before = len(list(shelf.glob("*.safetensors")))
    fresh = train(world, cache, tmp_path / "fresh", "mcd+mixstyle", None, target="sketch")
    shared = train(world, cache, tmp_path / "shared", "mcd+mixstyle", shelf, target="sketch")
    assert same_weights(tmp_path / "fresh", tmp_path / "shared")
    assert stripped(fresh) == stripped(shared)
    assert len(list(shelf.glob("*.safetensors"))) == before + 1  # mixstyle's own stage


@pytest.mark.parametrize(
    "more",
    [
        {"seed": 1},
        {"labeler": {"epochs": 2, "batch": 4, "lr": 0.02}},
        {"labeler": {"epochs": 2, "batch": 4, "lr": 0.01, "inner_steps": 3}},
        {"apl": "dann"},
        {"labeled": "night"},
        {"warm_epochs": 1},
        {"resize": "crop"},
    ],
    ids=str,
)
def test_nothing_else_is_taken(more: dict[str, Any], world: Path, cache: Path, shelf: Path, tmp_path: Path) -> None:
    """Another seed, rate, setting, method, labeled domain, start or resizing: every stage is computed."""
    before = {path.name: path.read_bytes() for path in shelf.glob("*.safetensors")}
    settings = {**SHORT, "cycles": 1, "target": "sketch", **more}
    result = train(world, cache, tmp_path / "run", "eid", shelf, **settings)
    after = {path.name for path in shelf.glob("*.safetensors")}
    assert len(after - set(before)) == len(result["phases"])
    for name, content in before.items():
        assert (shelf / name).read_bytes() == content
    for name in after - set(before):  # later runs of this test must not find them
        (shelf / name).unlink()


def test_another_image_size_is_another_stage(world: Path, cache: Path, tmp_path: Path) -> None:
    small = {"backbone": "efficientnet-lite0", "epochs": 1, "iterations": 1}  # its weights fit images of any size
    for count, size in enumerate((32, 64, 32), 1):
        train(world, cache, tmp_path / str(count), "source-only", tmp_path / "shelf", size=size, **small)
        assert len(list((tmp_path / "shelf").glob("*.safetensors"))) == min(count, 2)
    assert same_weights(tmp_path / "1", tmp_path / "3")


@pytest.mark.parametrize("method", ["source-only", "daeldg"])
def test_a_method_without_unlabeled_images_is_trained_once_for_all_targets(
    method: str, world: Path, cache: Path, tmp_path: Path
) -> None:
    targets = ("sketch", "neon", "night")
    shelf = tmp_path / "shelf"
    for target in targets:
        fresh = train(world, cache, tmp_path / f"fresh-{target}", method, None, target=target)
        shared = train(world, cache, tmp_path / f"shared-{target}", method, shelf, targets, target=target)
        assert stripped(fresh) == stripped(shared)
        assert same_weights(tmp_path / f"fresh-{target}", tmp_path / f"shared-{target}")
    assert len(list(shelf.glob("*.safetensors"))) == 1


def test_a_method_with_unlabeled_images_is_not(world: Path, cache: Path, tmp_path: Path) -> None:
    for target in ("sketch", "neon"):
        train(world, cache, tmp_path / target, "mcd", tmp_path / "shelf", ("sketch", "neon"), target=target)
    assert len(list((tmp_path / "shelf").glob("*.safetensors"))) == 2


def test_fewer_cycles_are_the_first_of_more(world: Path, cache: Path, shelf: Path, tmp_path: Path) -> None:
    """On the same target all stages are found, the product's with its scores."""
    before = {path.name for path in shelf.glob("*.safetensors")}
    settings = {**SHORT, "cycles": 1, "target": "sketch"}
    fresh = train(world, cache, tmp_path / "fresh", "eid", None, **settings)
    shared = train(world, cache, tmp_path / "shared", "eid", shelf, **settings)
    assert {path.name for path in shelf.glob("*.safetensors")} == before
    assert stripped(fresh) == stripped(shared)
    assert same_weights(tmp_path / "fresh", tmp_path / "shared")


def test_a_resumed_run_leaves_the_shelf_unchanged(world: Path, cache: Path, tmp_path: Path) -> None:
    """A stage on the shelf and the run's own are one file under two names, until one of them is written anew."""
    folder, shelf = tmp_path / "run", tmp_path / "shelf"
    train(world, cache, folder, "source-only", shelf)
    (kept,) = shelf.glob("*.safetensors")
    content, own = kept.read_bytes(), folder / "stages" / "1-main.safetensors"
    write_bytes(own, b"other")
    assert kept.read_bytes() == content


def test_without_second_names_it_is_copied(
    world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError("not on this file system")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    for name in ("first", "second"):
        train(world, cache, tmp_path / name, "source-only", tmp_path / "shelf")
    assert same_weights(tmp_path / "first", tmp_path / "second")
    assert len(list((tmp_path / "shelf").glob("*.safetensors"))) == 1
