"""From a benchmark folder to a table: what is averaged, what is left out, what is marked."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benches import write_bench

from runs import environment
from ssdg.bench.folder import read_results
from ssdg.bench.tables.results_table import AVERAGE, AVERAGE_OF_MEAN, Table, make_table
from ssdg.cli import call
from ssdg.errors import UserError

ROWS: list[dict[str, Any]] = [
    {"name": "eid", "family": "ours", "paper": {"method": "Ours w/ MixUp"}},
    {"name": "fixmatch", "family": "SSL", "paper": {"method": "FixMatch"}},
    {"name": "source-only", "family": "source"},
    {"name": "mcd", "family": "DA", "paper": {"method": "MCD"}},
]
TASKS = ("P>A", "P>C")
SCORES: dict[tuple[str, str, int], float | None] = {
    ("eid", "P>A", 0): 60.0,
    ("eid", "P>A", 1): 64.0,
    ("eid", "P>C", 0): 70.0,
    ("eid", "P>C", 1): 78.0,
    ("fixmatch", "P>A", 0): 61.0,
    ("fixmatch", "P>A", 1): 63.0,
    ("fixmatch", "P>C", 0): 50.0,
    ("fixmatch", "P>C", 1): 52.0,
    ("source-only", "P>A", 0): 40.0,
    ("source-only", "P>A", 1): 42.0,
    ("source-only", "P>C", 0): 30.0,
    ("source-only", "P>C", 1): 32.0,
    ("mcd", "P>A", 0): 50.0,
    ("mcd", "P>A", 1): 51.0,
    ("mcd", "P>C", 0): 60.0,
    ("mcd", "P>C", 1): 61.0,
}


def table_of(folder: Path, scores: dict[tuple[str, str, int], float | None], **more: Any) -> Table:
    write_bench(folder, ROWS, TASKS, scores, table="pacs")
    return make_table(read_results(folder), "last-five", **{"network": "mean", **more})


def entry(table: Table, row: str, column: str):  # type: ignore[no-untyped-def]
    return next(line for line in table.lines if line.name == row).entries[column]


def test_means_deviations_and_order(tmp_path: Path) -> None:
    table = table_of(tmp_path, SCORES)
    assert [line.name for line in table.lines] == ["source-only", "mcd", "fixmatch", "eid"]
    cell = entry(table, "eid", "P>A")
    assert cell.mean == 62
    assert cell.deviation == pytest.approx(math.sqrt(8))  # of 60 and 64: (4 + 4) / (2 - 1)
    average = entry(table, "eid", AVERAGE)
    assert average.values == {0: 65, 1: 71}
    assert average.mean == 68


def test_best_and_second_with_equals(tmp_path: Path) -> None:
    table = table_of(tmp_path, SCORES)
    marks = {line.name: [line.entries[c].mark for c in table.columns] for line in table.lines}
    assert marks["eid"] == ["best", "best", "best"]
    assert marks["fixmatch"] == ["best", "", "second"]  # 62 as eid in P>A
    assert marks["mcd"] == ["second", "second", ""]
    assert marks["source-only"] == ["", "", ""]


def test_missing_cells_are_not_averaged(tmp_path: Path) -> None:
    scores = SCORES | {("mcd", "P>C", 0): None, ("mcd", "P>C", 1): None, ("fixmatch", "P>A", 1): None}
    table = table_of(tmp_path, scores)
    assert entry(table, "mcd", "P>A").mean == 50.5
    assert entry(table, "mcd", "P>C").mean is None
    assert entry(table, "mcd", AVERAGE).mean is None
    assert entry(table, "fixmatch", AVERAGE).values == {0: 55.5}  # seed 1 lacks a task
    assert table.seeds_differ
    assert any("13 of 16 cells are done" in note for note in table.notes)


def test_a_column_with_one_number_has_no_best(tmp_path: Path) -> None:
    table = table_of(tmp_path, {key: score for key, score in SCORES.items() if key[0] == "eid"})
    assert {e.mark for line in table.lines for e in line.entries.values()} == {""}
    assert [c.num_pairs for c in table.comparisons] == [0, 0, 0]


def test_the_other_number(tmp_path: Path) -> None:
    write_bench(tmp_path, ROWS, TASKS, SCORES, epochs_averaged=2)
    final = make_table(read_results(tmp_path), "final", network="mean")
    assert entry(final, "eid", "P>A").mean == 63
    assert "last epoch" in final.notes[0]
    five = make_table(read_results(tmp_path), "last-five", network="mean")
    assert "mean of the last five epochs (fewer, down to 2, if the last cycle is shorter)" in five.notes[0]
    assert five.notes[0].startswith("made-up on world, preset quick")  # no path of this machine


def test_rows_with_presets_of_their_own(tmp_path: Path) -> None:
    rows = [{**row, "config": {"preset": "fast" if row["name"] == "eid" else "paper"}} for row in ROWS]
    table = make_table(read_results(write_bench(tmp_path, rows, TASKS, SCORES)), "final", network="mean")
    assert table.notes[0].startswith("made-up on world, presets fast and paper: ")


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    table = table_of(tmp_path, {key: score for key, score in SCORES.items() if key[2] == 0})
    assert entry(table, "eid", "P>A").deviation is None
    assert "One seed." in table.notes


def test_the_row_that_is_tested(tmp_path: Path) -> None:
    table = table_of(tmp_path, SCORES)
    assert [(c.row, c.other) for c in table.comparisons] == [
        ("eid", "source-only"),
        ("eid", "mcd"),
        ("eid", "fixmatch"),
    ]
    assert table.comparisons[2].difference == (-1 + 1 + 20 + 26) / 4
    results = read_results(tmp_path)
    assert {c.row for c in make_table(results, "final", network="mean", against="mcd").comparisons} == {"mcd"}
    with pytest.raises(UserError, match=r"did you mean 'mcd'\?"):
        make_table(results, "final", network="mean", against="mdc")


def test_without_a_row_of_ours_nothing_is_tested(tmp_path: Path) -> None:
    write_bench(tmp_path, ROWS[1:], TASKS, {k: v for k, v in SCORES.items() if k[0] != "eid"})
    assert make_table(read_results(tmp_path), "final", network="mean").comparisons == ()
    ours = {"name": "eid, cycles=1", "family": "Ours"}
    write_bench(tmp_path, [*ROWS[1:], ours], TASKS, {("eid, cycles=1", "P>A", 0): 1.0})
    assert make_table(read_results(tmp_path), "final", network="mean").comparisons[0].row == "eid, cycles=1"


def test_the_paper_next_to_ours(tmp_path: Path) -> None:
    table = table_of(tmp_path, SCORES, paper=True)
    assert entry(table, "eid", "P>C").paper == 70.98
    assert entry(table, "source-only", "P>A").paper is None
    assert entry(table, "eid", AVERAGE).paper == pytest.approx((75.52 + 70.98) / 2)  # of the tasks that are here
    assert entry(table_of(tmp_path, SCORES), "eid", "P>C").paper is None


def test_a_table_that_the_paper_lacks_says_so(tmp_path: Path) -> None:
    averages, none = "The paper's averages are computed", "The paper has no numbers for these rows and tasks."
    known = table_of(tmp_path / "known", SCORES, paper=True)
    assert known.notes[-1].startswith(averages)
    write_bench(tmp_path / "other", ROWS, TASKS, SCORES, table=None)
    other = make_table(read_results(tmp_path / "other"), "last-five", network="mean", paper=True)
    assert other.notes[-1] == none
    assert not any(note.startswith(averages) for note in other.notes)
    unasked = make_table(read_results(tmp_path / "other"), "last-five", network="mean")
    assert none not in unasked.notes


def test_tasks_that_the_paper_lacks_leave_its_average_out(tmp_path: Path) -> None:
    write_bench(tmp_path, ROWS[:1], ("P>A", "P>X"), {("eid", "P>A", 0): 1.0}, table="pacs")
    table = make_table(read_results(tmp_path), "final", network="mean", paper=True)
    assert entry(table, "eid", "P>A").paper == 75.52
    assert entry(table, "eid", AVERAGE).paper is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "suite.json").unlink(), "not a benchmark folder"),
        (lambda folder: (folder / "suite.json").write_text("{"), "damaged"),
        (lambda folder: (folder / "suite.json").write_text('{"format": 2}'), "another version"),
        (lambda folder: edit_suite(folder, tasks=["P>A"]), "task 'P>C'"),
        (lambda folder: (folder / "cells" / "eid-P-A-0" / "result.json").write_text("{}"), "method: Field required"),
        (lambda folder: edit_result(folder, target=None), "has no scored target; delete the folder"),
        (lambda folder: edit_result(folder, target={**SCORED, "last_five": {}}), "has no scored target; delete"),
        (lambda folder: shutil.rmtree(folder), "not a benchmark folder"),
    ],
)
def test_folders_that_cannot_be_read(change: Any, message: str, tmp_path: Path, capsys: Any) -> None:
    folder = write_bench(tmp_path / "bench", ROWS, TASKS, SCORES)
    change(folder)
    assert call(["table", str(folder)]) == 2
    sentence = capsys.readouterr().err
    assert message in sentence.replace("\n", " ")
    assert "Traceback" not in sentence


SCORED = {"final": {"mean": 1.0}, "last_five": {"mean": 1.0}, "epochs_averaged": 1}


def edit_result(folder: Path, **values: object) -> None:
    path = folder / "cells" / "eid-P-A-0" / "result.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def edit_suite(folder: Path, **values: object) -> None:
    path = folder / "suite.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_a_table_needs_no_torch(tmp_path: Path) -> None:
    folder = write_bench(tmp_path, ROWS, TASKS, SCORES, table="pacs")
    code = (
        "import sys\nfrom ssdg.cli import call\n"
        f"assert call(['table', {str(folder)!r}, '--paper']) == 0\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    assert "eid minus" in done.stdout


def test_a_network_can_be_chosen(tmp_path: Path) -> None:
    """The paper's suites score network 1 and show the mean of the networks next to it; others the mean."""
    results = read_results(write_bench(tmp_path, ROWS, TASKS, SCORES, table="pacs"))
    assert results.grid.table is not None
    for result in results.by_cell.values():
        assert result.target is not None
        result.target.final["network_1"] = 1.0
    first, mean_of_all = (make_table(results, "final", network=network) for network in ("1", "mean"))
    default = make_table(results, "final")
    assert default.network == "1"
    assert default.columns == (*mean_of_all.columns, AVERAGE_OF_MEAN)
    for line, other in zip(default.lines, mean_of_all.lines, strict=True):
        assert line.entries[AVERAGE_OF_MEAN].values == other.entries[AVERAGE].values
    assert entry(default, "eid", "P>A").values == entry(first, "eid", "P>A").values == {0: 1.0, 1: 1.0}
    assert "network 1" in default.notes[0]
    assert "networks averaged" in mean_of_all.notes[0]
    own = replace(results, grid=replace(results.grid, table=None))
    assert make_table(own, "final").network == "mean"


def test_a_method_of_one_network_has_that_one(tmp_path: Path) -> None:
    results = read_results(write_bench(tmp_path, ROWS, TASKS, SCORES, table="pacs"))
    for result in results.by_cell.values():
        assert result.target is not None
        result.target.final.pop("network_2", None)
    (cell, *_) = results.grid.of("eid")
    assert results.accuracy(cell, "final", "2") == results.accuracy(cell, "final", "mean")
