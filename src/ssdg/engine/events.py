"""What happens in a run, as lines of JSON and to whoever listens.

A run that goes on writes `start` again; `found` marks what an earlier process had done, and epochs after its last
checkpoint are told twice, for they happened twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Listener = Callable[[Event], None]


class Events:
    """Appends every event to `events.jsonl` and passes it on; a silent one writes nothing (other processes)."""

    def __init__(self, path: Path | None, listeners: tuple[Listener, ...] = ()) -> None:
        self.path, self.listeners = path, listeners
        if path is not None and path.exists():
            drop_cut_line(path)

    def emit(self, kind: str, **values: Any) -> None:
        """Record an event; `values` must be JSON."""
        if self.path is None:
            return
        event = {"time": round(time.time(), 3), "event": kind, **values}
        if kind != "step":  # steps are for the display; a line each would be most of the file
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(event, ensure_ascii=False) + "\n")
        for listener in self.listeners:
            listener(event)


def drop_cut_line(path: Path) -> None:
    """Remove a last line that a kill cut short, so that the next event starts a line of its own."""
    with path.open("rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file; a last line cut short by a kill is passed over."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)
