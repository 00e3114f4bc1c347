"""Ordered multi-threaded work and its progress: a bar on a terminal, a callback, or nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

ProgressCallback = Callable[[int, int], None]  # (done, total)


@contextmanager
def show_progress(title: str, progress: ProgressCallback | None) -> Iterator[ProgressCallback]:
    """Yield `progress`, or if it is None a callback that draws a bar when standard error is a terminal."""
    if progress is not None:
        yield progress
    elif not sys.stderr.isatty():
        yield lambda done, total: None
    else:
        with _progress_bar(title) as update:
            yield update


@contextmanager
def _progress_bar(title: str) -> Iterator[ProgressCallback]:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    from ..terminal import Console

    columns = (TextColumn(title, markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


_CHUNK = 16  # images per job: small enough to stop soon, large enough for a negligible overhead


def num_cores() -> int:
    """Return the number of cores available to this process, or of the machine where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_threads(work: Callable[[range], None], total: int) -> Iterator[int]:
    """Run `work` on all of range(total) in chunks, on every core; yield the number of completed items."""
    chunks = [range(start, min(start + _CHUNK, total)) for start in range(0, total, _CHUNK)]
    pool = ThreadPoolExecutor(num_cores())
    try:
        for chunk, _ in zip(chunks, pool.map(work, chunks), strict=True):
            yield chunk.stop
    finally:
        pool.shutdown(cancel_futures=True)
