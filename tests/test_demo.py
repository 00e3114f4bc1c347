"""`ssdg demo` on tiny digits: its rows, table, figure and numbers, with unlabeled domains and with a crawl."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runs import short_settings
from ssdg.cli import call, demo
from ssdg.schema import Result

pytest.importorskip("matplotlib", reason="the figure needs the demo extra")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three domains of two digits and a crawl: every fifth keyword is wrong, every sixth image is no digit."""
    root = tmp_path_factory.mktemp("tiny")
    rng = np.random.default_rng(0)
    for name in ("syn", "mnist", "optdigits", "web"):
        truth = np.arange(60) % 2
        images = rng.integers(0, 80, (60, 32, 32, 3)) + 150 * truth[:, None, None, None]
        arrays: dict[str, Any] = {"images": images.astype(np.uint8), "labels": truth}
        if name == "web":
            arrays["web_labels"] = np.where(np.arange(60) % 5 == 0, 1 - truth, truth)
            arrays["labels"] = np.where(np.arange(60) % 6 == 1, -1, truth)
        np.savez(root / f"{name}.npz", **arrays)
    return root


def small(chosen: demo.Demo, root: Path) -> demo.Demo:
    """The demo with the same rows in seconds."""
    task = {**chosen.task, "data": str(root), "preset": "paper"}
    if chosen is demo.CLOSED:
        task["unlabeled"] = ["optdigits"]
    rows = {}
    for name, row in chosen.rows.items():
        settings = {**short_settings(row["method"]), **row}
        settings |= {"labeled": "syn", "target": "mnist", "warm_epochs": 1}
        if row["method"] == "eid":
            settings |= {"iterations": 2, "labeler": {"epochs": 1, "iterations": 2, "batch": 4}}
        rows[name] = settings
    return replace(chosen, task=task, rows=rows)


@pytest.mark.parametrize(("name", "words"), [("CLOSED", []), ("OPEN", ["--open-set"])])
def test_the_demo_ends_with_a_table_a_figure_and_its_numbers(
    name: str,
    words: list[str],
    tiny: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = small(getattr(demo, name), tiny)
    monkeypatch.setattr(demo, name, chosen)
    monkeypatch.setenv("COLUMNS", "200")
    command = ["demo", *words, "--seeds", "0", "1", "--out", str(tmp_path), "--cache", str(cache), "--threads", "1"]
    assert call(command) == 0
    summary = json.loads((tmp_path / "demo.json").read_text())
    assert list(summary["methods"]) == list(chosen.rows)
    output = capsys.readouterr().out
    for row, figures in summary["methods"].items():
        final = [result(tmp_path, row, seed)["target"]["final"]["mean"] for seed in (0, 1)]
        assert figures["final"] == final
        assert f"{final[0]:.2f}" in output
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f"{row}-seed1" in page for row in chosen.rows)
    assert f"report: {tmp_path / 'report.html'}" in output
    before = (tmp_path / "demo.json").read_bytes()
    assert call(command) == 0  # again: nothing is trained, the same numbers
    assert (tmp_path / "demo.json").read_bytes() == before


def result(folder: Path, row: str, seed: int) -> dict[str, Any]:
    return dict(json.loads((folder / f"{row}-seed{seed}" / "result.json").read_text()))


def crawl_result(strategy: str, labelers: dict[int, float], clean: dict[str, int] | None = None) -> Result:
    counts = {"images": 100, "kept": 100}
    audits = [
        {"key": "apl/web", "round": number, "domains": {"web": {**counts, "kept_accuracy": value}}}
        for number, value in labelers.items()
    ]
    if clean is not None:
        audits.append({"key": "eid", "round": 3, "domains": {"web": {**counts, **clean}}})
    values = {
        "method": "eid",
        "seed": 0,
        "task": {"labeled": "syn", "unlabeled": ["web"], "classes": ["0", "1"]},
        "epochs": [{"round": cycle, "epoch": number} for cycle, number in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 1))],
        "web_labels": {"strategy": strategy, "domains": {"web": {**counts, "kept_accuracy": 85.0}}},
        "pseudo_labels": audits,
    }
    return Result.model_validate(values)


def test_the_labels_that_dcg_learned_by_strategy() -> None:
    learned = demo.learned_label_accuracy
    assert learned(crawl_result("ignored", {1: 40.0, 2: 50.0, 3: 60.0})) == [40, 50, 60]
    assert learned(crawl_result("refined", {2: 88.0, 3: 90.0})) == [85, 88, 90]
    assert learned(crawl_result("retained", {})) == [85, 85, 85]


def test_a_clean_set_without_an_image_of_the_crawl_is_no_error() -> None:
    clean = {"kept": 0, "ood_kept": 0, "repaired": 0, "broken": 0}
    run = crawl_result("refined", {2: 88.0, 3: 90.0}, clean)
    assert demo.label_cells([run]) == ["85 → 88 → 90", "-", "-", "-"]
    full = {**clean, "kept": 50, "ood_kept": 5, "repaired": 7}
    other = crawl_result("refined", {2: 88.0, 3: 90.0}, full)
    assert demo.label_cells([run, other]) == ["85 → 88 → 90", "10.0", "7", "0"]
