"""Where the time of a run goes, phase by phase. Nothing is measured unless someone asks (`ssdg train --profile`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

TRAINING = ("augment", "forward", "backward", "step")
PHASES = ("decode", *TRAINING, "evaluation", "labeling", "checkpoint", "samples", "rest")
_NOTHING: AbstractContextManager[None] = nullcontext()


class Profile:
    """Seconds by phase. A phase inside another is taken off the outer one, so the sum is the time measured.

    `wait` is called at every change of phase: an accelerator computes on after a call returns, so it must be waited
    for, which makes a profiled run a little slower.
    """

    def __init__(self, wait: Callable[[], object] = lambda: None) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.images = 0  # drawn for training
        self.wait = wait
        self._open = ["rest"]
        self._since = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what happens inside as this phase."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def as_json(self) -> dict[str, Any]:
        """Seconds by phase until now, their sum, and how many images a second of training took."""
        self._charge()
        training = sum(self.seconds[name] for name in TRAINING)
        return {
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "total": round(sum(self.seconds.values()), 3),
            "images": self.images,
            "images_per_second": round(self.images / training, 1) if training else None,
        }

    def _charge(self) -> None:
        self.wait()
        now = time.perf_counter()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now


_current: Profile | None = None


@contextmanager
def measuring(profile: Profile | None) -> Iterator[None]:
    """Let `timed` count into this profile; None measures nothing."""
    global _current
    before, _current = _current, profile
    try:
        yield
    finally:
        _current = before


def measured() -> Profile | None:
    """The profile that counts at the moment."""
    return _current


def timed(phase: str) -> AbstractContextManager[None]:
    """A stretch of one of `PHASES`, of the main thread."""
    return _current.phase(phase) if _current is not None else _NOTHING
