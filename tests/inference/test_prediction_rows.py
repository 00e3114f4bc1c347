"""Rows that are written and read back: to the last whole one, wherever a kill cut the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ssdg.errors import UserError
from ssdg.inference.predictions import CsvRows, JsonRows, Prediction, column_names, find_format

NAMES = column_names(rejecting=True)
ROWS = [
    Prediction("a,b.jpg", "cat", 0.75, "dog", 0.25, score=1.25),
    Prediction('line\nbreak "x".jpg', "dog", 0.6, "cat", 0.4, score=0.1, is_unknown=True),
    Prediction("ü\r\n.jpg", error="the file is empty"),
    Prediction("plain.jpg", "cat", 1 / 3, "dog", 1 / 4, score=-0.0),
]
RECORDS = [row.record(rejecting=True) for row in ROWS]


def test_records_by_hand() -> None:
    assert ROWS[0].record() == {
        **{"path": "a,b.jpg", "class": "cat", "confidence": 0.75, "second": "dog", "second_confidence": 0.25},
        "error": None,
    }
    unknown, unread, plain = RECORDS[1:]
    assert (unknown["class"], unknown["guess"], unknown["score"]) == ("unknown", "dog", 0.1)
    assert [unread[name] for name in NAMES] == [
        *("ü\r\n.jpg", None, None, None, None, "the file is empty", None, None)
    ]
    assert plain["confidence"] == 0.333333
    text = CsvRows().encode(RECORDS[:1] + RECORDS[3:]).decode()
    assert text == (
        '"a,b.jpg",cat,0.750000,dog,0.250000,,cat,1.250000\r\nplain.jpg,cat,0.333333,dog,0.250000,,cat,-0.000000\r\n'
    )


@pytest.mark.parametrize("rows", [CsvRows(), JsonRows()])
def test_every_cut_leaves_the_rows_before_it(rows, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pieces = [rows.header(NAMES), *(rows.encode([record]) for record in RECORDS)]
    whole, path = b"".join(pieces), tmp_path / "part"
    ends = [sum(map(len, pieces[: n + 1])) for n in range(1, len(pieces))]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        records = list(rows.read(path, NAMES))
        assert [end for _, end in records] == [end for end in ends if end <= cut]
        assert [row["path"] for row, _ in records] == [r["path"] for r in RECORDS[: len(records)]]


@pytest.mark.parametrize("rows", [CsvRows(), JsonRows()])
def test_what_is_no_row_ends_the_reading(rows, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "part"
    for bad in (b"\0" * 40 + b"\n", b"\xff\xff\n", b"a,b\r\n", b"[1]\n", b'{"path": "x"}\n'):
        path.write_bytes(rows.header(NAMES) + rows.encode(RECORDS[:1]) + bad + rows.encode(RECORDS[1:]))
        assert len(list(rows.read(path, NAMES))) == 1
    path.write_bytes(rows.header(column_names(rejecting=False)) + rows.encode(RECORDS[:1]))
    assert len(list(rows.read(path, column_names(rejecting=False)))) == 0


@pytest.mark.parametrize("name", ["out", "out.txt", "out.csv.gz", ".csv"])
def test_suffixes_without_a_format(name: str) -> None:
    with pytest.raises(UserError, match=r"ends with .csv, .jsonl, .parquet"):
        find_format(Path(name))


def test_a_folder_is_no_file_and_capitals_are_well(tmp_path: Path) -> None:
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        find_format(tmp_path / "out.csv")
    assert find_format(Path("OUT.JSONL")) is find_format(Path("out.jsonl"))
