"""Where a fetch may lead: addresses, names that change their mind, redirects inward, TLS names, turns."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
import servers as serve
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import Site

from data.pictures import png
from ssdg.errors import UserError
from ssdg.web.crawl import http_get
from ssdg.web.crawl.fetch_url import Fetcher
from ssdg.web.crawl.politeness import Budget, HostQueue, Limits
from ssdg.web.untrusted import LimitReached, Refused

PUBLIC, OTHER_PUBLIC = "93.184.216.34", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"
QUICK = Limits(delay=0, file_seconds=20)


@pytest.fixture
def connections(site: Site, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every connection goes to the local server; the addresses that were meant are noted."""
    meant: list[str] = []
    real = socket.create_connection

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        meant.append(address[0])
        return real(("127.0.0.1", site.server_port), timeout)

    monkeypatch.setattr(http_get.socket, "create_connection", connect)
    return meant


def answers(*each: list[str]) -> Callable[[str, int], list[str]]:
    """A resolver that says something else every time; the last answer stays."""
    left = list(each)
    return lambda host, port: left.pop(0) if len(left) > 1 else left[0]


def by_name(host: str, port: int) -> list[str]:
    return [PUBLIC] if host.endswith(".test") else [host]


def test_the_address_that_was_checked_is_the_one_connected_to(site: Site, connections: list[str]) -> None:
    """A name that is public when asked and private a moment later: the second answer is never asked for."""
    site.routes = {"/a.png": serve.image(png(1))}
    fetcher = Fetcher(QUICK, resolver=answers([PUBLIC], [PUBLIC], ["127.0.0.1"]))
    assert fetcher.fetch_image("http://evil.test/a.png") == png(1)
    assert connections == [PUBLIC, PUBLIC], "robots.txt and the image"
    assert {headers["Host"] for headers in site.headers} == {"evil.test"}


def test_a_name_that_turns_private_is_refused_the_next_time(site: Site, connections: list[str]) -> None:
    site.routes = {"/a.png": serve.image(png(1))}
    fetcher = Fetcher(QUICK, resolver=answers([PUBLIC], [PUBLIC], ["127.0.0.1"]))
    fetcher.fetch_image("http://evil.test/a.png")
    with pytest.raises(Refused, match="address"):
        fetcher.fetch_image("http://evil.test/a.png")
    assert connections == [PUBLIC, PUBLIC]


def test_one_private_address_among_public_ones_is_enough(connections: list[str]) -> None:
    fetcher = Fetcher(QUICK, resolver=answers([PUBLIC, OTHER_PUBLIC, "10.0.0.1"]))
    with pytest.raises(Refused, match=r"10\.0\.0\.1"):
        fetcher.fetch_image("http://mixed.test/a.png")
    assert not connections


@pytest.mark.parametrize(
    "to",
    ["http://127.0.0.1/a.png", "http://[::1]/a.png", "//169.254.169.254/latest/meta-data", "https://10.1.2.3:8080/"],
)
def test_redirects_to_private_addresses_are_not_followed(to: str, site: Site, connections: list[str]) -> None:
    site.routes = {"/go": serve.redirect(to), "/a.png": serve.image(png(1))}
    with pytest.raises(Refused) as refused:
        Fetcher(QUICK, resolver=by_name).fetch_image("http://shop.test/go")
    assert refused.value.reason == "address"
    assert set(connections) == {PUBLIC}
    assert site.count["/a.png"] == 0


def test_a_robots_file_elsewhere_inside_forbids_all(site: Site, connections: list[str]) -> None:
    site.routes = {"/robots.txt": serve.redirect("http://127.0.0.1/robots.txt"), "/a.png": serve.image(png(1))}
    with pytest.raises(Refused, match="robots"):
        Fetcher(QUICK, resolver=by_name).fetch_image("http://shop.test/a.png")
    assert site.count["/a.png"] == 0


def test_every_hop_asks_the_robots_file_of_its_host(site: Site, connections: list[str]) -> None:
    def robots(handler: serve.Handler) -> None:
        closed = handler.headers["Host"] == "closed.test"
        handler.answer(200, b"User-agent: *\nDisallow: /" if closed else b"")

    site.routes = {"/robots.txt": robots, "/go": serve.redirect("http://closed.test/a"), "/a": serve.image(png(1))}
    fetcher = Fetcher(QUICK, resolver=by_name)
    assert fetcher.fetch_image("http://open.test/a") == png(1)
    with pytest.raises(Refused, match=r"disallowed by http://closed\.test/robots\.txt"):
        fetcher.fetch_image("http://open.test/go")


def test_tls_gets_the_name_of_the_host(site: Site, connections: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is to an address, and the certificate must still be that of the name."""
    names: list[str] = []

    class Plain:
        def wrap_socket(self, plain: socket.socket, server_hostname: str) -> socket.socket:
            names.append(server_hostname)
            return plain

    monkeypatch.setattr(http_get, "_tls", Plain)
    site.routes = {"/a.png": serve.image(png(1))}
    assert Fetcher(QUICK, resolver=by_name).fetch_image("https://bücher.test/a.png") == png(1)
    assert set(names) == {"xn--bcher-kva.test"}
    assert set(connections) == {PUBLIC}
    assert site.headers[-1]["Host"] == "xn--bcher-kva.test"


def test_certificates_are_checked() -> None:
    context = http_get._tls()
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"


def test_the_next_address_is_tried_when_one_does_not_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.create_connection

    def connect(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0] == PUBLIC:
            raise ConnectionRefusedError(111, "Connection refused")
        return real(("127.0.0.1", site.server_port), timeout)

    monkeypatch.setattr(http_get.socket, "create_connection", connect)
    site.routes = {"/a.png": serve.image(png(1))}
    assert Fetcher(QUICK, resolver=answers([PUBLIC, OTHER_PUBLIC])).fetch_image("http://two.test/a.png") == png(1)
    with pytest.raises(Refused, match="unreachable"):
        Fetcher(QUICK, resolver=answers([PUBLIC])).fetch_image("http://one.test/a.png")


def test_what_is_no_http_at_all(connections: list[str], site: Site) -> None:
    site.routes = {"/a": lambda handler: handler.wfile.write(b"SSH-2.0-hello\r\n") and None}
    with pytest.raises(Refused, match="no HTTP response"):
        Fetcher(QUICK, resolver=by_name).fetch_image("http://shop.test/a")


def test_requests_to_a_host_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(Budget, "sleep", lambda self, seconds: slept.append(seconds))
    turns = HostQueue(1000, Budget(1, 1e9))
    for host in ("a", "a", "b", "a"):
        turns.wait(host)
    assert [round(seconds, -2) for seconds in slept] == [1000, 2000]


def test_a_turn_after_the_end_ends_the_crawl() -> None:
    turns = HostQueue(1000, Budget(1, 500))
    turns.wait("a")
    with pytest.raises(LimitReached, match="time limit"):
        turns.wait("a")


def test_a_busy_host_is_left_alone(site: Site, connections: list[str]) -> None:
    site.routes = {"/a": lambda handler: handler.answer(429, b"", Retry_After="900"), "/b": serve.image(png(1))}
    fetcher = Fetcher(Limits(delay=0, total_seconds=60), resolver=by_name)
    with pytest.raises(Refused, match="busy: 429"):
        fetcher.fetch_image("http://shop.test/a")
    assert fetcher.fetch_image("http://other.test/b") == png(1)
    with pytest.raises(LimitReached):
        fetcher.fetch_image("http://shop.test/b")


def test_a_host_is_asked_as_slowly_as_it_wants(site: Site, connections: list[str]) -> None:
    def robots(handler: serve.Handler) -> None:
        seconds = {"slow.test": b"0.4", "never.test": b"86400"}[handler.headers["Host"].partition(":")[0]]
        serve.image(b"User-agent: *\nCrawl-delay: " + seconds, "text/plain")(handler)

    site.routes = {"/robots.txt": robots, "/a": serve.image(png(1))}
    fetcher = Fetcher(QUICK, resolver=by_name)
    fetcher.fetch_image("http://slow.test/a")
    start = time.monotonic()
    fetcher.fetch_image("http://slow.test/a")
    assert time.monotonic() - start > 0.3
    with pytest.raises(Refused, match="asks for 86400 s between requests"):
        fetcher.fetch_image("http://never.test/a")


def test_robots_files_need_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "protego", None)
    with pytest.raises(UserError, match=r"pip install 'ssdg\[web\]'"):
        Fetcher(QUICK)


def test_of_a_long_robots_file_the_beginning_counts(site: Site, connections: list[str]) -> None:
    text = b"User-agent: *\nDisallow: /a\n" + b"# long\n" * 200_000 + b"Disallow: /b\n"
    site.routes = {"/robots.txt": serve.image(text, "text/plain"), "/b": serve.image(png(1))}
    fetcher = Fetcher(QUICK, resolver=by_name)
    assert fetcher.fetch_image("http://shop.test/b") == png(1)
    with pytest.raises(Refused, match="robots"):
        fetcher.fetch_image("http://shop.test/a")


@settings(deadline=None)
@given(
    st.sampled_from(
        [b"HTTP/1.1 200 OK", b"HTTP/1.0 302 x", b"HTTP/1.1 999", b"HTTP/9 200", b"HTTP/1.1 100 Continue"]
    ),
    st.lists(
        st.sampled_from(
            [
                *(
                    b"Content-Length: 4",
                    b"Content-Length: -1",
                    b"Content-Length: 9" + b"9" * 5000,
                    b"Content-Type: \xff",
                ),
                *(
                    b"Transfer-Encoding: chunked",
                    b"Location: http://[",
                    b"Location: \xe9\x00",
                    b"Location: http://h.test/x",
                ),
                *(b"no colon", b"\x00: \x01", b"Retry-After: \xb2", b"Content-Encoding: x"),
            ]
        ),
        max_size=4,
    ),
    st.binary(max_size=40) | st.sampled_from([b"4\r\nabcd\r\n0\r\n\r\n", b"zz\r\n", b"ffffffffffffffffffff\r\na"]),
)
def test_no_answer_does_more_than_be_refused(status: bytes, headers: list[bytes], body: bytes) -> None:
    """Whatever bytes a host sends: a body or a reason, and never another error."""
    ours: list[socket.socket] = []

    def connect(*_: object) -> socket.socket:
        here, there = socket.socketpair()
        there.sendall(b"\r\n".join([status, *headers, b"", body]))
        there.shutdown(socket.SHUT_WR)
        ours.append(there)  # read by nobody, open until the end
        return here

    with pytest.MonkeyPatch.context() as patch, suppress(Refused):
        patch.setattr(http_get, "_connect", connect)
        assert isinstance(Fetcher(QUICK, resolver=by_name).fetch_page("http://h.test/", check_robots=False), bytes)
    for there in ours:
        there.close()
