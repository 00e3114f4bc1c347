"""One self-contained page: the data as a JSON block, drawn by the page's own script. Nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from typing import Any

STYLES = ("page.css", "figures.css", "print.css")
SCRIPTS = ("dom.js", "chart.js", "matrix.js", "flow.js", "tables.js", "observatory.js", "pictures.js", "main.js")
# What could end a script element or a line of script is written as \uXXXX, which JSON reads as the same character.
UNSAFE = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render(data: dict[str, Any], *, live: bool = False) -> str:
    """The page for `data`; a live one asks its server for fresh data."""
    script = _joined(SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = ["default-src 'none'", f"script-src 'sha256-{digest}'", "style-src 'unsafe-inline'", "img-src data:"]
    rules += ["connect-src 'self'"] if live else []
    parts = {
        "policy": "; ".join(rules),
        "title": html.escape(str(data["title"])),
        "style": _joined(STYLES),
        "data": as_json(data),
        "script": script,
    }
    page = _part("page.html")
    head, *rest = page.split("{{")
    return head + "".join(parts[piece.partition("}}")[0]] + piece.partition("}}")[2] for piece in rest)


def as_json(data: dict[str, Any]) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(UNSAFE)


@cache
def _part(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(_part(name) for name in names)
