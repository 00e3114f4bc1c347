"""The page of a run that is going on: served on this machine only, fresh whenever files have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

from ..errors import UserError
from .build import build
from .page import as_json, render

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")  # by which it may be asked: another name may be a stranger's page
READ = ("*.json", "*.jsonl", "labels/*.npz", "samples/*", "cells/*/*.json", "cells/*/events.jsonl")


class Watched:
    """Folders, and the data of their page as of the last look."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = folders
        self.lock = Lock()
        self.tag, self.page = "", ""
        self.look()

    def look(self) -> str:
        """Read the folders again if a file has changed; returns a tag of what is there now."""
        with self.lock:
            if (now := tag_of(self.folders)) != self.tag:
                data = {**build(self.folders), "live": True}
                self.page, self.json, self.tag = render(data, live=True), as_json(data), now
            return self.tag


def tag_of(folders: Sequence[Path]) -> str:
    """Changes when a file that the page is made of does."""
    return f'"{hashlib.sha256("".join(_states(folders)).encode()).hexdigest()[:16]}"'


def _states(folders: Sequence[Path]) -> Iterator[str]:
    for folder in folders:
        for path in sorted(path for pattern in READ for path in folder.glob(pattern)):
            try:
                state = path.stat()
            except FileNotFoundError:  # a temporary file that has its name by now
                continue
            yield f"{path}\x1f{state.st_mtime_ns}\x1f{state.st_size}\x1e"


class Answers(BaseHTTPRequestHandler):
    """`/` is the page, `/data.json` what it shows; there is nothing else."""

    watched: Watched
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer the page's own requests."""
        if (self.headers.get("Host") or "").partition(":")[0] not in NAMES:
            return self.answer(HTTPStatus.FORBIDDEN, "this page answers to 127.0.0.1 and localhost only")
        if self.path not in ("/", "/data.json"):
            return self.answer(HTTPStatus.NOT_FOUND, "there is / and /data.json")
        try:
            tag = self.watched.look()
        except (UserError, OSError) as error:  # a file that is being written
            return self.answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        if self.path == "/":
            return self.answer(HTTPStatus.OK, self.watched.page, "text/html; charset=utf-8")
        if self.headers.get("If-None-Match") == tag:
            return self.answer(HTTPStatus.NOT_MODIFIED, "", tag=tag)
        return self.answer(HTTPStatus.OK, self.watched.json, "application/json", tag)

    def answer(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8", tag: str = "") -> None:
        """Send one answer; a reader that has gone is no error."""
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
        """Say nothing: a request every two seconds is no news."""


def make_server(folders: Sequence[Path], port: int) -> ThreadingHTTPServer:
    """A server on loopback; port 0 takes a free one."""
    answers = type("TheseAnswers", (Answers,), {"watched": Watched(folders)})
    try:
        server = ThreadingHTTPServer((HOST, port), answers)
    except (OSError, OverflowError) as error:
        raise UserError(f"--port {port} cannot be used ({error}); give another, or 0 for a free one") from None
    server.daemon_threads = True
    return server


def address_of(server: ThreadingHTTPServer) -> str:
    """Where a browser finds it."""
    return f"http://{HOST}:{server.server_address[1]}/"
