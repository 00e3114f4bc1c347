"""A real HTTP server on this machine that serves all that a crawler may meet."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from waiting import wait_until

Serve = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers by the routes of its server; counts what was asked for."""

    server: Site
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.close_connection = True
        self.server.count[self.path] += 1
        self.server.headers.append(dict(self.headers))
        route = self.server.routes.get(self.path.partition("?")[0])
        if route is None:
            self.answer(404, b"nothing here")
        else:
            route(self)

    def answer(self, status: int, body: bytes, kind: str = "text/plain", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Site(ThreadingHTTPServer):
    """The server; `routes` may be changed while it runs."""

    daemon_threads = True

    def __init__(self, host: str = "127.0.0.1") -> None:
        super().__init__((host, 0), Handler)
        self.routes: dict[str, Serve] = {}
        self.count: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.gate = threading.Event()  # a route may wait for it

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def num_requests(self) -> int:
        """The number of requests, without robots.txt."""
        return self.count.total() - self.count["/robots.txt"]

    def reached(self, path: str) -> bool:
        """Wait until a path has been asked for."""
        wait_until(lambda: self.count[path])
        return True

    def handle_error(self, request: object, client_address: object) -> None:
        """The crawler may hang up whenever it likes."""


@contextmanager
def served() -> Iterator[Site]:
    site = Site()
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield site
    finally:
        site.gate.set()
        site.shutdown()
        thread.join()
        site.server_close()


def image(data: bytes, kind: str = "image/png") -> Serve:
    return lambda handler: handler.answer(200, data, kind)


def status(code: int) -> Serve:
    return lambda handler: handler.answer(code, b"<html>no</html>", "text/html")


def redirect(to: str, code: int = 302) -> Serve:
    return lambda handler: handler.answer(code, b"", Location=to)


def truncated(data: bytes) -> Serve:
    """Announces all and sends half."""

    def serve(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "image/png")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: len(data) // 2])

    return serve


def broken_chunks(data: bytes) -> Serve:
    """A chunked answer that ends within a chunk."""

    def serve(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "image/png")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(f"{len(data):x}\r\n".encode() + data[: len(data) // 2])

    return serve


def endless(kind: str = "image/png") -> Serve:
    """Sends without an end, and announces none."""

    def serve(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.end_headers()
        while True:
            handler.wfile.write(b"x" * 65536)

    return serve


def dripping(where: str) -> Serve:
    """A byte now and then, never long without one: in the headers or in the body."""

    def serve(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n")
        handler.wfile.write(b"\r\n" if where == "body" else b"X-Long: ")
        while not handler.server.gate.wait(0.02):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    return serve


def silent(handler: Handler) -> None:
    """No answer at all."""
    handler.server.gate.wait()
