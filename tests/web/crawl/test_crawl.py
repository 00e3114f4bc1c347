"""A crawl end to end against a real local server."""

from __future__ import annotations

import hashlib
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import servers as serve
from crawls import Capture, by_url, crawl_args, listed, run, write_urls
from servers import Site

from data.pictures import encoded, picture, png
from leftovers import leave
from ssdg.data.sources.manifest import read_manifest
from waiting import PATIENCE


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header promises that many pixels, and which has none."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_images_are_fetched_named_by_content_and_recorded(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {"/a.png": serve.image(png(1)), "/b": serve.image(encoded(picture(2), "JPEG"), "image/jpeg")}
    urls = write_urls(tmp_path / "u.csv", [(f"{site.url}/a.png", "dog", "CC0"), (f"{site.url}/b", "cat", "")])
    code, report, err = run(capsys, *crawl_args(urls, tmp_path / "out"))
    assert (code, err) == (0, "")
    dog, cat = by_url(tmp_path / "out")["a.png"], by_url(tmp_path / "out")["b"]
    sha = hashlib.sha256(png(1)).hexdigest()
    assert (dog.path, dog.sha256, dog.licence) == (f"dog/{sha[:32]}.png", sha, "CC0")
    assert (dog.state, dog.width, dog.height, dog.bytes, dog.source) == ("kept", 12, 10, len(png(1)), "urls")
    assert cat.path.endswith(".jpg")
    assert (tmp_path / "out" / dog.path).read_bytes() == png(1)
    assert dog.time.endswith("+00:00")
    expected = {"label": "dog", "asked": 100, "found": 1, "kept": 1, "refused": {}, "wanted": True}
    assert report["classes"][0] == expected
    assert site.headers[-1]["User-Agent"].startswith("ssdg/")
    assert site.headers[-1]["Host"] == site.url.removeprefix("http://")


ANSWERS = {
    "missing": (None, "status"),
    "error": (serve.status(500), "busy"),
    "page": (serve.status(200), "type"),
    "text.png": (serve.image(b"<html>not an image</html>"), "type"),
    "empty.png": (serve.image(b""), "type"),
    "drawing.eps": (serve.image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "type"),
    "half.png": (serve.truncated(png(1)), "truncated"),
    "chunks.png": (serve.broken_chunks(png(1)), "truncated"),
    "cut.png": (serve.image(png(1)[:-30]), "broken"),
    "endless": (serve.endless(), "too-large"),
    "announced": (serve.image(b"x" * 300_000), "too-large"),
    "bomb.png": (serve.image(png_of(20_000, 20_000)), "too-large"),
    "zipped": (lambda h: h.answer(200, png(1), "image/png", Content_Encoding="gzip"), "type"),
    "loop": (serve.redirect("/loop"), "redirects"),
    "far": (serve.redirect("/far/1"), "redirects"),
    "to-file": (serve.redirect("file:///etc/passwd"), "bad-url"),
    "to-bad": (serve.redirect("http://[oops"), "bad-url"),
    "to-none": (serve.redirect(""), "redirects"),
    "private/x.png": (serve.image(png(1)), "robots"),
    "moved.png": (serve.redirect("/real.png", 301), ""),
    "odd name.png": (serve.image(png(3)), ""),
}


def test_every_kind_of_bad_answer_is_refused_with_its_reason(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {f"/{name.replace(' ', '%20')}": route for name, (route, _) in ANSWERS.items() if route}
    site.routes |= {f"/far/{n}": serve.redirect(f"/far/{n + 1}") for n in range(9)}
    site.routes["/real.png"] = serve.image(png(2))
    site.routes["/robots.txt"] = serve.image(b"User-agent: *\nDisallow: /private/\n", "text/plain")
    urls = listed(site, tmp_path, list(ANSWERS))
    code, report, _ = run(capsys, *crawl_args(urls, tmp_path / "out", "--max-mb", 0.2, "--threads", 8, classes="dog"))
    rows = by_url(tmp_path / "out")
    assert {name: row.reason for name, row in rows.items()} == {name: why for name, (_, why) in ANSWERS.items()}
    assert code == 0
    assert rows["announced"].detail.startswith("300,000 bytes"), "refused before it was read"
    assert report["classes"][0]["kept"] == 2
    assert report["classes"][0]["refused"]["type"] == 5
    assert len(list((tmp_path / "out" / "dog").iterdir())) == 2
    assert site.count["/private/x.png"] == 0
    assert site.count["/robots.txt"] == site.count["/loop"] == 1
    assert (site.count["/far/5"], site.count["/far/6"]) == (1, 0)


def test_slow_answers_are_cut_off(site: Site, tmp_path: Path, capsys: Capture) -> None:
    """A byte now and then keeps no connection alive: the clock runs for the whole answer."""
    site.routes = {"/body": serve.dripping("body"), "/head": serve.dripping("head"), "/silent": serve.silent}
    urls = listed(site, tmp_path, ["body", "head", "silent"])
    code, _, err = run(capsys, *crawl_args(urls, tmp_path / "out", "--timeout", 0.6, classes="dog"))
    assert {row.reason for row in by_url(tmp_path / "out").values()} == {"slow"}
    assert code == 1
    assert "no image kept for dog" in err


def test_the_same_content_is_kept_once(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {f"/{name}": serve.image(png(1)) for name in ("first", "second", "other")}
    rows = [(f"{site.url}/first", "dog"), (f"{site.url}/second", "dog"), (f"{site.url}/first", "dog")]
    rows += [(f"{site.url}/other", "cat"), (f"{site.url}/first", "cat")]
    urls = write_urls(tmp_path / "u.csv", rows, ("url", "class"))
    code, report, err = run(capsys, *crawl_args(urls, tmp_path / "out", "--threads", 1))
    first = next(row for row in read_manifest(tmp_path / "out").kept)
    refused = [row for row in read_manifest(tmp_path / "out").rows.values() if not row.kept]
    assert {(row.reason, row.detail) for row in refused} == {("duplicate", first.path)}
    assert [entry["found"] for entry in report["classes"]] == [2, 2]
    assert site.count["/first"] == 1, "an address that is known under another class is not asked for again"
    assert code == 1
    assert "no image kept for cat" in err


def test_no_more_is_fetched_than_asked_for(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {f"/{n}": serve.image(png(n)) for n in range(9)}
    urls = listed(site, tmp_path, [str(n) for n in range(9)])
    args = crawl_args(urls, tmp_path / "out", "--threads", 8, classes="dog", per_class=3)
    code, report, _ = run(capsys, *args)
    assert (code, report["classes"][0]["kept"], site.num_requests) == (0, 3, 3)
    code, report, _ = run(capsys, *args)
    assert (code, report["classes"][0]["kept"], site.num_requests) == (0, 3, 3)


@pytest.mark.parametrize(
    ("answer", "kept", "reason"), [(404, 1, ""), (403, 1, ""), (500, 0, "busy"), (429, 0, "busy")]
)
def test_a_robots_file_that_cannot_be_had(
    answer: int, kept: int, reason: str, site: Site, tmp_path: Path, capsys: Capture
) -> None:
    site.routes = {"/a": serve.image(png(1)), "/robots.txt": serve.status(answer)}
    _, report, _ = run(capsys, *crawl_args(listed(site, tmp_path, ["a"]), tmp_path / "out", classes="dog"))
    assert report["classes"][0]["kept"] == kept
    assert by_url(tmp_path / "out")["a"].reason == reason
    assert site.num_requests == kept


def test_passing_troubles_are_tried_again_on_demand(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {"/a": serve.status(503), "/b": serve.status(404)}
    args = crawl_args(listed(site, tmp_path, ["a", "b"]), tmp_path / "out", classes="dog")
    run(capsys, *args)
    site.routes = {"/a": serve.image(png(1)), "/b": serve.image(png(2))}
    run(capsys, *args)
    assert site.num_requests == 2
    code, report, _ = run(capsys, *args, "--retry")
    assert (code, report["classes"][0]["refused"]) == (0, {"status": 1})
    assert (site.count["/a"], site.count["/b"]) == (2, 1)


def test_the_time_limit_leaves_the_rest_for_the_next_time(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {"/a": serve.image(png(1)), "/b": serve.silent, "/c": serve.image(png(3))}
    args = crawl_args(listed(site, tmp_path, ["a", "b", "c"]), tmp_path / "out", "--threads", 1, classes="dog")
    code, report, _ = run(capsys, *args, "--max-minutes", 0.02)
    assert (code, report["classes"][0]["found"]) == (0, 1)
    assert "time limit" in report["notes"][0]
    site.routes["/b"] = serve.image(png(2))
    _, report, _ = run(capsys, *args)
    assert (report["classes"][0]["kept"], report["notes"]) == (3, [])
    assert site.count["/a"] == 1


def test_the_limit_of_bytes_in_all(site: Site, tmp_path: Path, capsys: Capture) -> None:
    large = encoded(picture(1, 100, 100), "BMP")
    site.routes = {f"/{n}": serve.image(large[:-1] + bytes([n])) for n in range(5)}
    args = crawl_args(listed(site, tmp_path, list("01234")), tmp_path / "out", "--threads", 1, classes="dog")
    _, report, _ = run(capsys, *args, "--max-total-mb", len(large) * 2.5 / 1e6)
    assert report["classes"][0]["kept"] == 2
    assert "the total limit of" in report["notes"][0]
    assert site.num_requests == 3


def test_pictures_smaller_than_asked_for(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {"/a": serve.image(png(1)), "/b": serve.image(encoded(picture(1, 40, 40)))}
    args = crawl_args(listed(site, tmp_path, ["a", "b"]), tmp_path / "out", "--min-side", 40, classes="dog")
    run(capsys, *args)
    assert {name: row.reason for name, row in by_url(tmp_path / "out").items()} == {"a": "too-small", "b": ""}


# Ctrl-C works though the tests themselves may run where it is switched off.
CRAWL = "import signal, ssdg.cli; signal.signal(signal.SIGINT, signal.default_int_handler); ssdg.cli.main()"


@contextmanager
def started(site: Site, args: list[str], until: str) -> Iterator[subprocess.Popen[bytes]]:
    """A crawl in a separate process that has requested a path and waits for the response."""
    process = subprocess.Popen(
        [sys.executable, "-c", CRAWL, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        assert site.reached(until), "the crawl never came so far"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_crawl_resumes_and_fetches_nothing_twice(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {f"/{n}": serve.image(png(n)) for n in range(8)}
    site.routes["/5"] = serve.silent
    args = crawl_args(listed(site, tmp_path, list("01234567")), tmp_path / "out", "--threads", 1, classes="dog")
    with started(site, args, until="/5") as process:
        process.send_signal(signal.SIGKILL)
    leave(tmp_path / "out" / "dog" / "x.png")
    leave(tmp_path / "out" / "cat" / "x.png")  # killed in the first image of a class
    site.routes["/5"] = serve.image(png(5))
    code, report, _ = run(capsys, *args)
    assert (code, report["classes"][0]["kept"]) == (0, 8)
    assert {name: n for name, n in site.count.items() if n > 1} == {"/robots.txt": 2, "/5": 2}
    assert len(list((tmp_path / "out" / "dog").iterdir())) == 8, "what was half written is gone"
    assert not list((tmp_path / "out" / "cat").iterdir())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["cat", "dog", "manifest.csv"]


def test_an_interrupted_crawl_writes_its_manifest(site: Site, tmp_path: Path) -> None:
    site.routes = {"/0": serve.image(png(0)), "/1": serve.silent}
    args = crawl_args(listed(site, tmp_path, ["0", "1"]), tmp_path / "out", "--threads", 1, classes="dog")
    with started(site, args, until="/1") as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    assert [row.url for row in read_manifest(tmp_path / "out").rows.values()] == [f"{site.url}/0"]


def test_a_file_that_went_missing_is_fetched_again(site: Site, tmp_path: Path, capsys: Capture) -> None:
    site.routes = {"/a": serve.image(png(1))}
    args = crawl_args(listed(site, tmp_path, ["a"]), tmp_path / "out", classes="dog")
    run(capsys, *args)
    kept = tmp_path / "out" / by_url(tmp_path / "out")["a"].path
    kept.write_bytes(b"")
    code, report, _ = run(capsys, *args)
    assert (code, report["classes"][0]["kept"], site.count["/a"]) == (0, 1, 2)
    assert kept.read_bytes() == png(1)
    assert "1 files" in report["notes"][0]
