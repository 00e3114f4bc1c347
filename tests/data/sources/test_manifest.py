"""The manifest: what is written comes back, what others add survives, what cannot be trusted is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.pictures import png
from ssdg.data.sources.manifest import COLUMNS, Manifest, Row, is_inside, read_manifest, write_manifest
from ssdg.errors import UserError
from ssdg.web.store import open_store
from ssdg.web.untrusted import Refused, check_picture

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBER = st.none() | st.integers(0, 10**9)


def row_of(label: str, url: str) -> Row:
    return Row(label, "refused", source="urls", url=url)


@given(TEXT, TEXT, TEXT, NUMBER, TEXT)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_any_text_comes_back(
    tmp_path: Path, label: str, url: str, detail: str, num_bytes: int | None, extra: str
) -> None:
    row = Row(label, "refused", url=url, detail=detail, bytes=num_bytes, source="urls", extra={"flag": extra})
    write_manifest(tmp_path, Manifest({row.key: row}, ("flag",)))
    assert list(read_manifest(tmp_path).rows.values()) == [row]


def test_columns_of_others_survive_a_rewrite_and_a_new_row(tmp_path: Path) -> None:
    (tmp_path / "manifest.csv").write_text(
        "flag,path,class,state,source,url,duplicate_of\nood,,dog,refused,urls,http://x/1,x/y.png\n"
    )
    with open_store(tmp_path) as store:
        store.keep(row_of("dog", "http://x/1"), check_picture(png(1)))
        store.keep(row_of("dog", "http://x/2"), check_picture(png(2)))
    text = (tmp_path / "manifest.csv").read_text()
    assert text.splitlines()[0].replace('"', "") == ",".join((*COLUMNS, "flag", "duplicate_of"))
    first, second = read_manifest(tmp_path).rows.values()
    assert (first.state, dict(first.extra)) == ("kept", {"flag": "ood", "duplicate_of": "x/y.png"})
    assert dict(second.extra) == {"flag": "", "duplicate_of": ""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks the column 'path'"),
        ("path,class\n", "lacks the column 'state'"),
        ("path,class,state\na,dog,good\n", "line 2 .* the state is 'good'"),
        ("path,class,state\n../a,dog,kept\n", "leaves the folder"),
        ("path,class,state\n/a,dog,kept\n", "leaves the folder"),
        ("path,class,state,bytes\na,dog,kept,many\n", "line 2"),
        ("path,class,state\na,dog,kept,more\n", "more cells"),
    ],
)
def test_manifests_that_cannot_be_used(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.csv").write_text(text)
    with pytest.raises(UserError, match=message):
        read_manifest(tmp_path)


def test_no_manifest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no manifest\.csv in .*ssdg web crawl"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.csv").write_bytes(b"path,class,state\n\xff,a,kept\n")
    with pytest.raises(UserError, match="UTF-8"):
        read_manifest(tmp_path)


def test_a_journal_that_was_cut_off(tmp_path: Path) -> None:
    """All whole lines count; the manifest itself was last written before any of them."""
    with open_store(tmp_path) as store:
        store.keep(row_of("dog", "http://x/1"), check_picture(png(1)))
        store.refuse(row_of("dog", "http://x/2"), Refused("slow"))
        journal = (tmp_path / ".manifest.journal").read_bytes()
    (tmp_path / "manifest.csv").unlink()
    (tmp_path / ".manifest.journal").write_bytes(journal[:-10])
    with open_store(tmp_path) as store:
        assert [row.url for row in store.manifest.rows.values()] == ["http://x/1"]
    assert not (tmp_path / ".manifest.journal").exists()


def test_what_was_put_aside_by_hand_does_not_come_back(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.keep(row_of("dog", "http://x/1"), check_picture(png(1)))
    path = tmp_path / "manifest.csv"
    path.write_text(path.read_text().replace('"kept"', '"refused"'))
    with open_store(tmp_path) as store:
        assert store.num_kept("dog") == 0
        assert store.keep(row_of("cat", "http://x/2"), check_picture(png(1))).reason == "duplicate"


def test_the_journal_is_gone_after_an_error(tmp_path: Path) -> None:
    def interrupted() -> None:
        with open_store(tmp_path) as store:
            store.keep(row_of("dog", "http://x/1"), check_picture(png(1)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(read_manifest(tmp_path).kept) == 1
    assert not (tmp_path / ".manifest.journal").exists()


@pytest.mark.parametrize("path", ["", "/a", "../a", "a/../b", "a\\b", "a\0b"])
def test_paths_that_lead_out(path: str) -> None:
    assert not is_inside(path)
