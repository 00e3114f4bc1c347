"""One GET over HTTP/1.1 to an address that was checked before, with a clock that no answer can stretch."""

from __future__ import annotations

import io
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import Any, cast
from urllib.parse import quote, urlsplit

from ..untrusted import Refused

MOST_URL_LETTERS = 4000
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_CHUNK = 1 << 16
_SLICE = 0.5  # seconds: how soon a wait notices that it is no longer wanted
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Target:
    """Where a URL leads."""

    scheme: str
    host: str  # a name in ASCII, or an address
    port: int
    path: str  # with its query, percent-encoded
    url: str

    @property
    def site(self) -> str:
        """Scheme, host and port: what a robots.txt speaks for."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")


def parse_target(url: str) -> Target:
    """Take a URL apart; raise `Refused` if it is not one of http or https, or could smuggle anything in."""
    if len(url) > MOST_URL_LETTERS:
        raise Refused("bad-url", f"longer than {MOST_URL_LETTERS} letters")
    try:
        parts = urlsplit(url.strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError:
        raise Refused("bad-url", "cannot be taken apart") from None
    if scheme not in _PORTS:
        raise Refused("bad-url", f"scheme '{scheme}' is neither http nor https")
    if not _HOST.fullmatch(host):
        raise Refused("bad-url", f"'{host}' is no host")
    if parts.username is not None or parts.password is not None:
        raise Refused("bad-url", "holds a user name or password")
    path = quote(parts.path or "/", safe="/%:=&~+!$,;'@()*[]")
    query = "?" + quote(parts.query, safe="/%:=&~+!$,;'@()*[]?") if parts.query else ""
    target = Target(scheme, host, port or _PORTS[scheme], path + query, "")
    return Target(scheme, host, target.port, target.path, target.site + target.path)


@dataclass(frozen=True)
class Clock:
    """When an answer must have ended, and the longest that may pass without a byte of it."""

    end: float  # of time.monotonic
    idle: float  # seconds
    check: Callable[[], object]  # called now and then; may raise to end the wait

    def wait(self) -> float:
        """Seconds that the next wait may last."""
        self.check()
        left = self.end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return min(left, self.idle)


@contextmanager
def opened(target: Target, addresses: Sequence[str], agent: str, clock: Clock) -> Iterator[HTTPResponse]:
    """Ask for `target` at the first of `addresses` that connects; yield the answer with its body unread.

    All of it, reading the body too, must end before the clock does.
    """
    with _told_apart(target):
        connection = _connect(target, addresses, clock)
    try:
        with _told_apart(target):
            connection.sendall(_request(target, agent))
            response = HTTPResponse(cast(Any, _Reading(connection, clock)), method="GET")
            response.begin()
            yield response
    finally:
        with suppress(OSError):
            connection.close()


def read_body(response: HTTPResponse, most: int, spend: Callable[[int], None], *, cut: bool = False) -> bytes:
    """The body; raise `Refused` if it ends early or has more than `most` bytes. Each piece is told to `spend`.

    With `cut`, more than `most` bytes are not an error, and what comes after them is not read.
    """
    announced = response.length  # None when chunked or ended by closing
    if announced is not None and announced > most and not cut:
        raise Refused("too-large", f"{announced:,} bytes, more than the limit of {most:,}")
    pieces, total = [], 0
    while piece := response.read1(_CHUNK):
        spend(len(piece))
        total += len(piece)
        pieces.append(piece)
        if total > most:
            if cut:
                return b"".join(pieces)[:most]
            raise Refused("too-large", f"more than the limit of {most:,} bytes")
    if announced is not None and total < announced:
        raise Refused("truncated", f"{total:,} of {announced:,} bytes")
    return b"".join(pieces)


def _request(target: Target, agent: str) -> bytes:
    lines = (
        f"GET {target.path} HTTP/1.1",
        f"Host: {target.site.partition('://')[2]}",
        f"User-Agent: {agent}",
        "Accept: image/*, */*;q=0.5",
        "Accept-Encoding: identity",
        "Connection: close",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii")


class _Reading(io.RawIOBase):
    """Reads from a socket, each time with the time that is left; all that HTTPResponse asks of a socket."""

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection, self._clock = connection, clock

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        idle_end = time.monotonic() + self._clock.idle
        while True:
            self._connection.settimeout(min(self._clock.wait(), _SLICE))
            try:
                return self._connection.recv_into(buffer)
            except TimeoutError:
                if time.monotonic() >= idle_end:
                    raise


def _connect(target: Target, addresses: Sequence[str], clock: Clock) -> socket.socket:
    failure: OSError = ConnectionError("no address")
    for address in addresses:
        try:
            plain = socket.create_connection((address, target.port), timeout=clock.wait())
        except OSError as error:
            failure = error
            continue
        if target.scheme == "http":
            return plain
        try:
            return _tls().wrap_socket(plain, server_hostname=target.host)  # the name, though an address is connected
        except BaseException:
            plain.close()
            raise
    raise failure


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@contextmanager
def _told_apart(target: Target) -> Iterator[None]:
    """What goes wrong on the way, as a reason to refuse."""
    try:
        yield
    except TimeoutError:
        raise Refused("slow", f"{target.host} gave no whole answer in time") from None
    except IncompleteRead:
        raise Refused("truncated", "the answer ended before its announced end") from None
    except HTTPException as error:
        raise Refused("unreachable", f"no HTTP answer: {type(error).__name__}") from None
    except OSError as error:
        raise Refused("unreachable", error.strerror or str(error) or type(error).__name__) from None
