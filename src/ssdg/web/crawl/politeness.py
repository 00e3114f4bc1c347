"""Crawl limits and politeness: budgets per file and in total, a delay per host, and robots.txt (RFC 9309)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

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

    def wait(self, host: str) -> None:
        """Block until the caller may send a request to the host."""
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next.get(host, now))
            self._next[host] = turn + self.delay
        if turn > now:
            self.budget.sleep(turn - now)


MAX_ROBOTS_BYTES = 500 * 1024  # the rest of a longer robots.txt is ignored


@dataclass(frozen=True)
class Rule:
    """A robots.txt rule that allows or disallows the paths matching a pattern."""

    allow: bool
    pattern: str

    def matches(self, path: str) -> bool:
        """Return whether the pattern matches; searching piece by piece keeps every pattern fast."""
        anchored = self.pattern.endswith("$")
        first, *others = self.pattern.removesuffix("$").split("*")
        if not path.startswith(first):
            return False
        position = len(first)
        for piece in others[:-1] if anchored else others:
            start = path.find(piece, position)
            if start < 0:
                return False
            position = start + len(piece)
        if not anchored:
            return True
        if not others:
            return position == len(path)
        return path.endswith(others[-1]) and len(path) - len(others[-1]) >= position


@dataclass(frozen=True)
class Robots:
    """The robots.txt rules of one host for one crawler."""

    rules: Sequence[Rule] = ()

    def allows(self, path: str) -> bool:
        """Return whether a path with its query may be fetched: the longest matching rule decides, ties allow."""
        if path == "/robots.txt":
            return True
        matches = [rule for rule in self.rules if rule.matches(unquote(path))]
        return max(matches, key=lambda rule: (len(rule.pattern), rule.allow)).allow if matches else True


ALLOW_ALL = Robots()
FORBID_ALL = Robots((Rule(allow=False, pattern="/"),))


def parse_robots(text: str, product: str) -> Robots:
    """Return the rules of every group that names `product`, else those of the groups for `*`."""
    groups = list(_groups(_lines(text)))
    for name in (product.lower(), "*"):
        matches = [rules for agents, rules in groups if name in agents]
        if matches:
            return Robots(tuple(rule for rules in matches for rule in rules))
    return ALLOW_ALL


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _groups(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[set[str], list[Rule]]]:
    """Yield user agents with their rules; other lines, such as sitemaps, do not end a group."""
    agents: set[str] = set()
    rules: list[Rule] = []
    has_rules = False  # a user-agent line after a rule starts a new group
    for key, value in lines:
        if key == "user-agent":
            if has_rules:
                yield agents, rules
                agents, rules, has_rules = set(), [], False
            agents.add(value.split("/")[0].strip().lower())
        elif key in ("allow", "disallow"):
            has_rules = True
            if value:
                rules.append(Rule(key == "allow", unquote(value)))
    yield agents, rules
