"""What a run keeps to be looked at: it is what the data and the networks are, and changes neither."""

from __future__ import annotations

import json
import shutil
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from builders import flat_images, labeled_set, unlabeled_set
from leftovers import leave
from runs import same_weights, short_settings, train_here
from ssdg.cli import call
from ssdg.data.hidden import OOD, UNKNOWN, Problem, Target
from ssdg.data.sets import Inputs, Task
from ssdg.engine.plan import shorten_run
from ssdg.engine.replay import open_past_run
from ssdg.engine.run import run
from ssdg.engine.samples import (
    FinishedStage,
    Samples,
    compress,
    domains_of,
    evaluation_mode,
    first_mixed,
    sampled_domains,
    sampled_rows,
    sprite_of,
    without_augmentation,
)
from ssdg.engine.setup import open_run
from ssdg.machine import start_machine
from ssdg.methods.api import Settings, StageRequest
from worlds import CLASSES

EID: dict[str, Any] = {"labeler": {"epochs": 1, "batch": 4, "lr": 0.01}}  # as the run `evolved`


def index_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "samples" / "index.json").read_text()))


def features_of(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """By file; and in each the arrays by name."""
    features = {}
    for path in sorted((folder / "samples").glob("features-*.npz")):
        with np.load(path, allow_pickle=False) as file:
            features[path.stem.removeprefix("features-")] = dict(file)
    return features


def names_in(arrays: dict[str, np.ndarray]) -> list[str]:
    return list(json.loads(str(arrays["names"])))


def tile_of(index: dict[str, Any], folder: Path, domain: str, index_of_tile: int) -> np.ndarray:
    side, (line, column) = index["tile"], divmod(index_of_tile, index["columns"])
    with Image.open(folder / "samples" / index["domains"][domain]["sprite"]) as sheet:
        box = (column * side, line * side, (column + 1) * side, (line + 1) * side)
        return np.asarray(sheet.convert("RGB").crop(box), np.float64)


def test_the_index_describes_every_domain(evolved: Path) -> None:
    index = index_of(evolved)
    assert {name: domain["role"] for name, domain in index["domains"].items()} == {
        "photo": "labeled",
        "neon": "unlabeled",
        "sketch": "unlabeled",
        "night": "target",
    }
    assert tuple(index["classes"]) == CLASSES
    counted = json.loads((evolved / "result.json").read_text())["task"]["images"]
    for name, domain in index["domains"].items():
        assert domain["images"] == counted.get(name, counted["target"])
        assert domain["rows"] == list(range(domain["images"]))  # few enough to be shown all
        assert [path.split("/")[1] for path in domain["paths"]] == [CLASSES[y] for y in domain["truth"]]
        assert domain["web"] is None


def test_a_thumbnail_is_the_image_of_its_row(evolved: Path, world: Path) -> None:
    index = index_of(evolved)
    for name, domain in index["domains"].items():
        originals = []
        for path in domain["paths"]:
            with Image.open(world / path) as image:
                originals.append(
                    np.asarray(image.convert("RGB").resize((48, 48), Image.Resampling.BICUBIC), np.float64)
                )
        for position in range(len(originals)):
            tile = tile_of(index, evolved, name, position)
            distances = [np.abs(tile - other).mean() for other in originals]
            assert int(np.argmin(distances)) == position


def test_rows_are_those_of_the_label_files(evolved: Path, cache: Path) -> None:
    """The order of the index is the pool's: what is right by its truth is what the auditor counted."""
    index, offset = index_of(evolved), 0
    result = json.loads((evolved / "result.json").read_text())
    audits = {(a["key"], a["round"]): a["domains"] for a in result["pseudo_labels"]}
    with np.load(evolved / "labels" / "1-eid.npz") as file:
        together = file["y"]
    for name in result["task"]["unlabeled"]:
        domain = index["domains"][name]
        with np.load(evolved / "labels" / f"1-apl-{name}.npz") as file:
            alone = file["y"]
        for y, key in ((alone, f"apl/{name}"), (together[offset:], "eid")):
            right = y[domain["rows"]] == domain["truth"]
            assert 100 * right.mean() == pytest.approx(audits[key, 1][name]["accuracy"], abs=1e-3)
        offset += domain["images"]


def test_a_stage_shows_the_domains_it_learned_from_and_the_product_all(evolved: Path) -> None:
    domains = {name: names_in(arrays) for name, arrays in features_of(evolved).items()}
    everything = ["photo", "neon", "sketch", "night"]
    assert domains == {
        "1-apl-neon": ["photo", "neon"],
        "1-apl-sketch": ["photo", "sketch"],
        "1-dcg": everything,
        "2-apl-neon": ["photo", "neon", "(intermediate)"],
        "2-apl-sketch": ["photo", "sketch", "(intermediate)"],
        "2-dcg": everything,
    }


def test_features_are_those_of_the_stage_and_of_sampled_rows(evolved: Path, cache: Path) -> None:
    """Looked at again in a replay; distances are what a picture shows."""
    past, kept, index = open_past_run(evolved, cache=cache, device="cpu"), features_of(evolved), index_of(evolved)
    tables = {name: domain.images for name, domain in sampled_domains(past.problem).items()}
    seen = []

    def look(stage: FinishedStage) -> None:
        name = f"{stage.request.round}-{stage.request.key.replace('/', '-')}"
        arrays, images = kept[name], []
        for number, domain in enumerate(names_in(arrays)):
            rows, values = arrays[f"rows{number}"], arrays[str(number)]
            assert values.dtype == np.float16
            assert len(rows) == len(values)
            assert values.shape[1] <= 64
            if domain == "(intermediate)":
                pipeline = without_augmentation(past.pipelines.images)
                mixed = list(first_mixed(stage, stage.request.inputs.labeled, len(rows), pipeline))  # type: ignore[arg-type]
                images += [batch.x for batch in mixed]
                assert set(rows) == {-1}
                assert arrays["y"].tolist() == torch.cat([batch.y for batch in mixed]).argmax(1).tolist()
            else:
                assert set(rows) <= set(index["domains"][domain]["rows"])
                images.append(torch.from_numpy(tables[domain][rows]).permute(0, 3, 1, 2) / 255)
        stage.request.learner.nets.eval()
        backbone = next(m for m in stage.request.learner.nets.modules() if hasattr(m, "style_stages"))
        with torch.inference_mode():
            wanted = backbone(torch.cat(images).float()).double()
        features = np.concatenate([arrays[str(n)] for n in range(len(names_in(arrays)))]).astype(np.float64)
        gaps = [torch.cdist(x, x) for x in (torch.from_numpy(features), wanted)]
        assert (gaps[0] - gaps[1]).norm() < 0.01 * gaps[1].norm()
        seen.append(name)

    past.replay(look)
    assert seen == list(kept)


def test_keeping_them_changes_no_bit(
    evolved: Path, world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Samples, "write_index", lambda self: None)
    monkeypatch.setattr(Samples, "save_features", lambda self, stage: None)
    train_here(world, cache, tmp_path, "eid", **EID)
    assert not (tmp_path / "samples").exists()
    assert same_weights(evolved, tmp_path)
    assert (evolved / "predictions.csv").read_bytes() == (tmp_path / "predictions.csv").read_bytes()


def test_a_resumed_run_keeps_existing_samples_and_writes_missing_ones(
    evolved: Path, world: Path, cache: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(evolved, tmp_path / "again")
    before, samples = features_of(folder), folder / "samples"
    (folder / "result.json").unlink()  # so that it has not ended
    (samples / "features-1-apl-neon.npz").unlink()
    (samples / "features-2-dcg.npz").unlink()
    leave(samples / "features-2-dcg.npz")
    there = {path: path.stat().st_ino for path in samples.glob("[!.]*")}
    train_here(world, cache, folder, "eid", **EID)
    after = features_of(folder)
    assert after.keys() == before.keys()
    for name, arrays in before.items():
        assert arrays.keys() == after[name].keys()
        assert all(np.array_equal(values, after[name][key]) for key, values in arrays.items())
    assert {path: path.stat().st_ino for path in there} == there
    assert not list(samples.glob(".*"))


def test_without_an_index_its_pictures_are_written_again(
    evolved: Path, world: Path, cache: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(evolved, tmp_path / "again")
    (folder / "result.json").unlink()
    (folder / "samples" / "index.json").unlink()
    (folder / "samples" / "1.webp").unlink()  # the kill came between two of them
    train_here(world, cache, folder, "eid", **EID)
    for name in ("index.json", "0.webp", "1.webp"):
        assert (folder / "samples" / name).read_bytes() == (evolved / "samples" / name).read_bytes()


def test_stages_from_a_shelf_are_looked_at_too(world: Path, cache: Path, tmp_path: Path) -> None:
    for name in ("first", "second"):
        config, problem = open_run(short_settings("mcd+mixstyle", data=str(world), epochs=1), cache, device="cpu")
        run(config, problem, tmp_path / name, start_machine("cpu"), stage_cache=tmp_path / "shelf")
    first, second = features_of(tmp_path / "first"), features_of(tmp_path / "second")
    assert list(first) == list(second) == ["1-apl-neon", "1-apl-sketch", "1-main"]
    assert all(np.array_equal(first[name][key], second[name][key]) for name in first for key in first[name])


def test_a_dry_run_keeps_nothing_and_names_its_images_right(
    world: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "--preset",
        "paper",
        "--data",
        world,
        "--labeled",
        "photo",
        "--target",
        "night",
        "--cache",
        cache,
        "--dry-run",
    ]
    small = ["backbone=digits-cnn", "weights=none", "size=32", "--method", "source-only"]
    assert call([str(word) for word in [*words, *small]]) == 0
    assert not list(tmp_path.iterdir())
    _, problem = shorten_run(*open_run(short_settings("eid", data=str(world)), cache, device="cpu"))
    for domain in sampled_domains(problem).values():
        assert domain.truth is not None
        assert [path.split("/")[1] for path in domain.paths] == [CLASSES[y] for y in domain.truth]


def test_the_number_of_sampled_images_is_limited() -> None:
    table = flat_images(np.arange(1000) % 251)
    tiles, points = sampled_rows(table, 400), sampled_rows(table, 150)
    assert len(tiles) == 400
    assert tiles.tolist() == sorted(set(tiles.tolist()))
    assert set(points) < set(tiles)
    assert sampled_rows(flat_images(np.arange(1000) % 251), 400).tolist() == tiles.tolist()
    assert sampled_rows(flat_images(np.arange(1000) % 241), 400).tolist() != tiles.tolist()
    sheet = Image.open(BytesIO(sprite_of(table[tiles])))
    assert (sheet.size, sheet.format) == ((20 * 48, 20 * 48), "WEBP")


def tiny_problem() -> Problem:
    """A crawl with an image of no class, and a target of which nothing is known."""
    task = Task(("a", "b"), labeled_set([1, 2], [0, 1]), {"web": unlabeled_set([3, 4, 5])})
    target = Target("far", flat_images([6]), ("x.png",), np.array([UNKNOWN]))
    crawl = {"truth": {"web": np.array([0, OOD, UNKNOWN])}, "web_labels": {"web": np.array([1, 0, -1])}}
    return Problem(task, ("near", "web"), target, paths={"web": ("p", "q", "r")}, **crawl)


def test_unknown_classes_are_marked(tmp_path: Path) -> None:
    Samples(tmp_path / "samples", tiny_problem(), None).write_index()  # type: ignore[arg-type]
    domains = index_of(tmp_path)["domains"]
    assert [domains[name]["truth"] for name in ("near", "web", "far")] == [[0, 1], [0, OOD, UNKNOWN], None]
    assert [domains[name]["web"] for name in ("near", "web", "far")] == [None, [1, 0, -1], None]
    assert [domains[name]["paths"] for name in ("near", "web", "far")] == [["", ""], ["p", "q", "r"], ["x.png"]]


def test_a_stage_of_one_domain_or_of_foreign_networks_has_no_picture(tmp_path: Path) -> None:
    problem, learner = tiny_problem(), SimpleNamespace(nets=nn.ModuleDict())
    facts: dict[str, Any] = {"learner": learner, "settings": Settings()}
    alone, both = Inputs(problem.task.labeled), Inputs(problem.task.labeled, unlabeled=problem.task.pool)
    warm = FinishedStage(StageRequest("warm", inputs=alone, product=False, **facts), 0, None)
    labeler = FinishedStage(StageRequest("apl/web", inputs=both, product=False, **facts), 0, None)
    product = FinishedStage(StageRequest("main", inputs=alone, product=True, **facts), 0, None)
    names = [domains_of(stage, problem) for stage in (warm, labeler, product)]
    assert names == [["near"], ["near", "web"], ["near", "web", "far"]]
    for stage in (warm, labeler, product):
        Samples(tmp_path / "samples", problem, None).save_features(stage)  # type: ignore[arg-type]
    assert not (tmp_path / "samples").exists()


def test_wide_features_keep_their_distances_and_stay_finite() -> None:
    rng = np.random.default_rng(0)
    wide = (rng.normal(size=(50, 10)) @ rng.normal(size=(10, 300))).astype(np.float32)
    compressed = compress(wide)
    assert compressed.shape == (50, 50)  # no more components than images
    gaps = [
        np.linalg.norm(x[:, None].astype(np.float64) - x[None].astype(np.float64), axis=-1)
        for x in (wide, compressed)
    ]
    np.testing.assert_allclose(gaps[1], gaps[0], rtol=5e-3, atol=0.05)
    assert compress(np.ones((100, 80), np.float32)).shape == (100, 64)
    few = np.array([[1.5, -2.0]], np.float32)
    assert compress(few).tolist() == few.tolist()
    assert np.isfinite(compress(np.array([[1e9, -1e9, np.nan]], np.float32))).all()


def test_modes_are_as_before() -> None:
    nets = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout())
    nets[0].eval()
    with evaluation_mode(nets):
        assert not any(module.training for module in nets.modules())
    assert [module.training for module in nets.modules()] == [True, False, True]
