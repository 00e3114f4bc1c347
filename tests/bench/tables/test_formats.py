"""The same table in five formats: same bytes for the same folder, names that cannot break the layout."""

from __future__ import annotations

import csv
import json
import re
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import pytest
from benches import write_bench
from rich.console import Console

from ssdg.bench.folder import read_results
from ssdg.bench.tables.formats import Format, render
from ssdg.bench.tables.results_table import Table, make_table
from ssdg.bench.tables.text import print_table, probability, signed
from ssdg.cli import call

ROWS: list[dict[str, Any]] = [
    {"name": "source-only", "family": "source"},
    {"name": "mcd", "family": "DA", "paper": {"method": "MCD"}},
    {"name": "dann", "family": "DA", "paper": {"method": "DANN"}},
    {"name": "eid", "family": "ours", "paper": {"method": "Ours w/ MixUp"}},
]
TASKS = ("P>A", "P>C")
SCORES = {
    **{("source-only", task, seed): 40.0 + seed for task in TASKS for seed in (0, 1)},
    **{("mcd", task, seed): 50.0 + 2 * seed for task in TASKS for seed in (0, 1)},
    **{("dann", "P>A", 0): 45.0, ("dann", "P>C", 0): None},
    **{("eid", task, seed): 60.125 + 4 * seed for task in TASKS for seed in (0, 1)},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_bench(tmp_path / "bench", ROWS, TASKS, SCORES, table="pacs")


@pytest.fixture
def table(folder: Path) -> Table:
    return make_table(read_results(folder), "last-five", network="mean", paper=True)


def test_text(table: Table) -> None:
    lines = render(table, "text").splitlines()
    eid = next(index for index, line in enumerate(lines) if " eid " in line)
    assert lines[eid].split() == ["ours", "eid", "62.12*", "62.12*", "62.12*"]
    assert lines[eid + 1].split() == ["±2.83", "(2)"] * 3
    assert lines[eid + 2].split() == ["paper", "75.52", "70.98", "73.25"]
    dann = next(line for line in lines if " dann " in line)
    assert dann.split() == ["dann", "45.00", "-", "-"]
    assert "13 of 14 cells are done" in render(table, "text")
    assert "\x1b" not in render(table, "text")


def test_a_narrow_terminal_gets_the_columns_in_pieces(table: Table) -> None:
    file = StringIO()
    print_table(table, Console(file=file, width=52, force_terminal=True, color_system="standard"))
    plain = re.sub(r"\x1b\[[\d;]*m", "", file.getvalue())
    assert plain.count("method") == 2
    assert all(len(line) <= 52 for line in plain.splitlines())
    assert "\x1b[1m62.12\x1b[0m*" in file.getvalue()  # and no style on the room around it
    assert "\x1b[4m51.00\x1b[0m°" in file.getvalue()


def test_markdown(table: Table) -> None:
    text = render(table, "markdown")
    assert "| DA | `mcd` | <ins>51.00</ins> ± 1.41 (2) | <ins>51.00</ins> ± 1.41 (2) |" in text
    assert "|  | `dann` | 45.00 (1) | - | - |" in text
    assert "|  | paper | 39.45 | 52.01 | 45.73 |" in text
    assert "| ours | `eid` | **62.12** ± 2.83 (2) |" in text
    assert "| `mcd` | 4 | +11.12 | +9.29 to +12.96 | <0.001 | 0.125 |" in text
    for block in text.split("\n\n")[1:]:
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_latex(table: Table) -> None:
    text = render(table, "latex")
    assert "\\multirow{4}{*}{DA} & mcd & \\underline{51.00} {\\scriptsize $\\pm$1.41 (2)}" in text
    assert " & \\quad paper & 58.89 & 42.70 & 50.80 \\\\" in text
    assert "ours} & eid & \\textbf{62.12}" in text
    assert "P$\\rightarrow$A" in text
    assert text.count("{") == text.count("}")
    rows = [line for line in text.split("\\end{table*}")[0].splitlines() if line.endswith("\\\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in rows} == {4}


def test_csv(table: Table) -> None:
    rows = list(csv.DictReader(StringIO(render(table, "csv"))))
    assert len(rows) == 4 * 3
    cells = {(row["row"], row["task"]): row for row in rows}
    eid = cells["eid", "average"]
    assert (eid["mean"], eid["deviation"], eid["seeds"], eid["mark"]) == ("62.125", "2.8284", "2", "best")
    assert (cells["dann", "P>C"]["mean"], cells["dann", "P>C"]["seeds"]) == ("", "0")
    assert cells["dann", "P>C"]["paper"] == "42.7"


def test_json(table: Table) -> None:
    content = json.loads(render(table, "json"))
    assert content["rows"][-1]["cells"]["P>A"]["seeds"] == {"0": 60.125, "1": 64.125}
    against_mcd = content["comparisons"][1]
    assert (against_mcd["other"], against_mcd["pairs"], against_mcd["difference"]) == ("mcd", 4, 11.125)
    assert content["comparisons"][2]["p_t"] is None  # one pair with dann


@pytest.mark.parametrize("form", get_args(Format))
def test_the_same_folder_gives_the_same_bytes(form: str, folder: Path, tmp_path: Path, capsys: Any) -> None:
    assert call(["table", str(folder), "--format", form, "--paper"]) == 0
    output = capsys.readouterr().out
    for name in ("first", "second"):
        assert call(["table", str(folder), "--format", form, "--paper", "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text(encoding="utf-8") == output
    assert output.endswith("\n")
    assert str(folder.parent) not in output


@pytest.mark.parametrize("form", get_args(Format))
def test_names_that_look_like_markup(form: Format, tmp_path: Path) -> None:
    rows = [{"name": "[red]a|b_c&{d}%", "family": "ours"}, {"name": "plain", "family": "[b]"}]
    write_bench(tmp_path, rows, ("P>A",), {(row["name"], "P>A", 0): 1.0 for row in rows})
    text = render(make_table(read_results(tmp_path), "final", network="mean"), form)
    names = {"markdown": "`[red]a\\|b_c&{d}%`", "latex": "[red]a|b\\_c\\&\\{d\\}\\%"}
    assert names.get(form, "[red]a|b_c&{d}%") in text


def test_a_table_before_any_cell_is_done(tmp_path: Path) -> None:
    write_bench(tmp_path, ROWS, TASKS, dict.fromkeys(SCORES), table="pacs")
    for form in get_args(Format):
        assert render(make_table(read_results(tmp_path), "last-five", network="mean"), form)


def test_small_numbers() -> None:
    assert [probability(p) for p in (None, 0.0004, 0.0456, 1.0)] == ["-", "<0.001", "0.046", "1.000"]
    assert [signed(value) for value in (None, -1.234, 1.0)] == ["-", "−1.23", "+1.00"]
