"""Crawl limits and politeness: budgets per file and in total, a delay per host, and robots.txt (RFC 9309)."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from ...errors import UserError
from ..untrusted import LimitReached

MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Limits of one file and of the whole crawl."""

    file_seconds: float = 30.0  # from connecting to the last byte, per redirect
    idle_seconds: float = 10.0  # without a byte
    file_bytes: int = 20 * MB
    total_bytes: int = 5000 * MB
    total_seconds: float = 3600.0
    redirects: int = 5
    delay: float = 1.0  # seconds between requests to the same host


@dataclass
class Budget:
    """The remaining time and bytes, thread-safe; raises `LimitReached` when they run out."""

    total_bytes: int
    total_seconds: float
    stopped: threading.Event = field(default_factory=threading.Event)  # when set, every wait ends
    _used: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _start: float = field(default_factory=time.monotonic)

    def remaining_seconds(self) -> float:
        """Return the seconds left; raise `LimitReached` if there are none or the crawl was stopped."""
        seconds = self._start + self.total_seconds - time.monotonic()
        if seconds <= 0:
            raise LimitReached(f"the time limit of {self.total_seconds / 60:g} minutes was reached")
        if self.stopped.is_set():
            raise LimitReached("stopped")
        return seconds

    def spend(self, num_bytes: int) -> None:
        """Count received bytes."""
        self.remaining_seconds()
        with self._lock:
            self._used += num_bytes
            if self._used > self.total_bytes:
                raise LimitReached(f"the total limit of {self.total_bytes / MB:g} MB was reached")

    def sleep(self, seconds: float) -> None:
        """Sleep; raise `LimitReached` at once if the sleep would outlast the time limit."""
        if seconds > self.remaining_seconds():
            raise LimitReached(f"the time limit of {self.total_seconds / 60:g} minutes was reached")
        self.stopped.wait(seconds)
        self.remaining_seconds()


@dataclass
class HostQueue:
    """Spaces requests to the same host by `delay` seconds, first come, first served."""

    delay: float
    budget: Budget
    _next: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold(self, host: str, seconds: float) -> None:
        """Send no request to a busy host for a while."""
        with self._lock:
            self._next[host] = max(self._next.get(host, 0), time.monotonic() + seconds)

    def wait(self, host: str, delay: float = 0.0) -> None:
        """Block until the caller may send a request to the host, which may ask for a longer delay."""
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next.get(host, now))
            self._next[host] = turn + max(self.delay, delay)
        if turn > now:
            self.budget.sleep(turn - now)


MAX_ROBOTS_BYTES = 500 * 1024  # the rest of a longer robots.txt is ignored


@dataclass(frozen=True)
class Robots:
    """The robots.txt of one host, parsed with Protego, for one crawler."""

    rules: Any  # a `protego.Protego`
    product: str

    def allows(self, path: str) -> bool:
        """Return whether a path with its query may be fetched; robots.txt itself always may."""
        return path == "/robots.txt" or bool(self.rules.can_fetch(path, self.product))

    @property
    def delay(self) -> float:
        """The requested seconds between two requests; 0 if there is no such request."""
        return float(self.rules.crawl_delay(self.product) or 0)


FORBID_ALL = "User-agent: *\nDisallow: /"


def parse_robots(text: str, product: str) -> Robots:
    """Return the rules for `product`; raise `UserError` if Protego is not installed."""
    try:
        from protego import Protego
    except ImportError:
        raise UserError(
            "crawling needs the package protego, which reads robots.txt; run pip install 'ssdg[web]'"
        ) from None
    return Robots(Protego.parse(text), product)
