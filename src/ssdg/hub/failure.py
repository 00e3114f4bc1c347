"""Why something could not be had from one place; another place, or another time, may do better."""

from __future__ import annotations

from ..web.refusal import one_line


class Failed(Exception):
    """One source failed."""

    def __init__(self, reason: str, *, passing: bool = False, no_line: bool = False, wait: float = 0.0) -> None:
        super().__init__(one_line(reason))
        self.passing = passing  # the same may go better in a moment
        self.no_line = no_line  # no server was reached: not worth waiting for, unless it could be reached before
        self.wait = wait  # seconds that the server asked for
