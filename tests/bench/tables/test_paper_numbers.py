"""The paper's numbers as shipped: values typed from the paper's pages, one row per lookup, no printed averages."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from statistics import mean

import pytest

from ssdg.bench.tables.results_table import paper_numbers, paper_rows, paper_tables
from ssdg.errors import UserError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("table", "selectors", "task", "value"),
    [
        ("pacs", {"method": "DANN"}, "P>A", 58.89),
        ("pacs", {"method": "FixMatch"}, "A>P", 96.61),
        ("pacs", {"method": "Ours w/ X+U"}, "S>A", 68.37),
        ("digits", {"method": "Ours w/ MixUp"}, "Mn>Mm", 51.56),
        ("ablation_eid", {"method": "MixUp", "cycles": 1, "clean_rate": 0.4}, "S>C", 67.21),
        ("ablation_apl", {"method": "Ours w/ MCD", "backbone": "ResNet-101"}, "P>A", 75.69),
        ("pacs_web", {"method": "Ours w/ MCD", "web_label": "Web-label refined"}, "P>S", 52.33),
        ("da_office", {"method": "CDAN+E", "backbone": "ResNet-18"}, "Rw>Pr", 74.4),
    ],
)
def test_typed_values(table: str, selectors: dict[str, object], task: str, value: float) -> None:
    assert paper_numbers(table, selectors)[task] == value


@pytest.mark.parametrize(
    ("table", "method", "printed", "true"),
    [("pacs", "DGvGS", 46.78, 44.32), ("pacs_web", "MixMatch", 40.05, 44.05), ("pacs_web", "DGvGS", 64.27, 63.04)],
)
def test_the_averages_the_paper_misprints_are_not_carried(
    table: str, method: str, printed: float, true: float
) -> None:
    numbers = paper_numbers(table, {"method": method})
    assert len(numbers) == 12
    assert round(mean(numbers.values()), 2) == true
    assert printed not in numbers.values()


def test_a_printed_average_that_is_right() -> None:
    assert round(mean(paper_numbers("pacs", {"method": "Ours w/ X+U"}).values()), 2) == 74.01


def test_every_row_has_twelve_tasks_and_no_number_comes_twice() -> None:
    keys = [tuple(value for name, value in row.items() if name not in ("task", "accuracy")) for row in paper_rows()]
    assert set(Counter(keys).values()) == {12}
    assert len(Counter(keys)) == 89
    assert "avg" not in {row["task"] for row in paper_rows()}
    assert all(0 < float(row["accuracy"]) < 100 for row in paper_rows())


def test_tables() -> None:
    assert set(paper_tables()) == {
        *("pacs", "digits", "office", "pacs_web", "office_web", "da_office"),
        *("ablation_apl", "ablation_dcg", "ablation_eid"),
    }


@pytest.mark.parametrize(
    ("table", "selectors", "message"),
    [
        ("pcas", {"method": "DANN"}, "did you mean 'pacs'?"),
        ("pacs", {"methd": "DANN"}, "did you mean 'method'?"),
        ("pacs", {"method": "EID"}, "no row"),
        ("ablation_apl", {"method": "Ours w/ MCD"}, "several rows"),
    ],
)
def test_lookups_that_fail(table: str, selectors: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        paper_numbers(table, selectors)


def test_the_numbers_are_part_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "bench/tables/paper.csv" in project["tool"]["setuptools"]["package-data"]["ssdg"]
