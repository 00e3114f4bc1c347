"""Downloads from a real server on this machine: resumed, broken, changed, busy, endless, led astray."""

from __future__ import annotations

import hashlib
import random
import socket
from pathlib import Path

import pytest

from hub import publishers
from ssdg.hub.download import Downloader, Remote
from ssdg.hub.transfer import FetchError, Limits, find_confirmed_url
from web import servers
from web.servers import Site

DATA = random.Random(1).randbytes(300_000)
OTHER = random.Random(2).randbytes(300_000)
HASH = hashlib.sha256(DATA).hexdigest()


class Case:
    """A downloader that notes how long it would have slept."""

    def __init__(self, site: Site, folder: Path, **limits: float) -> None:
        self.site, self.folder, self.slept = site, folder, []
        values = {"idle_seconds": 20.0, "first_wait": 1.0, **limits}
        self.downloader = Downloader(Limits(**values), sleep=self.slept.append)  # type: ignore[arg-type]

    def get(self, sha256: str = "", path: str = "/a.zip") -> bytes:
        remote = Remote(path if "://" in path else f"{self.site.url}{path}", "a.zip", sha256)
        got = self.downloader.get(remote, self.folder)
        assert sorted(file.name for file in self.folder.iterdir()) == ["a.zip"], "nothing but the file is left"
        return got.read_bytes()

    def fails(self, match: str, **options: str) -> None:
        with pytest.raises(FetchError, match=match):
            self.get(**options)
        assert not (self.folder / "a.zip").exists()

    @property
    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for headers in self.site.headers]

    def begun(self, data: bytes) -> None:
        """An earlier process got so far: the server broke off, and it gave up."""
        half = Downloader(Limits(tries=1), sleep=self.slept.append)
        with pytest.raises(FetchError):
            half.get(Remote(f"{self.site.url}/a.zip", "a.zip"), self.folder)
        assert (self.folder / "a.zip.part").read_bytes() == data


@pytest.fixture
def case(site: Site, tmp_path: Path) -> Case:
    return Case(site, tmp_path / "files")


@pytest.mark.parametrize("sha256", ["", HASH, HASH[:8]])
def test_a_file_is_downloaded_once(case: Case, sha256: str) -> None:
    case.site.routes = {"/a.zip": publishers.plain(DATA)}
    assert case.get(sha256) == DATA
    assert case.get(sha256) == DATA
    assert case.site.num_requests == 1


def test_a_stored_file_with_a_wrong_hash_is_downloaded_again(case: Case) -> None:
    case.folder.mkdir()
    (case.folder / "a.zip").write_bytes(b"something else")
    case.site.routes = {"/a.zip": publishers.plain(DATA)}
    assert case.get(HASH) == DATA


def test_a_broken_answer_is_gone_on_with(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(DATA, breaks=2)}
    assert case.get(HASH) == DATA
    assert case.ranges == [None, "bytes=150000-", "bytes=225000-"]
    assert case.slept == [1.0, 1.0], "each try brought something, so waits do not grow"


def test_a_later_process_resumes(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(DATA, breaks=1)}
    case.begun(DATA[:150_000])
    assert case.get() == DATA
    assert case.ranges == [None, "bytes=150000-"]


def test_the_time_of_the_last_change_serves_where_there_is_no_tag(case: Case) -> None:
    changed = "Mon, 01 Jan 2024 00:00:00 GMT"
    options = {"etag": 'W/"weak"', "heeds": False, "Last_Modified": changed}
    case.site.routes = {"/a.zip": publishers.ranged(DATA, breaks=1, **options)}
    case.begun(DATA[:150_000])
    assert case.get() == DATA
    assert case.site.headers[1]["If-Range"] == changed


def test_without_any_version_it_begins_again(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(DATA, 'W/"weak"', breaks=1)}
    case.begun(DATA[:150_000])
    assert case.get() == DATA
    assert case.ranges == [None, None]


@pytest.mark.parametrize("heeds", [True, False])
def test_a_file_that_changed_is_downloaded_from_its_beginning(case: Case, heeds: bool) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(OTHER, '"v0"', breaks=1)}
    case.begun(OTHER[:150_000])
    case.site.routes = {"/a.zip": publishers.ranged(DATA, '"v1"', heeds=heeds)}
    assert case.get() == DATA


def test_a_server_without_ranges_sends_all_again(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(DATA, breaks=1)}
    case.begun(DATA[:150_000])
    case.site.routes = {"/a.zip": publishers.plain(DATA)}
    assert case.get() == DATA


def test_a_process_killed_after_the_last_byte_has_the_file(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(DATA, breaks=1)}
    case.begun(DATA[:150_000])
    (case.folder / "a.zip.part").write_bytes(DATA)
    assert case.get(HASH) == DATA


def test_a_partial_file_that_is_too_long_is_thrown_away(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(DATA, breaks=1)}
    case.begun(DATA[:150_000])
    (case.folder / "a.zip.part").write_bytes(DATA + b"more")
    assert case.get(HASH) == DATA


def test_damaged_notes_of_a_partial_file_do_not_matter(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(DATA, breaks=1)}
    case.begun(DATA[:150_000])
    (case.folder / "a.zip.part.json").write_text("[1, 2")
    assert case.get(HASH) == DATA


def test_a_wrong_hash_is_refused_and_nothing_is_kept(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.ranged(OTHER)}
    case.fails("unexpected content: sha256 is [0-9a-f]{64}, expected", sha256=HASH)
    assert not list(case.folder.iterdir())
    assert case.site.num_requests == 1


def test_a_wrong_beginning_is_not_kept_for_ever(case: Case) -> None:
    """A partial file with a flipped byte: the hash tells, and the file is downloaded from its beginning."""
    case.site.routes = {"/a.zip": publishers.ranged(DATA, breaks=1)}
    case.begun(DATA[:150_000])
    (case.folder / "a.zip.part").write_bytes(b"x" + DATA[1:150_000])
    assert case.get(HASH) == DATA


def test_what_is_not_there_is_not_asked_for_twice(case: Case) -> None:
    case.fails("the server returned 404")
    assert case.site.num_requests == 1


def test_a_busy_server_is_waited_for(case: Case) -> None:
    def later(handler: servers.Handler) -> None:
        handler.answer(503, b"", Retry_After="7")

    case.site.routes = {
        "/a.zip": publishers.in_turn(servers.status(500), later, servers.status(429), publishers.plain(DATA))
    }
    assert case.get() == DATA
    assert case.slept == [1.0, 7.0, 4.0], "doubled each time, or what the server wishes"


def test_a_server_that_stays_busy_is_given_up(case: Case) -> None:
    case.site.routes = {"/a.zip": servers.status(503)}
    case.fails("the server returned 503")
    assert case.site.num_requests == 5
    assert case.slept == [1.0, 2.0, 4.0, 8.0]


def test_a_file_of_the_limit_is_taken_and_one_byte_more_refused(site: Site, tmp_path: Path) -> None:
    site.routes = {"/a.zip": publishers.plain(DATA)}
    assert Case(site, tmp_path / "a", file_bytes=len(DATA)).get() == DATA
    Case(site, tmp_path / "b", file_bytes=len(DATA) - 1).fails("300,000 bytes, more than the limit of 299,999")


def test_a_file_without_an_end_is_cut_off_at_the_limit(site: Site, tmp_path: Path) -> None:
    site.routes = {"/a.zip": servers.endless("application/zip")}
    case = Case(site, tmp_path / "files", file_bytes=1_000_000)
    case.fails("more than the limit of 1,000,000 bytes")
    assert not list(case.folder.iterdir())


def test_redirects_are_followed(case: Case) -> None:
    case.site.routes = {"/a.zip": servers.redirect("/b.zip"), "/b.zip": publishers.ranged(DATA, breaks=1)}
    assert case.get() == DATA
    assert case.site.headers[-1]["Range"] == "bytes=150000-"


@pytest.mark.parametrize("to", ["/a.zip", "/b.zip"])
def test_redirects_in_a_circle_end(case: Case, to: str) -> None:
    case.site.routes = {"/a.zip": servers.redirect(to), "/b.zip": servers.redirect("/a.zip")}
    case.fails("the server returned 302")
    assert case.site.num_requests < 12


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/a.zip", "data:text/plain,a"])
def test_redirects_to_what_is_no_http_are_not_followed(case: Case, to: str) -> None:
    case.site.routes = {"/a.zip": servers.redirect(to)}
    case.fails("the server returned 302|no connection to 127.0.0.1: unknown url type")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/a", "http://", "http://[::1/a", "a.zip://x"])
def test_an_address_that_is_not_http_is_reported(case: Case, url: str) -> None:
    case.fails("is not an http or https URL|is not a valid URL|no connection to", path=url)


def test_a_page_is_no_file(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.page("<h1>quota exceeded</h1>")}
    case.fails("a web page instead of a file")


FORM = (
    '<html><form id="download-form" action="{action}" method="get"><input type="submit" value="Download anyway">'
    '<input type="hidden" name="id" value="x&amp;y"><input type="hidden" name="confirm" value="t"></form></html>'
)


def test_the_page_that_asks_to_confirm_is_confirmed_and_resumed(case: Case) -> None:
    page, file = publishers.page(FORM.format(action="/download")), publishers.ranged(DATA, breaks=1)
    case.site.routes = {"/a.zip": page, "/download": file}
    assert case.get(HASH) == DATA
    assert case.site.count["/download?id=x%26y&confirm=t"] == 2
    assert case.ranges[-1] == "bytes=150000-"


def test_a_page_that_asks_for_ever_ends(case: Case) -> None:
    case.site.routes = {path: publishers.page(FORM.format(action="/download")) for path in ("/a.zip", "/download")}
    case.fails("even after confirmation")
    assert case.site.num_requests == 2


@pytest.mark.parametrize(
    ("action", "is_followed"),
    [
        ("https://drive.usercontent.google.com/download", True),
        ("http://drive.usercontent.google.com/download", False),
        ("https://drive.google.com.evil.example/download", False),
        ("https://evilgoogle.com/download", False),
        ("file:///etc/passwd", False),
        ("", False),
    ],
)
def test_confirming_leads_to_google_or_the_same_site_only(action: str, is_followed: bool) -> None:
    target = find_confirmed_url(FORM.format(action=action), "https://drive.google.com/uc?id=1")
    assert target == (f"{action}?id=x%26y&confirm=t" if is_followed else None)


def test_an_answer_that_was_packed_unasked_is_refused(case: Case) -> None:
    case.site.routes = {"/a.zip": lambda handler: handler.answer(200, b"x", Content_Encoding="gzip")}
    case.fails("unrequested content encoding: gzip")


def test_a_silent_server_is_not_waited_for_for_ever(site: Site, tmp_path: Path) -> None:
    site.routes = {"/a.zip": servers.silent}
    Case(site, tmp_path / "files", idle_seconds=0.2, tries=2).fails("no response in time")
    assert site.num_requests == 2


def test_where_nobody_listens_nobody_is_waited_for(case: Case) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        case.fails(
            "no connection to 127.0.0.1: Connection refused", path=f"http://127.0.0.1:{taken.getsockname()[1]}/a"
        )
    assert case.slept == []


def test_broken_chunks_are_tried_again(case: Case) -> None:
    case.site.routes = {"/a.zip": publishers.in_turn(servers.broken_chunks(DATA), publishers.plain(DATA))}
    assert case.get(HASH) == DATA


def test_a_proxy_of_the_environment_is_used(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "http://published.example/a.zip"
    case.site.routes = {address: publishers.plain(DATA)}
    monkeypatch.setenv("http_proxy", case.site.url)
    assert case.get(path=address) == DATA


def test_a_full_disk_is_no_fault_of_the_server(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.site.routes = {"/a.zip": publishers.plain(DATA)}
    real = Path.open

    class Full:
        def __init__(self, file: object) -> None:
            self.file = file

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()  # type: ignore[attr-defined]

        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

    def opened(path: Path, mode: str = "r", *args: object, **options: object) -> object:
        file = real(path, mode, *args, **options)  # type: ignore[call-overload]
        return Full(file) if path.suffix == ".part" and mode == "wb" else file

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(OSError, match="No space left"):
        case.get()
    assert case.site.num_requests == 1
