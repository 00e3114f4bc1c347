"""Fetch one URL with every check on the way: addresses, robots.txt, turns, redirects, limits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPResponse
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urljoin

from ... import __version__
from ...errors import UserError
from ..untrusted import Refused, Spent
from .http_get import Clock, Target, opened, parse_target, read_body
from .politeness import ALLOW_ALL, FORBID_ALL, MOST_BYTES, Budget, Limits, Robots, Turns, parse_robots

Resolver = Callable[[str, int], Sequence[str]]  # (host, port) -> addresses
_NAT64 = IPv6Network("64:ff9b::/96")


def system_resolver(host: str, port: int) -> list[str]:
    """What the system's resolver says."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def checked_addresses(host: str, port: int, resolver: Resolver, *, allow_private: bool) -> Sequence[str]:
    """Resolve once; one address that is not public is enough to refuse the host.

    Connect to these addresses and never resolve again, or the name could change its mind in between.
    """
    try:
        addresses = resolver(host, port)
    except (OSError, UnicodeError):
        raise Refused("unreachable", f"no address for the host {host}") from None
    if not addresses:
        raise Refused("unreachable", f"no address for the host {host}")
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise Refused("address", f"{host} has the address {address}, which is not public")
    return addresses


def is_public(address: str) -> bool:
    """Whether an address is of the open internet; one that carries another address is judged by that too."""
    return all(one.is_global and not one.is_multicast and not one.is_reserved for one in _judged(ip_address(address)))


def _judged(ip: IPv4Address | IPv6Address) -> Sequence[IPv4Address | IPv6Address]:
    if isinstance(ip, IPv4Address):
        return (ip,)
    if ip.ipv4_mapped is not None:
        return (ip.ipv4_mapped,)
    if ip in _NAT64:
        return (IPv4Address(int(ip) & 0xFFFFFFFF),)
    if ip.sixtofour is not None:
        return (ip, ip.sixtofour)
    return (ip, *(ip.teredo or ()))


PRODUCT = "ssdg"
AGENT = f"{PRODUCT}/{__version__} (research image crawler)"
PAGE_BYTES = 5_000_000
BUSY = (429, 503)
MOST_HOLD = 120.0  # seconds that a busy host is left alone, whatever it asks for
_REDIRECTS = (301, 302, 303, 307, 308)
_UNNAMED_TYPES = ("", "application/octet-stream", "binary/octet-stream")
Accept = Callable[[str], bool]


def check_agent(agent: str) -> str:
    """The user agent, if it can stand in a header."""
    if not agent.isascii() or not agent.isprintable() or not agent.strip():
        raise UserError(f"the user agent {agent!r} cannot be sent; give printable ASCII letters")
    return agent


def is_image_type(content_type: str) -> bool:
    """Whether a server calls it an image, or nothing at all."""
    return content_type.startswith("image/") or content_type in _UNNAMED_TYPES


def _any_type(content_type: str) -> bool:
    return True


@dataclass(frozen=True)
class _Wanted:
    """What an answer may be."""

    most: int  # bytes
    accept: Accept = _any_type  # of its content type
    cut: bool = False  # whether a longer one is cut or refused
    ask_robots: bool = True


@dataclass
class Fetcher:
    """Fetches, from several threads at once; raises `Refused` for one URL and `Spent` for the crawl."""

    limits: Limits = field(default_factory=Limits)
    agent: str = AGENT
    allow_private: bool = False
    resolver: Resolver = system_resolver
    budget: Budget = field(init=False)
    _turns: Turns = field(init=False)
    _robots: dict[str, Robots | Refused] = field(default_factory=dict)
    _asking: dict[str, threading.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.budget = Budget(self.limits.total_bytes, self.limits.total_seconds)
        self._turns = Turns(self.limits.delay, self.budget)

    def image(self, url: str) -> bytes:
        """The body of what its server calls an image; whether it is one, its bytes must tell."""
        return self._get(url, _Wanted(self.limits.file_bytes, is_image_type))

    def page(self, url: str, *, ask_robots: bool = True) -> bytes:
        """The body of a page of search results."""
        return self._get(url, _Wanted(PAGE_BYTES, ask_robots=ask_robots))

    def _get(self, url: str, wanted: _Wanted) -> bytes:
        seen: list[str] = []
        while len(seen) <= self.limits.redirects:
            target = parse_target(url)
            if target.url in seen:
                raise Refused("redirects", f"leads back to {target.url}")
            seen.append(target.url)
            body, url = self._hop(target, wanted)
            if body is not None:
                return body
        raise Refused("redirects", f"more than {self.limits.redirects}")

    def _hop(self, target: Target, wanted: _Wanted) -> tuple[bytes | None, str]:
        """The body, or where the host sends us."""
        addresses = checked_addresses(target.host, target.port, self.resolver, allow_private=self.allow_private)
        if wanted.ask_robots and not self._robots_of(target).allows(target.path):
            raise Refused("robots", f"{target.site}/robots.txt forbids it")
        self._turns.wait(target.host)
        end = time.monotonic() + min(self.limits.file_seconds, self.budget.left())
        clock = Clock(end, self.limits.idle_seconds, self.budget.left)
        try:
            with opened(target, addresses, self.agent, clock) as response:
                if response.status in _REDIRECTS:
                    return None, _location(target, response)
                if response.status in BUSY:
                    self._turns.hold(target.host, _pause(response, 10 * self.limits.delay))
                _check_head(response, wanted.accept)
                return read_body(response, wanted.most, self.budget.spend, cut=wanted.cut), ""
        except Refused:
            self.budget.left()  # if the time of the crawl ran out, that is why
            raise

    def _robots_of(self, target: Target) -> Robots:
        """The rules of a site, asked for once."""
        with self._asking.setdefault(target.site, threading.Lock()):
            if target.site not in self._robots:
                self._robots[target.site] = self._ask(target.site)
        known = self._robots[target.site]
        if isinstance(known, Refused):
            raise Refused(known.reason, known.detail)
        return known

    def _ask(self, site: str) -> Robots | Refused:
        """RFC 9309: 4xx allows all; a server error or no answer forbids all."""
        try:
            body = self._get(f"{site}/robots.txt", _Wanted(MOST_BYTES, cut=True, ask_robots=False))
        except Spent:
            raise
        except Refused as why:
            if why.reason in ("status", "redirects"):
                return ALLOW_ALL
            if why.reason in ("address", "bad-url"):
                return FORBID_ALL
            return Refused(why.reason, f"{site}/robots.txt: {why.detail}")
        return parse_robots(body.decode("utf-8-sig", "replace"), PRODUCT)


def _location(target: Target, response: HTTPResponse) -> str:
    try:
        return urljoin(target.url, response.getheader("Location") or "")
    except ValueError:
        raise Refused("bad-url", "redirected to what is no address") from None


def _pause(response: HTTPResponse, otherwise: float) -> float:
    """Seconds that a busy host wishes to be left alone; a date is not understood."""
    wish = (response.getheader("Retry-After") or "").strip()
    return min(float(wish), MOST_HOLD) if wish.isdecimal() and len(wish) < 9 else otherwise


def _check_head(response: HTTPResponse, accept: Accept) -> None:
    if response.status != 200:
        busy = response.status == 429 or response.status >= 500
        raise Refused("busy" if busy else "status", f"{response.status} {response.reason}")
    content_type = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
    if not accept(content_type):
        raise Refused("type", f"the server calls it {content_type}")
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise Refused("type", f"sent as {encoding}, which was not asked for")
