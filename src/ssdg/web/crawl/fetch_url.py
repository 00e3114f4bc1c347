"""Fetch one URL with all checks: public addresses, robots.txt, delays, redirects, limits."""

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
from ..untrusted import Refused
from .http_get import Deadline, Target, open_response, parse_target, read_body
from .politeness import FORBID_ALL, MAX_ROBOTS_BYTES, Budget, HostQueue, Limits, Robots, parse_robots

Resolver = Callable[[str, int], Sequence[str]]  # (host, port) -> addresses
_NAT64 = IPv6Network("64:ff9b::/96")


def system_resolver(host: str, port: int) -> list[str]:
    """Resolve a host with the resolver of the system."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


def resolve_checked(host: str, port: int, resolver: Resolver, *, allow_private: bool) -> Sequence[str]:
    """Resolve a host once; refuse it if any of its addresses is not public.

    Connect to these addresses and never resolve again: the name could resolve differently the second time.
    """
    try:
        addresses = resolver(host, port)
    except (OSError, UnicodeError):
        raise Refused("unreachable", f"no address for host {host}") from None
    if not addresses:
        raise Refused("unreachable", f"no address for host {host}")
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise Refused("address", f"{host} has the address {address}, which is not public")
    return addresses


def is_public(address: str) -> bool:
    """Return whether an address, and any IPv4 address embedded in it, belongs to the public internet."""
    addresses = _effective_addresses(ip_address(address))
    return all(ip.is_global and not ip.is_multicast and not ip.is_reserved for ip in addresses)


def _effective_addresses(ip: IPv4Address | IPv6Address) -> Sequence[IPv4Address | IPv6Address]:
    if isinstance(ip, IPv4Address):
        return (ip,)
    if ip.ipv4_mapped is not None:
        return (ip.ipv4_mapped,)
    if ip in _NAT64:
        return (IPv4Address(int(ip) & 0xFFFFFFFF),)
    if ip.sixtofour is not None:
        return (ip, ip.sixtofour)
    return (ip, *(ip.teredo or ()))


PRODUCT = f"ssdg/{__version__}"  # named in robots.txt with or without the version
AGENT = f"{PRODUCT} (research image crawler)"
PAGE_BYTES = 5_000_000
BUSY_STATUSES = (429, 503)
MAX_HOLD_SECONDS = 120.0  # upper bound of Retry-After and Crawl-delay
_REDIRECTS = (301, 302, 303, 307, 308)
_GENERIC_TYPES = ("", "application/octet-stream", "binary/octet-stream")
Accept = Callable[[str], bool]


def check_agent(agent: str) -> str:
    """Return the user agent; raise `UserError` if it is not valid in a header."""
    if not agent.isascii() or not agent.isprintable() or not agent.strip():
        raise UserError(f"invalid user agent {agent!r}; use printable ASCII characters")
    return agent


def is_image_type(content_type: str) -> bool:
    """Return whether a content type is an image or unspecified."""
    return content_type.startswith("image/") or content_type in _GENERIC_TYPES


def _any_type(content_type: str) -> bool:
    return True


@dataclass(frozen=True)
class _ResponsePolicy:
    """Which responses are accepted."""

    max_bytes: int
    accept: Accept = _any_type  # by content type
    truncate: bool = False  # cut a longer body instead of refusing it
    check_robots: bool = True


@dataclass
class Fetcher:
    """Thread-safe fetcher; raises `Refused` for a URL and `LimitReached` for the whole crawl."""

    limits: Limits = field(default_factory=Limits)
    agent: str = AGENT
    allow_private: bool = False
    resolver: Resolver = system_resolver
    budget: Budget = field(init=False)
    _host_queue: HostQueue = field(init=False)
    _robots: dict[str, Robots | Refused] = field(default_factory=dict)
    _robots_locks: dict[str, threading.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_robots("", PRODUCT)  # reports a missing package before the crawl starts
        self.budget = Budget(self.limits.total_bytes, self.limits.total_seconds)
        self._host_queue = HostQueue(self.limits.delay, self.budget)

    def fetch_image(self, url: str) -> bytes:
        """Return the body of a response declared as an image; its bytes still need checking."""
        return self._get(url, _ResponsePolicy(self.limits.file_bytes, is_image_type))

    def fetch_page(self, url: str, *, check_robots: bool = True) -> bytes:
        """Return the body of a page of search results."""
        return self._get(url, _ResponsePolicy(PAGE_BYTES, check_robots=check_robots))

    def _get(self, url: str, policy: _ResponsePolicy) -> bytes:
        seen: list[str] = []
        while len(seen) <= self.limits.redirects:
            target = parse_target(url)
            if target.url in seen:
                raise Refused("redirects", f"redirect loop at {target.url}")
            seen.append(target.url)
            body, url = self._request(target, policy)
            if body is not None:
                return body
        raise Refused("redirects", f"more than {self.limits.redirects} redirects")

    def _request(self, target: Target, policy: _ResponsePolicy) -> tuple[bytes | None, str]:
        """Request one URL; return the body, or None and the redirect target."""
        addresses = resolve_checked(target.host, target.port, self.resolver, allow_private=self.allow_private)
        self._host_queue.wait(target.host, self._check_robots(target) if policy.check_robots else 0.0)
        end = time.monotonic() + min(self.limits.file_seconds, self.budget.remaining_seconds())
        deadline = Deadline(end, self.limits.idle_seconds, self.budget.remaining_seconds)
        try:
            with open_response(target, addresses, self.agent, deadline) as response:
                if response.status in _REDIRECTS:
                    return None, _redirect_url(target, response)
                if response.status in BUSY_STATUSES:
                    self._host_queue.hold(target.host, _retry_after(response, 10 * self.limits.delay))
                _check_headers(response, policy.accept)
                return read_body(response, policy.max_bytes, self.budget.spend, truncate=policy.truncate), ""
        except Refused:
            self.budget.remaining_seconds()  # report an exceeded crawl limit as the cause
            raise

    def _check_robots(self, target: Target) -> float:
        """Return the delay that the host asks for; raise `Refused` if it disallows the URL."""
        robots = self._get_robots(target)
        if not robots.allows(target.path):
            raise Refused("robots", f"disallowed by {target.site}/robots.txt")
        if robots.delay > MAX_HOLD_SECONDS:
            raise Refused(
                "robots", f"{target.site}/robots.txt asks for {robots.delay:g} s between requests, too long to wait"
            )
        return robots.delay

    def _get_robots(self, target: Target) -> Robots:
        """Return the robots.txt rules of a site, fetched once."""
        with self._robots_locks.setdefault(target.site, threading.Lock()):
            if target.site not in self._robots:
                self._robots[target.site] = self._fetch_robots(target.site)
        robots = self._robots[target.site]
        if isinstance(robots, Refused):
            raise Refused(robots.reason, robots.detail)
        return robots

    def _fetch_robots(self, site: str) -> Robots | Refused:
        """Fetch robots.txt (RFC 9309): 4xx allows everything; a server error or no response forbids everything."""
        try:
            body = self._get(
                f"{site}/robots.txt", _ResponsePolicy(MAX_ROBOTS_BYTES, truncate=True, check_robots=False)
            )
        except Refused as refusal:
            if refusal.reason in ("status", "redirects"):
                return parse_robots("", PRODUCT)
            if refusal.reason in ("address", "bad-url"):
                return parse_robots(FORBID_ALL, PRODUCT)
            return Refused(refusal.reason, f"{site}/robots.txt: {refusal.detail}")
        return parse_robots(body.decode("utf-8-sig", "replace"), PRODUCT)


def _redirect_url(target: Target, response: HTTPResponse) -> str:
    try:
        return urljoin(target.url, response.getheader("Location") or "")
    except ValueError:
        raise Refused("bad-url", "redirected to an invalid URL") from None


def _retry_after(response: HTTPResponse, default: float) -> float:
    """Return the seconds of a Retry-After header; dates are not supported."""
    value = (response.getheader("Retry-After") or "").strip()
    return min(float(value), MAX_HOLD_SECONDS) if value.isdecimal() and len(value) < 9 else default


def _check_headers(response: HTTPResponse, accept: Accept) -> None:
    if response.status != 200:
        is_busy = response.status == 429 or response.status >= 500
        raise Refused("busy" if is_busy else "status", f"{response.status} {response.reason}")
    content_type = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
    if not accept(content_type):
        raise Refused("type", f"content type is {content_type}")
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise Refused("type", f"unrequested content encoding {encoding}")
