"""What a crawl may cost: limits of one file and of the whole, and turns at each host."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from .refusal import Spent

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
