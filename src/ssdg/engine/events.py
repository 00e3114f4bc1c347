"""Events of a run: lines of `events.jsonl`, passed on to listeners. `ssdg.schema` models them.

A resumed run writes `start` again. `found` marks what an earlier process had finished. Epochs after the last
checkpoint of a killed process appear twice, because they were computed twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..files import open_file

Event = dict[str, Any]
Listener = Callable[[Event], None]
DISPLAY_ONLY = ("step", "extract")  # a line each would dominate the file


class Events:
    """Appends every event to `events.jsonl` and passes it on; without a path (other processes) it does nothing."""

    def __init__(self, path: Path | None, listeners: tuple[Listener, ...] = ()) -> None:
        self.path, self.listeners = path, listeners
        if path is not None and path.exists():
            drop_partial_line(path)

    def emit(self, name: str, /, **values: Any) -> None:
        """Record an event; `values` must be JSON."""
        if self.path is None:
            return
        event = {"time": round(time.time(), 3), "event": name, **values}
        if name not in DISPLAY_ONLY:
            with open_file(self.path, "ab") as file:
                file.write(f"{json.dumps(event, ensure_ascii=False)}\n".encode())
        for listener in self.listeners:
            listener(event)


def drop_partial_line(path: Path) -> None:
    """Remove a last line that a kill cut short, so that the next event starts on a new line."""
    with open_file(path, "rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def read_event_dicts(path: Path) -> Iterator[Event]:
    """Yield the events of a file as they were emitted; skip a last line that a kill cut short."""
    with open_file(path) as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
