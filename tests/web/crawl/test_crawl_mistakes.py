"""Invalid input of a crawl, and crawls that find nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import servers as serve
from crawls import Capture, crawl_args, listed, run, write_urls
from servers import Site

from data.pictures import png


def test_loopback_is_refused_without_the_switch(site: Site, tmp_path: Path, capsys: Capture) -> None:
    names = [site.url, f"http://localhost:{site.server_port}", f"http://2130706433:{site.server_port}"]
    urls = write_urls(tmp_path / "u.csv", [(f"{name}/a", "dog", "") for name in names])
    args = [word for word in crawl_args(urls, tmp_path / "out", classes="dog") if word != "--allow-private"]
    code, report, _ = run(capsys, *args)
    assert report["classes"][0]["refused"] == {"address": 3}
    assert (code, site.count.total()) == (1, 0)


def test_addresses_that_are_none(site: Site, tmp_path: Path, capsys: Capture) -> None:
    bad = ["ftp://host/a", "file:///etc/passwd", "http:///a", "http://[::1", "//host/a", "http://a:b@host/"]
    bad += ["http://ho st/", "x" * 9000, "http://host:99999/", "http://" + "a" * 70 + "é.org/"]
    urls = write_urls(tmp_path / "u.csv", [(url, "dog", "") for url in bad])
    args = crawl_args(urls, tmp_path / "out", classes="dog")
    _, report, _ = run(capsys, *args)
    assert report["classes"][0]["refused"] == {"bad-url": len(bad)}
    _, report, _ = run(capsys, *args)
    assert report["classes"][0]["found"] == len(bad)


def test_a_class_folder_that_is_a_link_is_not_written_to(site: Site, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    site.routes = {"/a": serve.image(png(1))}
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dog").symlink_to(tmp_path / "elsewhere")
    assert "is a symbolic link" in complaint(
        *crawl_args(listed(site, tmp_path, ["a"]), tmp_path / "out", classes="dog")
    )
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    "name", ["../up", "a/b", "/etc", "..", ".hidden", "", "a\\b", "manifest.csv", "x" * 200, "a\nb"]
)
def test_classes_that_are_no_names(name: str, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    urls = write_urls(tmp_path / "u.csv", [("http://host/a", name, "")])
    complaint(*crawl_args(urls, tmp_path / "out", classes=f"dog,{name}"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--engine", "icrawler:bing"], "--urls requires engine 'urls'"),
        (["--keyword-template", "photo"], "lacks {class}"),
        (["--user-agent", "a\nHost: b"], "invalid user agent"),
        (["--classes", "dog,dog"], "twice"),
        (["--per-class", "0"], "per-class"),
        (["--encoding", "klingon"], "unknown encoding"),
    ],
)
def test_mistakes(args: list[str], message: str, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    urls = write_urls(tmp_path / "u.csv", [("http://host/a", "dog", "")])
    assert message in complaint(*crawl_args(urls, tmp_path / "out", *args))
    assert not (tmp_path / "out").exists()


def test_a_table_without_addresses(tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    urls = write_urls(tmp_path / "u.csv", [("x", "dog", "")], ("path", "class", "licence"))
    assert "columns url and class" in complaint(*crawl_args(urls, tmp_path / "out"))
    assert "needs --urls" in complaint(
        "web", "crawl", "--classes", "dog", "--per-class", 1, "--engine", "urls", "-o", tmp_path / "out"
    )


def test_nothing_found_is_a_failure(tmp_path: Path, capsys: Capture) -> None:
    urls = write_urls(tmp_path / "u.csv", [("http://host/a", "horse", "")])
    code, report, err = run(capsys, *crawl_args(urls, tmp_path / "out"))
    assert code == 1
    assert "no image found for any class" in err
    assert [entry["found"] for entry in report["classes"]] == [0, 0]


def test_two_crawls_into_one_folder(site: Site, tmp_path: Path, complaint) -> None:  # type: ignore[no-untyped-def]
    from ssdg.web.store import open_store

    with open_store(tmp_path / "out"):
        assert "another ssdg web command" in complaint(*crawl_args(listed(site, tmp_path, ["a"]), tmp_path / "out"))
