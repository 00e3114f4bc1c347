"""Time spent per phase of a run. Nothing is measured unless a profile is active (`ssdg train --profile`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

TRAINING = ("augment", "forward", "backward", "step")
PHASES = ("decode", "trunk", "probe", *TRAINING, "evaluation", "labeling", "checkpoint", "samples", "rest")
_NO_PHASE: AbstractContextManager[None] = nullcontext()


class Profile:
    """Seconds by phase. Time in a nested phase does not count for the outer one, so the sum is the total time.

    `wait` is called at every change of phase: an accelerator keeps computing after a call returns, so the profile
    must synchronize with it. This makes a profiled run slightly slower.
    """

    def __init__(self, wait: Callable[[], object] = lambda: None) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.images = 0  # drawn for training
        self.wait = wait
        self._open = ["rest"]
        self._since = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Attribute the time inside the block to this phase."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def as_json(self) -> dict[str, Any]:
        """Return the seconds by phase so far, their sum, and the training throughput in images per second."""
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
def use_profile(profile: Profile | None) -> Iterator[None]:
    """Make `timed` record into this profile; None disables profiling."""
    global _current
    previous, _current = _current, profile
    try:
        yield
    finally:
        _current = previous


def current_profile() -> Profile | None:
    """Return the active profile."""
    return _current


def timed(phase: str) -> AbstractContextManager[None]:
    """Time a block of the main thread as one of `PHASES`."""
    return _current.phase(phase) if _current is not None else _NO_PHASE
