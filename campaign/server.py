"""A web server on 127.0.0.1 in a process of its own: it publishes an archive, and answers crawlers with hostility.

It has a port for each robots.txt. Every answer is bounded in bytes and time, so that a defect of the crawler is seen
as a slow case and not as a full disk.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PUBLISHED = "/PACS.zip"
ENDLESS_BYTES, DRIP_SECONDS = 64 * 2**20, 30.0
ROBOTS = (
    b"", b"User-agent: *\nDisallow: /\n", b"User-agent: *\nCrawl-delay: 1e9\n", b"\xff\xfe\x00" * 1000,
    b"User-agent: *\nDisallow: " + b"/*a" * 20_000 + b"$\n", b"Disallow: /x\n" * 200_000,
    b"User-agent: *\nCrawl-delay: nan\n",
)  # fmt: skip
Answer = Callable[["Handler"], object]


class Handler(BaseHTTPRequestHandler):
    """Answers by the first part of the path."""

    server: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request; the client may hang up at any time."""
        self.close_connection = True
        name = self.path.split("/")[1].partition("?")[0]
        if self.path == "/robots.txt":
            self.answer(200, self.server.robots, "text/plain")
        elif self.path == PUBLISHED:
            publish(self)
        elif name in ANSWERS:
            ANSWERS[name](self)
        else:
            self.answer(404, b"nothing here")

    def answer(self, status: int, body: bytes, kind: str = "image/png", **headers: str) -> None:
        """Send a complete response."""
        self.send_response(status)
        for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Site(ThreadingHTTPServer):
    """A port with its robots.txt."""

    daemon_threads = True

    def __init__(self, robots: bytes, archive: bytes, picture: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.robots, self.archive, self.picture = robots, archive, picture

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the crawler hangs up when it has seen enough."""


@contextmanager
def serving(archive: Path, picture: Path) -> Iterator[tuple[str, ...]]:
    """Serve in another process; yield the addresses, one for each robots.txt."""
    sites = [Site(robots, archive.read_bytes(), picture.read_bytes()) for robots in ROBOTS]
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        for site in sites:
            threading.Thread(target=site.serve_forever, daemon=True).start()
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(0)
    for site in sites:
        site.server_close()
    try:
        yield tuple(f"http://127.0.0.1:{site.server_port}" for site in sites)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def publish(handler: Handler) -> None:
    """Send the archive, or the range of it that a resumed download asks for."""
    data, tag = handler.server.archive, '"1"'
    match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range") or "")
    if match is None:
        handler.answer(200, data, "application/zip", ETag=tag)
    elif int(match[1]) >= len(data):
        handler.answer(416, b"", Content_Range=f"bytes */{len(data)}")
    else:
        start = int(match[1])
        content_range = f"bytes {start}-{len(data) - 1}/{len(data)}"
        handler.answer(206, data[start:], "application/zip", ETag=tag, Content_Range=content_range)


def send_endless(handler: Handler) -> None:
    """Send a body without an announced length."""
    handler.send_response(200)
    handler.send_header("Content-Type", "image/png")
    handler.end_headers()
    for _ in range(ENDLESS_BYTES // 65536):
        handler.wfile.write(b"x" * 65536)


def drip(handler: Handler, head: bytes) -> None:
    """Send a byte now and then."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + head)
    until = time.monotonic() + DRIP_SECONDS
    while time.monotonic() < until:
        handler.wfile.write(b"x")
        handler.wfile.flush()
        time.sleep(0.05)


def redirect(handler: Handler, to: str) -> None:
    """Send the client elsewhere."""
    handler.answer(302, b"", Location=to)


ANSWERS: dict[str, Answer] = {
    "picture": lambda handler: handler.answer(200, handler.server.picture),
    "endless": send_endless,
    "drip-body": lambda handler: drip(handler, b"Content-Type: image/png\r\n\r\n"),
    "drip-header": lambda handler: drip(handler, b"X-Long: "),
    "loop": lambda handler: redirect(handler, handler.path),
    "chain": lambda handler: redirect(handler, f"{handler.path}/x"),
    "to-file": lambda handler: redirect(handler, "file:///etc/passwd"),
    "to-nowhere": lambda handler: redirect(handler, "http://[::1/"),
    "to-robots": lambda handler: redirect(handler, "/robots.txt"),
    "html": lambda handler: handler.answer(200, b"<script>alert(1)</script>", "text/html"),
    "wrong-type": lambda handler: handler.answer(200, handler.server.picture, "text/html; charset=\xff"),
    "not-an-image": lambda handler: handler.answer(200, b"%!PS-Adobe-3.0 EPSF-3.0\n"),
    "short": lambda handler: handler.answer(200, b"x", Content_Length="1000000"),
    "negative-length": lambda handler: handler.answer(200, b"x", Content_Length="-1"),
    "huge-length": lambda handler: handler.answer(200, b"x", Content_Length="9" * 400),
    "huge-header": lambda handler: handler.answer(200, b"x", X_Long="y" * 200_000),
    "many-headers": lambda handler: handler.answer(200, b"x", **{f"X-{n}": "y" for n in range(5000)}),
    "bad-chunks": lambda handler: handler.answer(200, b"zz\r\nx", Transfer_Encoding="chunked"),
    "gzip": lambda handler: handler.answer(200, b"\x1f\x8b\x08" + b"\0" * 99, Content_Encoding="gzip"),
    "no-http": lambda handler: handler.wfile.write(b"\0\xff" * 5000),
    "silent": lambda handler: time.sleep(DRIP_SECONDS),
    "busy": lambda handler: handler.answer(503, b"", Retry_After="999999999"),
    "continue": lambda handler: handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
}
