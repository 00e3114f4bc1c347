"""`ssdg data fetch` from end to end, from a server on this machine and from archives on its disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hub import publishers
from hub.publishers import CLASSES, DOMAINS, files_below, pacs_files, ranged, tarred, zipped
from ssdg.cli import call
from ssdg.data import catalog
from ssdg.data.sources.benchmark import read_benchmark
from ssdg.hub import published
from ssdg.hub.download import Downloader, Remote
from ssdg.hub.published import PUBLISHED, PublishedDataset, Source
from ssdg.hub.transfer import Limits
from waiting import wait_until
from web import servers
from web.servers import Site

ARCHIVE = zipped(pacs_files("PACS/kfold/"))


@pytest.fixture(autouse=True)
def small_pacs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PACS of sixteen images in the catalog, and no waiting between tries."""
    pacs = PUBLISHED["pacs"].dataset
    domains = tuple(replace(entry, num_images=4) for entry in pacs.domains)
    others = tuple(entry for entry in catalog.CATALOG if entry.name != "PACS")
    monkeypatch.setattr(catalog, "CATALOG", (replace(pacs, domains=domains, classes=CLASSES), *others))
    quick = Downloader(Limits(first_wait=0, idle_seconds=20))
    monkeypatch.setattr("ssdg.hub.download.Downloader", lambda log: replace(quick, log=log))


class Case:
    """Runs the command and keeps what it says."""

    def __init__(self, site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self.site, self.to = site, folder / "PACS"
        self._patch, self._capsys = monkeypatch, capsys
        self.said = self.complained = ""

    def publish(self, *sources: dict[str, servers.Serve]) -> None:
        """Each source a set of files on the server."""
        self.site.routes = {f"/{n}/{name}": serve for n, files in enumerate(sources) for name, serve in files.items()}
        published_sources = [
            Source(f"source {n}", tuple(Remote(f"{self.site.url}/{n}/{name}", name) for name in files))
            for n, files in enumerate(sources)
        ]
        dataset = PublishedDataset("PACS", tuple(published_sources), "PACS.zip from http://by.hand/")
        self._patch.setitem(published.PUBLISHED, "pacs", dataset)

    def fetch(self, *args: object, name: str = "pacs") -> int:
        code = call(["data", "fetch", name, "--to", str(self.to), *map(str, args)])
        read = self._capsys.readouterr()
        self.said, self.complained = read.out, " ".join(read.err.split())
        return code

    def assert_whole(self) -> None:
        assert {name: data for name, data in files_below(self.to).items() if name.endswith(".png")} == pacs_files()
        assert sorted(path.name for path in self.to.parent.iterdir() if path.is_dir()) == ["PACS"], "nothing is left"

    def assert_nothing(self) -> None:
        assert not self.to.exists()
        assert not [path for path in self.to.parent.iterdir() if path.is_dir()]


@pytest.fixture
def case(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Case:
    monkeypatch.setenv("COLUMNS", "200")
    return Case(site, tmp_path / "data", monkeypatch, capsys)


def test_downloaded_unpacked_laid_out_and_checked(case: Case) -> None:
    case.publish({"PACS.zip": ranged(ARCHIVE)})
    assert case.fetch() == 0, case.complained
    case.assert_whole()
    assert read_benchmark(case.to).names == tuple(sorted(DOMAINS))
    assert "in PACS" in case.said
    assert "No issues found: all images can be read" in case.said
    record = json.loads((case.to / "fetched.json").read_text())
    assert record["data_set"] == "PACS"
    assert record["files"][0]["from"] == f"{case.site.url}/0/PACS.zip"
    assert record["files"][0]["bytes"] == len(ARCHIVE)


def test_several_archives_are_one_data_set(case: Case) -> None:
    files = {f"{domain}.tgz": publishers.plain(tarred(pacs_files(domains=(domain,)))) for domain in DOMAINS}
    case.publish(files)
    assert case.fetch() == 0, case.complained
    case.assert_whole()


def test_broken_lines_are_gone_on_with(case: Case) -> None:
    case.publish({"PACS.zip": ranged(ARCHIVE, breaks=3)})
    assert case.fetch() == 0, case.complained
    case.assert_whole()
    assert [headers.get("Range") for headers in case.site.headers].count(None) == 1


@pytest.mark.parametrize(
    "bad",
    [
        servers.status(404),
        servers.redirect("/0/PACS.zip"),
        publishers.page("<h1>gone</h1>"),
        publishers.plain(b"no archive"),
        publishers.plain(ARCHIVE[: len(ARCHIVE) // 2]),
        publishers.plain(zipped({"../../evil.png": b"x"})),
        publishers.plain(zipped(pacs_files("", ("photo", "sketch")))),
    ],
    ids=["404", "loop", "page", "junk", "cut", "hostile", "half"],
)
def test_the_next_source_serves_where_one_fails(case: Case, bad: servers.Serve) -> None:
    case.publish({"PACS.zip": bad}, {"PACS.zip": ranged(ARCHIVE)})
    assert case.fetch() == 0, case.complained
    case.assert_whole()
    assert "failed: " in case.said
    assert not list(case.to.parent.parent.rglob("evil*"))


def test_one_source_can_be_chosen(case: Case) -> None:
    case.publish({"PACS.zip": servers.status(404)}, {"PACS.zip": ranged(ARCHIVE)})
    assert case.fetch("--source", 1) == 2
    assert case.fetch("--source", 2) == 0
    assert case.site.count["/0/PACS.zip"] == 1


def test_a_custom_address(case: Case) -> None:
    case.site.routes = {"/mine.bin": ranged(ARCHIVE)}
    assert case.fetch("--source", f"{case.site.url}/mine.bin") == 0, case.complained
    case.assert_whole()


def test_if_all_sources_fail_the_message_says_what_to_do(case: Case) -> None:
    case.publish({"PACS.zip": servers.status(404)}, {"PACS.zip": servers.status(403)})
    assert case.fetch() == 2
    assert case.complained == (
        "error: PACS could not be downloaded (the server returned 404 Not Found; the server returned 403 Forbidden); "
        f"download PACS.zip from http://by.hand/, then run ssdg data fetch pacs --from FILE --to {case.to}"
    )
    case.assert_nothing()


def test_without_a_network_the_same_is_reported_at_once(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # discard: nobody listens
    assert case.fetch() == 2
    assert "no connection to drive.google.com: Connection refused" in case.complained
    assert "https://drive.google.com/file/d/1m4X4fROCCXMO0lRLrr6Zz9Vb3974NWhE/view" in case.complained
    assert "--from FILE" in case.complained
    case.assert_nothing()


@pytest.mark.parametrize("name", ["pacs-web", "office-web"])
def test_a_dataset_without_an_address_is_reported(case: Case, name: str) -> None:
    assert case.fetch(name=name) == 2
    assert "has no known URL; ask the authors" in case.complained
    assert "https://github.com/MetaVisionLab/SSDG" in case.complained
    assert case.site.num_requests == 0


@pytest.mark.parametrize("form", ["zip", "tar", "tar.gz", "tgz"])
def test_from_a_file_of_this_disk(case: Case, tmp_path: Path, form: str) -> None:
    content = ARCHIVE if form == "zip" else tarred(pacs_files("PACS/"), "w" if form == "tar" else "w:gz")
    file = tmp_path / f"mine.{form}"
    file.write_bytes(content)
    assert case.fetch("--from", file) == 0, case.complained
    case.assert_whole()
    assert file.read_bytes() == content
    assert case.site.num_requests == 0


def test_from_an_archive_of_archives(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "mine.zip"
    file.write_bytes(zipped({f"PACS/{d}.zip": zipped(pacs_files(domains=(d,))) for d in DOMAINS}))
    assert case.fetch("--from", file) == 0, case.complained
    case.assert_whole()


def test_a_crawl_and_its_benchmark_from_two_files(case: Case, tmp_path: Path) -> None:
    classes = PUBLISHED["pacs-web"].dataset.classes
    (tmp_path / "PACS.zip").write_bytes(ARCHIVE)
    (tmp_path / "crawl.zip").write_bytes(
        zipped({f"{name}/0.png": publishers.png(n) for n, name in enumerate(classes)})
    )
    assert case.fetch("--from", tmp_path / "PACS.zip", tmp_path / "crawl.zip", name="pacs-web") == 1
    assert "7 images, PACS-Webdata has 5243" in case.said
    assert read_benchmark(case.to).names == tuple(sorted((*DOMAINS, "web")))


def test_missing_images_are_reported_as_a_failure(case: Case, tmp_path: Path) -> None:
    files = pacs_files()
    del files["photo/dog/0.png"]
    files["sketch/dog/1.png"] = b"no image"
    (tmp_path / "mine.zip").write_bytes(zipped(files))
    assert case.fetch("--from", tmp_path / "mine.zip") == 1
    assert "3 images, PACS has 4" in case.said
    assert "not an image in a known format" in case.said


def test_an_existing_folder_is_left_as_it_is(case: Case) -> None:
    case.publish({"PACS.zip": ranged(ARCHIVE)})
    case.to.mkdir(parents=True)
    (case.to / "mine.txt").write_text("precious")
    assert case.fetch() == 2
    assert f"'{case.to}' already exists and was not changed" in case.complained
    assert files_below(case.to.parent) == {"PACS/mine.txt": b"precious"}
    assert case.site.num_requests == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--from", "absent.zip"], "'absent.zip' does not exist; pass an archive of PACS"),
        (["--from", "."], "'.' is a folder; if it contains PACS"),
        (["--source", "9"], "--source 9 is not a source of PACS; use a number from 1 to 4 or an http URL"),
        (["--source", "ftp://x/y"], "is not a source of PACS"),
        (["--from", "a.zip", "--source", "1"], "set only one of them"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(case: Case, args: list[str], message: str) -> None:
    assert case.fetch(*args) == 2
    assert message in case.complained
    assert not case.to.parent.exists()


def test_an_unknown_dataset_is_reported(case: Case) -> None:
    assert case.fetch(name="pasc") == 2
    assert "unknown dataset 'pasc' (did you mean 'pacs'?)" in case.complained


def test_a_hostile_file_of_this_disk_is_refused(case: Case, tmp_path: Path) -> None:
    (tmp_path / "evil.tar").write_bytes(tarred({"../../evil.png": b"x"}, "w"))
    assert case.fetch("--from", tmp_path / "evil.tar") == 2
    assert "cannot create PACS from" in case.complained
    assert "leads outside" in case.complained
    case.assert_nothing()


COMMAND = """
import sys
from ssdg.cli import main
from ssdg.hub import transfer
transfer._CHUNK = 1000
main(sys.argv[1:])
"""


def test_a_killed_fetch_resumes(case: Case) -> None:
    """SIGKILL while the second half is awaited; the same command then asks for this half alone."""
    half = len(ARCHIVE) // 2

    def stalling(handler: servers.Handler) -> None:
        handler.send_response(200)
        for name, value in {"Content-Length": str(len(ARCHIVE)), "ETag": '"v1"'}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(ARCHIVE[:half])
        handler.wfile.flush()
        handler.server.gate.wait()

    address = f"{case.site.url}/a.zip"
    case.site.routes = {"/a.zip": stalling}
    args = [sys.executable, "-c", COMMAND, "data", "fetch", "pacs", "--to", str(case.to), "--source", address]
    process = subprocess.Popen(args, env={**os.environ, "OMP_NUM_THREADS": "1"})
    parts = ".PACS.fetch/*/*.part"
    wait_until(lambda: any(part.stat().st_size > 1000 for part in case.to.parent.glob(parts)), process)
    (part,) = case.to.parent.glob(parts)
    assert case.fetch("--source", address) == 2
    assert "is being fetched by another process" in case.complained
    process.send_signal(signal.SIGKILL)
    process.wait()
    got = part.stat().st_size
    (case.to.parent / ".PACS.fetch" / "unpacked" / "0" / "photo").mkdir(parents=True)  # killed while unpacking once
    case.site.routes = {"/a.zip": ranged(ARCHIVE)}
    assert case.fetch("--source", address) == 0, case.complained
    case.assert_whole()
    assert case.site.headers[-1]["Range"] == f"bytes={got}-"


def test_killed_just_after_the_folder_appeared(case: Case, tmp_path: Path) -> None:
    """The same command recognizes its finished work, verifies it, and removes what is left."""
    case.publish({"PACS.zip": ranged(ARCHIVE)})
    assert case.fetch() == 0, case.complained
    work = case.to.parent / ".PACS.fetch" / "12345678"
    work.mkdir(parents=True)
    (work / "PACS.zip").write_bytes(ARCHIVE)
    (case.to.parent / ".PACS.lock").touch()
    num_requests = case.site.num_requests
    assert case.fetch() == 0, case.complained
    assert "PACS was fetched before; verifying it" in case.said
    assert case.site.num_requests == num_requests
    assert [path.name for path in case.to.parent.iterdir()] == ["PACS"]
    (tmp_path / "mine.zip").write_bytes(ARCHIVE)
    (tmp_path / "other.zip").write_bytes(zipped(pacs_files()))
    assert case.fetch("--from", tmp_path / "mine.zip") == 0, case.complained
    assert case.fetch("--from", tmp_path / "other.zip") == 2
    assert "already exists and was not changed" in case.complained
    assert case.fetch("--source", f"{case.site.url}/elsewhere.zip") == 2


def test_every_published_source_is_well_formed() -> None:
    for dataset in PUBLISHED.values():
        assert dataset.dataset.name == dataset.name
        assert dataset.by_hand
        for source in dataset.sources:
            assert source.files
            assert all(file.url.startswith("https://") and "/" not in file.name for file in source.files)
    assert [len(PUBLISHED[name].sources) for name in ("pacs", "office-home", "digits-dg", "pacs-web")] == [4, 5, 2, 0]
