"""Counts by class and domain, and the rate of images that belong to no class."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from pictures import benchmark, png, write

from ssdg.cli import call
from ssdg.data.sources.benchmark import read_benchmark
from ssdg.data.verify import Count, count_images
from ssdg.engine.setup import EMBEDDED


def write_images(folder: Path, num: int) -> None:
    for number in range(num):
        write(folder / f"{number}.png", png(number))


@pytest.fixture
def crawled(tmp_path: Path) -> Path:
    """PACS in small with a web domain; a quarter of what a search for dog gave is no dog."""
    for domain in ("photo", "sketch"):
        write_images(tmp_path / domain / "dog", 2)
        write_images(tmp_path / domain / "horse", 1)
    write_images(tmp_path / "web" / "dog", 6)
    write_images(tmp_path / "web" / "dog" / "OOD" / "deeper", 2)
    write_images(tmp_path / "web" / "horse", 4)
    return tmp_path


def test_an_ood_folder_inside_a_class_gives_the_rate_of_every_class(crawled: Path) -> None:
    statistics = count_images(read_benchmark(crawled))
    web = statistics.domains[2]
    assert web.classes == {"dog": Count(8, 2), "horse": Count(4, 0)}
    assert web.classes["dog"].ood_percent == 25
    assert (web.total, web.expected) == (Count(12, 2), 5243)
    assert statistics.dataset is not None
    assert statistics.dataset.name == "PACS-Webdata"
    assert statistics.domains[0].total == Count(3, None)  # nobody told


def test_an_ood_folder_next_to_the_classes_gives_the_rate_of_the_domain_only(tmp_path: Path) -> None:
    write_images(tmp_path / "web" / "ant", 3)
    write_images(tmp_path / "web" / "zebra", 3)
    write_images(tmp_path / "web" / "ood", 2)
    statistics = count_images(read_benchmark(tmp_path))
    assert statistics.classes == ("ant", "zebra", "ood")
    assert statistics.domains[0].classes == {"ant": Count(3), "zebra": Count(3), "ood": Count(2, 2)}
    assert statistics.domains[0].total == Count(8, 2)


def test_both_kinds_of_folders_add_up(crawled: Path) -> None:
    write_images(crawled / "web" / "ood", 4)
    web = count_images(read_benchmark(crawled)).domains[2]
    assert web.classes["dog"] == Count(8, 2)
    assert web.total == Count(16, 6)


def test_a_root_named_ood_says_nothing(tmp_path: Path) -> None:
    benchmark(tmp_path / "ood" / "x", ("one", "ood"))
    statistics = count_images(read_benchmark(tmp_path / "ood"))
    assert [domain.total.ood for domain in statistics.domains] == [None, None]


def printed(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    assert call(["data", "statistics", *map(str, args)]) == 0
    return capsys.readouterr().out


def test_formats_hold_the_same_numbers(crawled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, markdown = printed(capsys, crawled), printed(capsys, crawled, "--format", "markdown")
    rows = {line.split()[1]: line.replace("│", " ").split()[1:] for line in text.splitlines() if line.startswith("│")}
    assert rows["dog"] == ["2", "2", "8", "2", "25.00"]
    assert rows["all"] == ["3", "3", "12", "2", "16.67"]
    assert rows["in"] == ["PACS-Webdata", "1670", "3929", "5243", "-", "-"]
    assert "| dog | 2 | 2 | 8 | 2 | 25.00 |" in markdown
    assert "| class | photo | sketch | web | web OOD | OOD, % |" in markdown
    latex = printed(capsys, crawled, "--format", "latex")
    assert "dog & 2 & 2 & 8 & 2 & 25.00 \\\\" in latex
    assert "OOD, \\%" in latex
    lines = list(csv.DictReader(printed(capsys, crawled, "--format", "csv").splitlines()))
    assert {(line["domain"], line["class"]): line["ood_percent"] for line in lines}["web", "(all)"] == "16.67"
    data = json.loads(printed(capsys, crawled, "--json"))
    assert data["known_as"] == "PACS-Webdata"
    assert data["domains"][2]["classes"]["horse"] == {"images": 4, "ood": 0, "ood_percent": 0.0}
    assert data["domains"][0]["ood"] is None
    assert printed(capsys, crawled, "-o", tmp_path / "made.txt") == ""
    assert (tmp_path / "made.txt").read_text() == text


def test_names_are_not_read_as_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_images(tmp_path / "[red]one" / "a|b_c", 1)
    assert "[red]one" in printed(capsys, tmp_path)
    assert "a\\|b_c" in printed(capsys, tmp_path, "--format", "markdown")
    assert "a|b\\_c" in printed(capsys, tmp_path, "--format", "latex")


def test_mistakes_cost_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for root, message in ((tmp_path / "nowhere", "does not exist"), (tmp_path / "empty", "no domain in")):
        assert call(["data", "statistics", str(root)]) == 2
        assert message in capsys.readouterr().err


def test_embedded_data_have_names_and_a_folder_of_that_name_comes_first(
    crawled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(EMBEDDED, "web-digits", lambda cache: crawled)
    monkeypatch.chdir(tmp_path)
    assert "12 │       2 │  16.67" in printed(capsys, "web-digits")
    write_images(tmp_path / "web-digits" / "one" / "ant", 5)
    assert "5 images." in printed(capsys, "web-digits")
