"""Several runs and benchmark folders on one page."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from folders import write_run

sys.path.append(str(Path(__file__).parent.parent / "bench"))
from benches import write_bench

from ssdg.report.page import build

ROWS: list[dict[str, Any]] = [
    {"name": "eid", "family": "ours", "paper": {"method": "Ours w/ MixUp"}, "config": {"lr": 0.1, "cycles": 3}},
    {"name": "mcd", "family": "DA", "paper": {"method": "MCD"}, "config": {"lr": 0.2}},
]
SCORES: dict[tuple[str, str, int], float | None] = {
    ("eid", "P>A", 0): 60.0,
    ("eid", "P>A", 1): 64.0,
    ("eid", "P>C", 0): 70.0,
    ("eid", "P>C", 1): None,
    ("mcd", "P>A", 0): 65.0,
    ("mcd", "P>A", 1): 65.0,
    ("mcd", "P>C", 0): None,
    ("mcd", "P>C", 1): None,
}


def bench(folder: Path) -> Path:
    write_bench(folder, ROWS, ("P>A", "P>C"), SCORES, table="pacs")
    for path in folder.glob("cells/*/result.json"):
        result = json.loads(path.read_text())
        result["epochs"] = [{"round": 1, "epoch": 1, "target": [1.0, result["target"]["last_five"]["mean"] - 5]}]
        path.write_text(json.dumps(result))
    return folder


def test_a_benchmark_beside_the_paper(tmp_path: Path) -> None:
    """Means, deviations and counts of seeds; ours minus the paper's; what is missing by name."""
    compared = build([bench(tmp_path / "pacs")])["compared"][0]
    table = compared["table"]
    assert table["columns"] == ["method", "P → A", "P → C", "average", "networks averaged"]
    rows = {row[0]["text"]: row[1:] for row in table["rows"]}
    eid, mcd = rows["eid"], rows["mcd"]
    assert eid[0]["text"] == "62.00 ± 2.83"
    paper = float(eid[0]["small"].split()[0])
    assert eid[0]["small"] == f"{paper:.2f} {62 - paper:+.2f}".replace("-", "−")
    assert eid[1]["text"] == "70.00 (1 of 2)"
    assert mcd[1]["text"] == "-"
    assert mcd[1]["mark"] == "missing"
    assert "Cells: 5 done, 3 missing." in table["notes"]
    assert any(note.startswith("Missing: eid · P>C · seed 1; mcd · P>C · seed 0") for note in table["notes"])
    curves = {figure["title"]: figure["series"] for figure in compared["curves"]}
    assert {s["name"]: s["values"] for s in curves["Test accuracy (%), P → A"]} == {"eid": [57.0], "mcd": [60.0]}


def test_differing_settings_side_by_side(tmp_path: Path) -> None:
    settings = build([bench(tmp_path / "pacs")])["compared"][0]["settings"]
    assert settings[0]["columns"] == ["setting", "eid", "mcd"]
    assert ["lr", "0.1", "0.2"] in settings[0]["rows"]
    assert settings[1]["rows"] == [["cycles", "3", "-"]]
    assert settings[1]["closed"]


def test_the_table_is_sorted_by_its_heads(
    tmp_path: Path, report: Callable[..., Path], opened: Callable[..., Any]
) -> None:
    page = opened(report(bench(tmp_path / "pacs")))
    names = page.locator(".sorted").first.locator("tbody th")
    assert names.all_inner_texts() == ["mcd", "eid"]
    head = page.get_by_role("button", name="P → A")
    head.click()
    assert names.all_inner_texts() == ["mcd", "eid"]  # 65 before 62
    head.press("Enter")
    assert names.all_inner_texts() == ["eid", "mcd"]
    assert page.locator("th[aria-sort=ascending]").count() == 1
    for _ in range(2):  # what is missing stays last
        page.get_by_role("button", name="P → C").click()
        assert names.all_inner_texts() == ["eid", "mcd"]


def test_several_runs(tmp_path: Path, report: Callable[..., Path], opened: Callable[..., Any]) -> None:
    first = write_run(tmp_path / "a" / "run", accuracy=50.0, samples=False)
    second = write_run(tmp_path / "b" / "run", accuracy=70.0, config={"lr": 0.5}, samples=False, finished=False)
    page = opened(report(first, second))
    text = page.inner_text("#compared0 .sorted >> nth=0")
    assert str(first) in text
    assert "54.00" in text
    table = page.locator("#compared0 .sorted").first
    assert table.locator("thead th").all_inner_texts() == [
        *("run", "test accuracy (%)", "last five epochs (%)", "held-out labeled (%)", "time, s"),
        *("method", "task", "seed", "state"),
    ]
    assert table.locator("tbody td:nth-child(5)").all_inner_texts() == ["75", "-"]
    assert page.locator("#compared0 figure").first.locator(".curve:not(.legend *)").count() == 2
    assert page.locator("section.run").count() == 3
    assert page.locator("nav a").all_inner_texts() == ["Comparison", str(first), str(second)]


def seen_columns(page: Any) -> list[str]:
    """Return the heads of the first table that are entirely in the window."""
    heads: list[str] = page.evaluate(
        """() => Array.from(document.querySelectorAll("#compared0 .sorted")[0].querySelectorAll("thead th"))
          .filter((head) => head.getBoundingClientRect().right <= innerWidth).map((head) => head.innerText)"""
    )
    return [" ".join(head.split()) for head in heads]


def test_a_phone_shows_accuracies_first(
    tmp_path: Path, opened: Callable[..., Any], report: Callable[..., Path]
) -> None:
    runs = [write_run(tmp_path / name, samples=False) for name in ("a-run-of-a-long-name", "b")]
    page = opened(report(*runs), width=390)
    assert seen_columns(page)[:4] == ["run", "test accuracy (%)", "last five epochs (%)", "held-out labeled (%)"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_phone_shows_the_average_of_a_benchmark_first(
    tmp_path: Path, opened: Callable[..., Any], report: Callable[..., Path]
) -> None:
    path = report(bench(tmp_path / "pacs"))
    page = opened(path, width=390)
    assert seen_columns(page)[:2] == ["method", "average"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".sorted").first.locator("tbody tr").nth(1).inner_text().startswith("eid\t")
    assert seen_columns(opened(path))[:2] == ["method", "P → A"]
