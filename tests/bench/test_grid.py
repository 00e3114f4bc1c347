"""Expansion of a suite into cells; a folder that grows, and rejects another suite."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ssdg.bench.folder import Grid, claim, error_of, lock_of, read_grid, state_of
from ssdg.bench.grid import SuiteChoice, expand, find_task_domains
from ssdg.bench.suites import Row, Suite, find_suite
from ssdg.cli.bench_progress import read_status
from ssdg.config import resolve
from ssdg.data.sources.benchmark import Benchmark, Domain
from ssdg.errors import UserError
from ssdg.files import locked, write_json

SMALL: dict[str, Any] = {"backbone": "digits-cnn", "weights": "none", "size": 32, "batch": 4}
ROWS = (Row("source-only", "source", "source-only"), Row("eid, cycles=1", "ours", "eid", {"cycles": 1}))
SUITE = Suite("mine", "", ROWS, any_data=True, settings=SMALL)


@pytest.fixture
def grid(world: Path, cache: Path):  # type: ignore[no-untyped-def]
    """Cells on the tiny world, whose photo and sketch the catalog takes for PACS."""

    def make(suite: Suite = SUITE, **chosen: Any) -> Grid:
        return expand(suite, SuiteChoice(data=str(world), **chosen), cache, device="cpu")

    return make


def benchmark(*domains: str) -> Benchmark:
    return Benchmark(Path("root"), "made up", tuple(Domain(name, (), (), ()) for name in sorted(domains)))


def test_cells_are_rows_times_tasks_times_seeds(grid) -> None:  # type: ignore[no-untyped-def]
    expanded = grid(seeds=("1", "0"))
    assert expanded.tasks[:4] == ("P>S", "P>neon", "P>night", "S>P")
    assert expanded.seeds == (0, 1)
    assert len(expanded.cells) == 2 * 12 * 2
    assert len({cell.id for cell in expanded.cells}) == len(expanded.cells)
    together = [(cell.seed, cell.config["labeled"]) for cell in expanded.cells]
    changes = sum(a != b for a, b in itertools.pairwise(together))
    assert changes == 2 * 4 - 1, "cells of one labeled domain and seed follow each other"


def test_a_cell_is_a_resolved_configuration_known_by_its_hash(grid) -> None:  # type: ignore[no-untyped-def]
    cell = grid(tasks=("night>photo",), methods=("eid",), seeds=(3,)).cells[0]
    config = resolve(cell.config, kind="photo", size=224)
    assert config.hash == cell.id
    assert config.flat() == cell.config
    assert (config.labeled, config.unlabeled, config.target) == ("night", ("sketch", "neon"), "photo")
    assert (config.seed, config.preset, cell.config["cycles"]) == (3, "paper", 1)


def test_a_row_keeps_its_own_preset(grid) -> None:  # type: ignore[no-untyped-def]
    suite = replace(SUITE, rows=(Row("eid", "ours", "eid"), Row("fast", "ours", "eid", {"preset": "fast"})))
    cells = grid(suite, tasks=("P>S",), preset="release").cells
    assert [cell.config["preset"] for cell in cells] == ["release", "fast"]
    assert [cell.config["lr_shape"] for cell in cells] == ["fixed", "hump"]


def test_rows_that_preset_best_makes_equal_are_rejected(grid) -> None:  # type: ignore[no-untyped-def]
    rows = (Row("eid", "ours", "eid"), Row("eid, style=false", "ours", "eid", {"style": False}))
    suite = replace(SUITE, rows=rows)
    with pytest.raises(UserError, match=r"rows 'eid' and 'eid, style=false' are the same run in preset best; use"):
        grid(suite, tasks=("P>S",), preset="best")
    assert len(grid(suite, tasks=("P>S",), preset="best", methods=("eid, style=false",)).cells) == 1
    assert len({cell.id for cell in grid(suite, tasks=("P>S",), preset="quick").cells}) == 2


@pytest.mark.parametrize("word", ["P>night", "P:night", "photo → NIGHT"])
def test_spellings_of_a_task(word: str, grid) -> None:  # type: ignore[no-untyped-def]
    assert grid(tasks=(word,)).tasks == ("P>night",)


def test_methods_are_rows_by_name_all_rows_of_a_method_or_others(grid) -> None:  # type: ignore[no-untyped-def]
    suite = replace(SUITE, rows=(*ROWS, Row("eid", "ours", "eid")))

    def names(*words: str) -> list[str]:
        return [row.name for row in grid(suite, methods=words, tasks=("P>S",)).rows]

    assert names("eid, cycles=1") == ["eid, cycles=1"]
    assert names("eid", "source-only") == ["source-only", "eid"]
    assert names("mcd+mixstyle", "source-only") == ["source-only", "mcd+mixstyle"]
    without = replace(suite, rows=ROWS[1:])
    assert [row.name for row in grid(without, methods=("eid",), tasks=("P>S",)).rows] == ["eid, cycles=1"]


def test_settings_reach_the_methods_that_have_them(grid) -> None:  # type: ignore[no-untyped-def]
    pair = Row("cdan-e+daeldg", "DA+DG", "cdan-e+daeldg")
    suite = replace(SUITE, rows=(*ROWS, pair))
    settings = {"epochs": 7, "clean_rate": 0.5, "labeler": {"inner_steps": 2, "lr": 0.5}}
    plain, cycle, composed = (cell.config for cell in grid(suite, tasks=("P>S",), settings=settings).cells)
    assert plain["epochs"] == cycle["epochs"] == composed["epochs"] == 7
    assert "clean_rate" not in plain
    assert (cycle["clean_rate"], cycle["labeler"]["inner_steps"], cycle["labeler"]["lr"]) == (0.5, 2, 0.5)
    assert composed["labeler"]["lr"] == 0.5
    assert "inner_steps" not in composed["labeler"]


def test_a_rows_own_settings_win_over_those_of_its_file(grid) -> None:  # type: ignore[no-untyped-def]
    suite = replace(SUITE, settings={**SMALL, "cycles": 5, "clean_rate": 0.9})
    cell = grid(suite, methods=("eid",), tasks=("P>S",)).cells[0]
    assert (cell.config["cycles"], cell.config["clean_rate"]) == (1, 0.9)


def test_the_papers_table_belongs_to_the_papers_domains_only() -> None:
    pacs, digits = find_suite("pacs"), find_suite("digits")
    four = ("photo", "art_painting", "cartoon", "sketch")
    domains = find_task_domains(pacs, benchmark(*four, "web"))
    assert domains.is_papers
    assert list(domains.tasks)[:3] == ["P>A", "P>C", "P>S"]
    assert domains.unlabeled("photo", "sketch") == ["art_painting", "cartoon"]
    assert find_task_domains(digits, benchmark("mnist", "mnist_m", "svhn", "syn")).is_papers
    embedded = find_task_domains(digits, benchmark("mnist", "mnist_m", "optdigits", "syn"))
    assert not embedded.is_papers
    assert list(embedded.tasks)[:3] == ["Mn>Mm", "Mn>Op", "Mn>Sy"]
    assert len(embedded.tasks) == 12
    assert not find_task_domains(find_suite("ablation-dcg"), benchmark("mnist", "syn")).is_papers
    assert not find_task_domains(find_suite("ablation-dcg"), benchmark("photo", "sketch", "neon")).is_papers


def test_a_web_domain_is_no_end_of_a_task() -> None:
    domains = find_task_domains(SUITE, benchmark("photo", "art_painting", "cartoon", "sketch", "web"))
    assert len(domains.tasks) == 12
    assert domains.unlabeled("photo", "sketch") is None


def test_domain_adaptation_has_no_other_domains(grid) -> None:  # type: ignore[no-untyped-def]
    suite = replace(SUITE, settings={**SMALL, "setting": "uda"})
    assert grid(suite, tasks=("P>S",)).cells[0].config["unlabeled"] is None


def test_a_schedule_of_the_paper_is_for_its_presets_and_can_be_changed(grid) -> None:  # type: ignore[no-untyped-def]
    suite = Suite("s", "x", (Row("mcd", "DA", "mcd", {}, None, {"epochs": 7, "batch": 36}),), any_data=True)
    chosen = {"tasks": ("P>S",), "settings": {"backbone": "digits-cnn", "weights": "none", "size": 32}}
    epochs = [
        grid(suite, preset=preset, **chosen).cells[0].config["epochs"] for preset in ("paper", "release", "quick")
    ]
    assert epochs[:2] == [7, 7]
    assert epochs[2] != 7
    chosen["settings"] = {**chosen["settings"], "epochs": 2}
    config = grid(suite, preset="paper", **chosen).cells[0].config
    assert (config["epochs"], config["batch"]) == (2, 36)


def test_suite_json_is_read_as_it_was_written(grid, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    expanded = grid(tasks=("P>S",))
    claim(tmp_path, expanded)
    assert read_grid(tmp_path) == expanded
    content = json.loads((tmp_path / "suite.json").read_text())
    keys = ["format", "name", "table", "data", "preset", "settings", "rows", "tasks", "seeds", "cells"]
    assert list(content) == keys
    assert content["rows"][0] == {"name": "source-only", "family": "source", "paper": None}


def test_a_folder_grows_in_the_order_of_the_suite(grid, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    claim(tmp_path, grid(methods=("eid",), tasks=("S>P",), seeds=(1,)))
    claim(tmp_path, grid(methods=("source-only",), tasks=("P>S",)))
    merged = read_grid(tmp_path)
    assert [row.name for row in merged.rows] == ["source-only", "eid, cycles=1"]
    assert (merged.tasks, merged.seeds) == (("P>S", "S>P"), (0, 1))
    cells = [(cell.row, cell.task, cell.seed) for cell in merged.cells]
    assert cells == [("source-only", "P>S", 0), ("eid, cycles=1", "S>P", 1)]


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"preset": "release"}, "preset='paper' there, 'release' now"),
        ({"settings": {"epochs": 3}}, "epochs=None there, 3 now"),
        ({"suite": replace(SUITE, name="other")}, "suite='mine' there, 'other' now"),
        (
            {"suite": replace(SUITE, rows=(ROWS[0], replace(ROWS[1], settings={"cycles": 2})))},
            "cycles=1 there, 2 now",
        ),
    ],
)
def test_a_folder_of_another_suite_is_refused(other: Any, difference: str, grid, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    claim(tmp_path, grid(tasks=("P>S",)))
    before = (tmp_path / "suite.json").read_bytes()
    with pytest.raises(UserError, match=f"holds another benchmark .{difference}"):
        claim(tmp_path, grid(tasks=("P>S",), seeds=(1,), **other))
    assert (tmp_path / "suite.json").read_bytes() == before


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "cells": [{}]}', "\udcff"])
def test_a_damaged_suite_json(text: str, tmp_path: Path) -> None:
    (tmp_path / "suite.json").write_text(text, errors="surrogateescape")
    with pytest.raises(UserError, match="damaged or from another version"):
        read_grid(tmp_path)


def test_the_state_of_a_cell_is_which_files_exist(tmp_path: Path) -> None:
    assert state_of(tmp_path, "c") == "missing"
    with locked(lock_of(tmp_path, "c")):
        assert state_of(tmp_path, "c") == "running"
    assert state_of(tmp_path, "c") == "missing"
    error_of(tmp_path, "c").write_text("why\n")
    assert state_of(tmp_path, "c") == "failed"
    with locked(lock_of(tmp_path, "c")):
        assert state_of(tmp_path, "c") == "running", "it is tried again"
    (tmp_path / "cells" / "c" / "result.json").write_text("{}")
    assert state_of(tmp_path, "c") == "done"


def test_time_left_is_estimated_from_cells_of_the_same_row(grid, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    expanded = grid(tasks=("P>S", "S>P", "neon>P"))
    ids = {(cell.row, cell.task): cell.id for cell in expanded.cells}
    assert read_status(tmp_path, expanded).seconds_left(expanded.cells) is None
    task = {"labeled": "photo", "unlabeled": [], "target": "sketch", "classes": ["bar", "ring"]}
    for key, seconds in {
        ("source-only", "P>S"): 10,
        ("source-only", "S>P"): 20,
        ("eid, cycles=1", "P>S"): 100,
    }.items():
        result = {"method": "eid", "seed": 0, "task": task, "seconds": seconds}
        write_json(tmp_path / "cells" / ids[key] / "result.json", result)
    status = read_status(tmp_path, expanded)
    assert status.counts == {"done": 3, "running": 0, "failed": 0, "missing": 3}
    assert status.seconds_left(expanded.cells) == 15 + 100 + 100
    assert status.seconds_left(expanded.cells, workers=2) == 107.5
    with locked(lock_of(tmp_path, ids["eid, cycles=1", "S>P"])):
        assert read_status(tmp_path, expanded).seconds_left(expanded.cells) == 15 + 50 + 100
