"""What a crawl may cost others: limits per file and in total, turns at each host, and robots.txt (RFC 9309)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from ..untrusted import Spent

MB = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Limits of one file and of the whole crawl."""

    file_seconds: float = 30.0  # from connecting to the last byte, for each redirect
    idle_seconds: float = 10.0  # without a byte
    file_bytes: int = 20 * MB
    total_bytes: int = 5000 * MB
    total_seconds: float = 3600.0
    redirects: int = 5
    delay: float = 1.0  # seconds between two requests to a host


@dataclass
class Budget:
    """Time and bytes that are left; from several threads at once. Raises `Spent` when there are none."""

    total_bytes: int
    total_seconds: float
    stopped: threading.Event = field(default_factory=threading.Event)  # set it to end every wait
    _used: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _start: float = field(default_factory=time.monotonic)

    def left(self) -> float:
        """Seconds; none left is an error."""
        seconds = self._start + self.total_seconds - time.monotonic()
        if seconds <= 0:
            raise Spent(f"the time limit of {self.total_seconds / 60:g} minutes is reached")
        if self.stopped.is_set():
            raise Spent("stopped")
        return seconds

    def spend(self, num_bytes: int) -> None:
        """Count bytes that came."""
        self.left()
        with self._lock:
            self._used += num_bytes
            if self._used > self.total_bytes:
                raise Spent(f"the limit of {self.total_bytes / MB:g} MB in all is reached")

    def sleep(self, seconds: float) -> None:
        """Wait; one that would outlast the time is an end of it."""
        if seconds > self.left():
            raise Spent(f"the time limit of {self.total_seconds / 60:g} minutes is reached")
        self.stopped.wait(seconds)
        self.left()


@dataclass
class Turns:
    """One request to a host every `delay` seconds, in the order of asking."""

    delay: float
    budget: Budget
    _next: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold(self, host: str, seconds: float) -> None:
        """Leave a host alone for a while: it said that it is busy."""
        with self._lock:
            self._next[host] = max(self._next.get(host, 0), time.monotonic() + seconds)

    def wait(self, host: str) -> None:
        """Return when it is this caller's turn at the host."""
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next.get(host, now))
            self._next[host] = turn + self.delay
        if turn > now:
            self.budget.sleep(turn - now)


MOST_BYTES = 500 * 1024  # of a robots.txt; what comes after is not read


@dataclass(frozen=True)
class Rule:
    """Allow or disallow the paths that begin with a pattern."""

    allow: bool
    pattern: str

    def matches(self, path: str) -> bool:
        """Whether the pattern fits; found piece by piece, so that no pattern takes long."""
        anchored = self.pattern.endswith("$")
        first, *others = self.pattern.removesuffix("$").split("*")
        if not path.startswith(first):
            return False
        at = len(first)
        for piece in others[:-1] if anchored else others:
            found = path.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        if not anchored:
            return True
        return path.endswith(others[-1]) and len(path) - len(others[-1]) >= at if others else at == len(path)


@dataclass(frozen=True)
class Robots:
    """What one host wishes of one crawler."""

    rules: Sequence[Rule] = ()

    def allows(self, path: str) -> bool:
        """Whether a path, with its query, may be asked for: the longest rule decides, allow if two are as long."""
        if path == "/robots.txt":
            return True
        fitting = [rule for rule in self.rules if rule.matches(unquote(path))]
        return max(fitting, key=lambda rule: (len(rule.pattern), rule.allow)).allow if fitting else True


ALLOW_ALL = Robots()
FORBID_ALL = Robots((Rule(allow=False, pattern="/"),))


def parse_robots(text: str, product: str) -> Robots:
    """The rules for `product`: those of every group that names it, else those of the groups for `*`."""
    groups = list(_groups(_lines(text)))
    for name in (product.lower(), "*"):
        found = [rules for agents, rules in groups if name in agents]
        if found:
            return Robots(tuple(rule for rules in found for rule in rules))
    return ALLOW_ALL


def _lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _groups(lines: Iterable[tuple[str, str]]) -> Iterator[tuple[set[str], list[Rule]]]:
    """User agents and their rules; lines of other kinds, such as sitemaps, end nothing."""
    agents: set[str] = set()
    rules: list[Rule] = []
    started = False  # a user-agent line after a rule begins a new group
    for key, value in lines:
        if key == "user-agent":
            if started:
                yield agents, rules
                agents, rules, started = set(), [], False
            agents.add(value.split("/")[0].strip().lower())
        elif key in ("allow", "disallow"):
            started = True
            if value:
                rules.append(Rule(key == "allow", unquote(value)))
    yield agents, rules
