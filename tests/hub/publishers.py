"""Servers that publish files: whole, in ranges, broken, changed, busy; and small archives to publish."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from pathlib import Path

from data.pictures import png
from web.servers import Handler, Serve

CLASSES = ("dog", "horse")
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")


def ranged(data: bytes, etag: str = '"v1"', *, breaks: int = 0, heeds: bool = True, **headers: str) -> Serve:
    """A file in ranges; the first `breaks` answers end half-way. Without `heeds` the server overhears If-Range."""
    left = [breaks]

    def serve(handler: Handler) -> None:
        start = range_start(handler)
        validator = handler.headers.get("If-Range")
        if start is not None and heeds and validator != etag:
            start = None
        if start is not None and start >= len(data):
            handler.answer(416, b"", Content_Range=f"bytes */{len(data)}")
            return
        body = data[start or 0 :]
        handler.send_response(200 if start is None else 206)
        values = {"Content-Length": str(len(body)), "Content-Type": "application/zip", "ETag": etag, **headers}
        if start is not None:
            values["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        for name, value in values.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        left[0] -= 1
        handler.wfile.write(body[: len(body) // 2] if left[0] >= 0 else body)

    return serve


def range_start(handler: Handler) -> int | None:
    match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range") or "")
    return int(match[1]) if match else None


def plain(data: bytes) -> Serve:
    """A server that knows neither ranges nor versions."""
    return lambda handler: handler.answer(200, data, "application/zip")


def page(html: str) -> Serve:
    return lambda handler: handler.answer(200, html.encode(), "text/html; charset=utf-8")


def in_turn(*serves: Serve) -> Serve:
    """Another answer each time; the last one stays."""
    left = list(serves)
    return lambda handler: (left.pop(0) if len(left) > 1 else left[0])(handler)


def pacs_files(prefix: str = "", domains: tuple[str, ...] = DOMAINS) -> dict[str, bytes]:
    """Two classes of two images in each domain, all different."""
    keys = [(d, c, n) for d in domains for c in CLASSES for n in range(2)]
    return {
        f"{prefix}{d}/{c}/{n}.png": png(1000 + DOMAINS.index(d) * 10 + CLASSES.index(c) * 2 + n) for d, c, n in keys
    }


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
