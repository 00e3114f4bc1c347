"""CSV files: nothing in them is a formula for a spreadsheet, and our readers return what was written."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import pytest

from ssdg.data.sources.manifest import KEPT, Manifest, Row, read_manifest, write_manifest
from ssdg.inference.predictions import COLUMNS, CsvRows, Prediction, write_predictions
from ssdg.safe_csv import escape_cell, restore_cell, write_rows

EVIL = ["=1+1", "=cmd|' /C calc'!A0", "+x", "-x.png", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-x", "-1.5.png", "-"]
HARMLESS = ["", "dog", "'tis", "a=b", "-0.500000", "+12", "x-y", "'", "12"]


@pytest.mark.parametrize("text", [*EVIL, *HARMLESS])
def test_cells_are_restored(text: str) -> None:
    assert restore_cell(escape_cell(text)) == text
    assert (escape_cell(text) != text) == (text in EVIL)


def test_numbers_stay_numbers() -> None:
    file = StringIO()
    write_rows(file, [["=a", -0.5, None, 3]])
    assert file.getvalue() == "'=a,-0.5,,3\r\n"


def test_predictions_hold_no_formula_and_are_read_back(tmp_path: Path) -> None:
    rows = [Prediction(name, name, 0.75, name, 0.25) for name in EVIL]
    write_predictions(tmp_path / "p.csv", rows)
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+-@\t\r" and cell]
    records = [record for record, _ in CsvRows().read(tmp_path / "p.csv", COLUMNS)]
    assert [(record["path"], record["class"]) for record in records] == [(name, name) for name in EVIL]


def test_a_manifest_holds_no_formula_and_is_read_back(tmp_path: Path) -> None:
    manifest = Manifest()
    for number, name in enumerate(EVIL):
        manifest.put(Row(path=f"{number}.png", label=name, url=name, state=KEPT))
    write_manifest(tmp_path, manifest)
    assert '"=' not in (tmp_path / "manifest.csv").read_text(encoding="utf-8")
    assert read_manifest(tmp_path).rows == manifest.rows


def test_there_is_one_writer() -> None:
    root = Path(__file__).parent.parent / "src" / "ssdg"
    writers = [path.name for path in root.rglob("*.py") if "csv.writer(" in path.read_text("utf-8")]
    assert writers == ["safe_csv.py"]
