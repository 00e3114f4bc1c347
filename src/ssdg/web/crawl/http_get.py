"""Send one HTTP/1.1 GET to an address that was checked before, with a deadline that no server can extend."""

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

from ..untrusted import MAX_URL_LENGTH, Refused

_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_CHUNK = 1 << 16
_POLL_SECONDS = 0.5  # how often a wait checks whether the crawl was stopped
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Target:
    """A parsed http or https URL."""

    scheme: str
    host: str  # an ASCII name or an IP address
    port: int
    path: str  # with its query, percent-encoded
    url: str

    @property
    def site(self) -> str:
        """Scheme, host and port: the scope of a robots.txt."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")


def parse_target(url: str) -> Target:
    """Parse a URL; raise `Refused` if it is not http or https or could smuggle in headers or credentials."""
    if len(url) > MAX_URL_LENGTH:
        raise Refused("bad-url", f"longer than {MAX_URL_LENGTH} characters")
    try:
        parts = urlsplit(url.strip())
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except ValueError:
        raise Refused("bad-url", "cannot be parsed") from None
    if scheme not in _PORTS:
        raise Refused("bad-url", f"scheme '{scheme}' is not http or https")
    if not _HOST.fullmatch(host):
        raise Refused("bad-url", f"invalid host '{host}'")
    if parts.username is not None or parts.password is not None:
        raise Refused("bad-url", "contains a user name or password")
    path = quote(parts.path or "/", safe="/%:=&~+!$,;'@()*[]")
    query = "?" + quote(parts.query, safe="/%:=&~+!$,;'@()*[]?") if parts.query else ""
    target = Target(scheme, host, port or _PORTS[scheme], path + query, "")
    return Target(scheme, host, target.port, target.path, target.site + target.path)


@dataclass(frozen=True)
class Deadline:
    """When a response must be complete, and the longest wait for its next byte."""

    end: float  # on the clock of time.monotonic
    idle: float  # seconds
    check: Callable[[], object]  # called regularly; raises to end the wait

    def next_timeout(self) -> float:
        """Return how many seconds the next wait may last; raise `TimeoutError` after the deadline."""
        self.check()
        remaining = self.end - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        return min(remaining, self.idle)


@contextmanager
def open_response(target: Target, addresses: Sequence[str], agent: str, deadline: Deadline) -> Iterator[HTTPResponse]:
    """Request `target` from the first of `addresses` that connects; yield the response with its body unread.

    Everything, including reading the body, must finish before the deadline.
    """
    with _refuse_network_errors(target):
        connection = _connect(target, addresses, deadline)
    try:
        with _refuse_network_errors(target):
            connection.sendall(_request(target, agent))
            response = HTTPResponse(cast(Any, _DeadlineReader(connection, deadline)), method="GET")
            response.begin()
            yield response
    finally:
        with suppress(OSError):
            connection.close()


def read_body(
    response: HTTPResponse, max_bytes: int, spend: Callable[[int], None], *, truncate: bool = False
) -> bytes:
    """Read the body; raise `Refused` if it ends early or exceeds `max_bytes`. Each piece is reported to `spend`.

    With `truncate`, a longer body is cut to `max_bytes` instead of refused.
    """
    announced = response.length  # None if chunked or ended by closing the connection
    if announced is not None and announced > max_bytes and not truncate:
        raise Refused("too-large", f"{announced:,} bytes, more than the limit of {max_bytes:,}")
    pieces, total = [], 0
    while piece := response.read1(_CHUNK):
        spend(len(piece))
        total += len(piece)
        pieces.append(piece)
        if total > max_bytes:
            if truncate:
                return b"".join(pieces)[:max_bytes]
            raise Refused("too-large", f"more than the limit of {max_bytes:,} bytes")
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


class _DeadlineReader(io.RawIOBase):
    """The part of a socket that HTTPResponse needs; each read is limited by the remaining time."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection, self._deadline = connection, deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        idle_end = time.monotonic() + self._deadline.idle
        while True:
            self._connection.settimeout(min(self._deadline.next_timeout(), _POLL_SECONDS))
            try:
                return self._connection.recv_into(buffer)
            except TimeoutError:
                if time.monotonic() >= idle_end:
                    raise


def _connect(target: Target, addresses: Sequence[str], deadline: Deadline) -> socket.socket:
    failure: OSError = ConnectionError("no address")
    for address in addresses:
        try:
            plain = socket.create_connection((address, target.port), timeout=deadline.next_timeout())
        except OSError as error:
            failure = error
            continue
        if target.scheme == "http":
            return plain
        try:
            return _tls().wrap_socket(plain, server_hostname=target.host)  # verify the name, not the address
        except BaseException:
            plain.close()
            raise
    raise failure


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@contextmanager
def _refuse_network_errors(target: Target) -> Iterator[None]:
    """Turn network errors into `Refused`."""
    try:
        yield
    except TimeoutError:
        raise Refused("slow", f"{target.host} sent no complete response in time") from None
    except IncompleteRead:
        raise Refused("truncated", "the response ended before its announced length") from None
    except HTTPException as error:
        raise Refused("unreachable", f"no HTTP response: {type(error).__name__}") from None
    except OSError as error:
        raise Refused("unreachable", error.strerror or str(error) or type(error).__name__) from None
