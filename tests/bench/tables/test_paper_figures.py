"""What the figures show, and that they are drawn."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benches import write_bench

from runs import environment
from ssdg.bench.folder import read_results
from ssdg.bench.tables.paper_figures import label_accuracy, label_clouds, label_curves, setting_curves
from ssdg.cli import call
from ssdg.errors import UserError
from ssdg.schema import Result

TASKS = ("P>A", "P>C")


def audit(key: str, cycle: int, **accuracies: float | None) -> dict[str, Any]:
    domains = {name: {"images": 9, "kept": 9, "accuracy": value} for name, value in accuracies.items()}
    return {"key": key, "round": cycle, "domains": domains}


def two_cycles(first: float, second: float) -> list[dict[str, Any]]:
    return [audit("apl/a", 1, a=first), audit("apl/b", 1, b=first + 2), audit("apl/a", 2, a=second)]


@pytest.fixture
def labelers(tmp_path: Path) -> Path:
    """Row y lacks P>C with seed 1; z labels nothing."""
    rows = [{"name": name, "family": "ours"} for name in "xyz"]
    scores = {(row, task, seed): 50.0 + 10 * seed for row in "xyz" for task in TASKS for seed in (0, 1)}
    audits = {("x", task, seed): two_cycles(40 + 20 * seed, 70) for task in TASKS for seed in (0, 1)}
    audits |= {("y", task, seed): two_cycles(30, 31) for task in TASKS for seed in (0, 1)}
    return write_bench(tmp_path / "apl", rows, TASKS, scores | {("y", "P>C", 1): None}, audits=audits)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Cycles 1, 3 and 10 in no order, and two other mixings at three cycles."""
    names = {"ten": (10, "mixup"), "one": (1, "mixup"), "three": (3, "mixup"), "cut": (3, "cutmix"), "xu": (3, "x+u")}
    paper = {"mixup": "MixUp", "cutmix": "CutMix", "x+u": "X+U"}
    rows = [
        {
            "name": name,
            "family": "ours",
            "config": {"method": "eid", "cycles": cycles, "mix": mix},
            "paper": {"method": paper[mix], "cycles": cycles, "clean_rate": 0.4},
        }
        for name, (cycles, mix) in names.items()
    ]
    scores = {
        (name, task, seed): cycles + seed for name, (cycles, _) in names.items() for task in TASKS for seed in (0, 1)
    }
    return write_bench(tmp_path / "eid", rows, TASKS, scores, table="ablation_eid")


def test_label_accuracy_is_that_of_the_labelers() -> None:
    audits = [*two_cycles(40, 50), audit("eid", 1, a=99.0), audit("apl/c", 2, c=None)]
    task = {"labeled": "photo", "unlabeled": ["a", "b", "c"], "classes": ["dog"]}
    result = Result.model_validate({"method": "eid", "seed": 0, "task": task, "pseudo_labels": audits})
    assert label_accuracy(result) == {1: 41, 2: 50}


def test_curves_are_means_of_runs_that_all_rows_have(labelers: Path) -> None:
    curves, runs = label_curves(read_results(labelers))
    assert [curve.name for curve in curves] == ["x", "y"]
    assert runs == {("P>A", 0), ("P>A", 1), ("P>C", 0)}
    assert curves[0].x == [1, 2]
    assert curves[0].means == [pytest.approx((41 + 61 + 41) / 3), 70]
    assert curves[0].deviations == [None, None]  # the seeds have unlike tasks


def test_clouds_take_the_last_cycle(labelers: Path) -> None:
    clouds, _ = label_clouds(read_results(labelers), "final")
    assert clouds[0].points == [(70, 51), (70, 61), (70, 51)]
    assert clouds[0].center == (70, pytest.approx((51 + 61 + 51) / 3))


def test_a_curve_joins_rows_that_differ_in_one_setting(sweep: Path) -> None:
    (curve,), runs = setting_curves(read_results(sweep), "cycles", "last-five", paper=True)
    assert (curve.name, curve.x, curve.means) == ("eid", [1, 3, 10], [1.5, 3.5, 10.5])
    assert curve.deviations == [pytest.approx(math.sqrt(0.5))] * 3
    assert len(runs) == 4
    assert curve.papers[0] == pytest.approx((73.60 + 67.98) / 2)
    (mixes,), _ = setting_curves(read_results(sweep), "mix", "last-five", paper=False)
    assert (mixes.x, mixes.papers) == (["mixup", "cutmix", "x+u"], [None] * 3)


def test_nothing_to_draw(sweep: Path, labelers: Path) -> None:
    with pytest.raises(UserError, match="differ only in clean_rate"):
        setting_curves(read_results(sweep), "clean_rate", "final", paper=False)
    with pytest.raises(UserError, match="pseudo-labels"):
        label_curves(read_results(sweep))


def test_rows_without_a_run_in_common(tmp_path: Path) -> None:
    rows = [{"name": name, "family": "ours"} for name in "xy"]
    scores = {("x", "P>A", 0): 1.0, ("x", "P>C", 0): None, ("y", "P>A", 0): None, ("y", "P>C", 0): 1.0}
    write_bench(tmp_path, rows, TASKS, scores, audits=dict.fromkeys(scores, two_cycles(1, 2)))
    with pytest.raises(UserError, match="for all of x, y"):
        label_curves(read_results(tmp_path))


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_folder_gives_the_same_picture(suffix: str, labelers: Path, sweep: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for folder, kind in ((labelers, "pseudo-labels"), (labelers, "labels-target"), (sweep, "cycles"), (sweep, "mix")):
        pictures = [tmp_path / f"{kind}-{index}{suffix}" for index in range(2)]
        for picture in pictures:
            assert call(["figure", str(folder), kind, "-o", str(picture), "--paper"]) == 0
        assert pictures[0].read_bytes() == pictures[1].read_bytes()
        assert pictures[0].read_bytes().startswith((b"\x89PNG", b"<?xml"))


def test_a_figure_needs_no_torch(sweep: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    words = ["figure", str(sweep), "cycles", "-o", str(tmp_path / "x.png")]
    code = f"import sys\nfrom ssdg.cli import call\nassert call({words!r}) == 0\nassert 'torch' not in sys.modules\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr


def test_words_that_are_refused(sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["figure", str(sweep), "cycles", "-o", str(tmp_path / "x.bmp")]) == 2
    assert ".png or .svg" in capsys.readouterr().err.replace("\n", " ")
    assert call(["figure", str(sweep), "cycle", "-o", str(tmp_path / "x.png")]) == 2
    assert "cycles" in capsys.readouterr().err
    assert not list(tmp_path.glob("x.*"))
