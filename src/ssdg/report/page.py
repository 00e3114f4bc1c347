"""Build the report page from folders, and serve the page of a running run.

The page is self-contained: an embedded script draws a JSON block, and nothing is fetched. A live page is served on
this machine only and rebuilt when files change.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any

from ..errors import UserError
from .compare import compare_benchmark, compare_runs
from .curves import curves
from .domain_pictures import pictures
from .findings import findings
from .observatory import Album, observatory, sheets_of
from .openset import open_set
from .run_folder import Run, read_run
from .summary import summarize

View = dict[str, Any]


def build(folders: Sequence[Path]) -> View:
    """Return the data of the page for these folders."""
    benches = [folder for folder in folders if (folder / "suite.json").exists()]
    runs = named([read_run(folder) for folder in folders if folder not in benches])
    compared = [compare_benchmark(folder) for folder in benches] + ([compare_runs(runs)] if len(runs) > 1 else [])
    album = Album()
    views = [view_of(run, album) for run in runs]
    title = title_of(benches, views)
    return {"title": title, "live": False, "runs": views, "compared": compared, "sheets": album.sheets}


def title_of(benches: Sequence[Path], views: Sequence[View]) -> str:
    """Return the title of the page."""
    if len(views) == 1 and not benches:
        return f"Report of run {views[0]['name']}"
    parts = [f"benchmark {folder.resolve().name}" for folder in benches] + ([f"{len(views)} runs"] if views else [])
    return f"Report of {', '.join(parts)}"


def named(runs: list[Run]) -> list[Run]:
    """Name runs by folder, or by path if two folders have the same name."""
    names = [run.folder.resolve().name for run in runs]
    unique = len(set(names)) == len(names)
    return [replace(run, name=name if unique else str(run.folder)) for run, name in zip(runs, names, strict=True)]


def view_of(run: Run, album: Album) -> View:
    """Return the data of one run."""
    sheets, left_out = sheets_of(run, album)
    index = run.samples
    return {
        "name": run.name,
        "summary": summarize(run),
        "findings": findings(run),
        "curves": curves(run),
        "tile": index.tile if index else 0,
        "columns": index.columns if index else 0,
        "sheets": sheets,
        "labels": observatory(run, left_out),
        "pictures": pictures(run),
        "open": open_set(run),
    }


STYLES = ("page.css", "figures.css", "print.css")
SCRIPTS = (
    "dom.js",
    "layout.js",
    "chart.js",
    "matrix.js",
    "flow.js",
    "tables.js",
    "observatory.js",
    "pictures.js",
    "main.js",
)
# Characters that could end a script element or a line of script are escaped; JSON reads them back unchanged.
UNSAFE = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def render(data: dict[str, Any], *, live: bool = False) -> str:
    """Render the page; a live page fetches fresh data from its server."""
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
    """Return JSON that is safe inside a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(UNSAFE)


@cache
def _part(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(_part(name) for name in names)


HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")  # accepted Host headers: another name may be a foreign page (DNS rebinding)
READ = ("*.json", "*.jsonl", "labels/*.npz", "samples/*", "cells/*/*.json", "cells/*/events.jsonl")


class Watched:
    """Folders and their page as of the last refresh."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self.lock = Lock()
        self.tag, self.page = "", ""
        self.refresh()

    def refresh(self) -> str:
        """Rebuild the page if a file has changed; return the tag of its current state."""
        with self.lock:
            if (now := tag_of(self.folders)) != self.tag:
                data = {**build(self.folders), "live": True}
                self.page, self.json, self.tag = render(data, live=True), as_json(data), now
            return self.tag


def tag_of(folders: Sequence[Path]) -> str:
    """Return a tag that changes when a file behind the page changes."""
    return f'"{hashlib.sha256("".join(_states(folders)).encode()).hexdigest()[:16]}"'


def _states(folders: Sequence[Path]) -> Iterator[str]:
    for folder in folders:
        for path in sorted(path for pattern in READ for path in folder.glob(pattern)):
            try:
                state = path.stat()
            except FileNotFoundError:  # a temporary file that was renamed
                continue
            yield f"{path}\x1f{state.st_mtime_ns}\x1f{state.st_size}\x1e"


class Answers(BaseHTTPRequestHandler):
    """Serve the page at `/` and its data at `/data.json`, and nothing else."""

    watched: Watched
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request of the page."""
        if (self.headers.get("Host") or "").partition(":")[0] not in NAMES:
            return self.answer(HTTPStatus.FORBIDDEN, "only 127.0.0.1 and localhost are served")
        if self.path not in ("/", "/data.json"):
            return self.answer(HTTPStatus.NOT_FOUND, "not found; the pages are / and /data.json")
        try:
            tag = self.watched.refresh()
        except (UserError, OSError) as error:  # such as a file that is being written
            return self.answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        if self.path == "/":
            return self.answer(HTTPStatus.OK, self.watched.page, "text/html; charset=utf-8")
        if self.headers.get("If-None-Match") == tag:
            return self.answer(HTTPStatus.NOT_MODIFIED, "", tag=tag)
        return self.answer(HTTPStatus.OK, self.watched.json, "application/json", tag)

    def answer(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8", tag: str = "") -> None:
        """Send a response; a client that has disconnected is not an error."""
        content = text.encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            if tag:
                self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(content)
        except ConnectionError:
            self.close_connection = True

    def log_message(self, format: str, *values: object) -> None:
        """Log nothing: an open page sends a request every two seconds."""


def make_server(folders: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """Return a server on the loopback interface; port 0 picks a free port."""
    answers = type("TheseAnswers", (Answers,), {"watched": Watched(folders)})
    try:
        server = ThreadingHTTPServer((HOST, port), answers)
    except (OSError, OverflowError) as error:
        raise UserError(f"--port {port} cannot be used ({error}); choose another port, or 0 for a free one") from None
    server.daemon_threads = True
    return server


def address_of(server: ThreadingHTTPServer) -> str:
    """Return the URL of a server."""
    return f"http://{HOST}:{server.server_address[1]}/"
