"""Ordered work on every core, and its progress: a bar on a terminal, a callback, or nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

Progress = Callable[[int, int], None]  # (done, total)


@contextmanager
def shown(title: str, progress: Progress | None) -> Iterator[Progress]:
    """Yield the given callback, or one that draws a bar when standard error is a terminal."""
    if progress is not None:
        yield progress
    elif not sys.stderr.isatty():
        yield lambda done, total: None
    else:
        with _bar(title) as draw:
            yield draw


@contextmanager
def _bar(title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn(title, markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


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
