"""Waiting for what other processes do. A busy machine may be slow, so a limit only ends a test that hangs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 900.0  # seconds that any wait of a test may take; below the `timeout` of pytest


def wait_until(condition: Callable[[], object], process: subprocess.Popen[Any] | None = None) -> None:
    """Wait for a condition; fail if `process` ends before."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if process is not None and process.poll() is not None:
            assert condition(), f"the process ended with {process.returncode}"
            return
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)
