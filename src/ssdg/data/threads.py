"""Work on every core, in order, with nothing kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

_PIECE = 16  # images per job: small enough to stop soon, large enough for the overhead not to count


def num_cores() -> int:
    """Of this process, where the system tells; else of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(work: Callable[[range], None], total: int) -> Iterator[int]:
    """Run `work` on all of range(total) in pieces, on every core; yield how many are done."""
    pieces = [range(start, min(start + _PIECE, total)) for start in range(0, total, _PIECE)]
    pool = ThreadPoolExecutor(num_cores())
    try:
        for piece, _ in zip(pieces, pool.map(work, pieces), strict=True):
            yield piece.stop
    finally:
        pool.shutdown(cancel_futures=True)
