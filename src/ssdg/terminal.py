"""The one way of text to a terminal: names of files and classes cannot move the cursor, set colors or hide text.

`Console` replaces `rich.console.Console`, and the command line wraps `print` with `escape_output`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

# Control characters but newline and tab, marks that reverse the direction of text, and bytes that are no text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """Return the text with control characters as in a Python string: ESC becomes `\\x1b`."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class Console(rich.console.Console):
    """A rich console that escapes control characters in what it renders; its own colors and cursor moves stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render to segments of plain text and of control codes."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(escape_controls(segment.text), segment.style)


class EscapingStream:
    """A text stream that escapes control characters."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream  # rich writes its control codes here

    def write(self, text: str) -> int:
        """Write text."""
        return self.rich_proxied_file.write(escape_controls(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def escape_output() -> Iterator[None]:
    """Escape what `print` writes to standard error, and to standard output if it is a terminal; else it is data."""
    stdout, stderr = sys.stdout, sys.stderr
    escaped: Any = EscapingStream(stderr)
    with redirect_stderr(escaped), ExitStack() as stack:
        if stdout.isatty():
            terminal: Any = EscapingStream(stdout)
            stack.enter_context(redirect_stdout(terminal))
        yield
