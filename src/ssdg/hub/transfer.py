"""Download one file over HTTP into a partial file that a later attempt resumes.

Uses `urllib`, not `ssdg.web.crawl.http_get`: a download must pass the proxies that a cluster sets (HTTPS_PROXY), and
its URLs come from us or the user, so a mirror in a private network is fine.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urljoin, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from .. import __version__
from ..errors import one_line
from ..files import read_text, write_json


class FetchError(Exception):
    """Raised when a source cannot be fetched or unpacked."""

    def __init__(
        self, reason: str, *, is_transient: bool = False, is_unreachable: bool = False, wait: float = 0.0
    ) -> None:
        super().__init__(one_line(reason))
        self.is_transient = is_transient  # a retry may succeed
        self.is_unreachable = is_unreachable  # no connection: retried only if the server was reached before
        self.wait = wait  # seconds requested by the server


MAX_PAGE_BYTES = 1_000_000
FORM = "download-form"
_HOSTS = (".google.com", ".googleusercontent.com")


def find_confirmed_url(page: str, url: str) -> str | None:
    """Return the URL behind the confirmation form of a page, if it has one; only to its own site or Google."""
    form = _ConfirmationForm()
    form.feed(page)
    if not form.action or not form.fields:
        return None
    target = urljoin(url, form.action)
    page_parts, parts = urlsplit(url), urlsplit(target)
    is_google = parts.scheme == "https" and f".{parts.hostname or ''}".endswith(_HOSTS)
    if not is_google and (page_parts.scheme, page_parts.netloc) != (parts.scheme, parts.netloc):
        return None
    return f"{target}{'&' if parts.query else '?'}{urlencode(form.fields)}"


class _ConfirmationForm(HTMLParser):
    """Parser for the action and hidden fields of the form that confirms a download."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "form" and values.get("id") == FORM:
            self._inside, self.action = True, values.get("action") or ""
        elif tag == "input" and self._inside and values.get("name"):
            self.fields[values["name"] or ""] = values.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "form"


GB = 10**9
AGENT = f"ssdg/{__version__} (research data download)"
MAX_RETRY_AFTER = 120.0  # seconds, upper bound of Retry-After
_CHUNK = 1 << 18
_BUSY = (408, 425, 429)
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
OnProgress = Callable[[int, int | None], None]  # (bytes received, total bytes if known)


@dataclass(frozen=True)
class Limits:
    """Limits and retries of a download."""

    file_bytes: int = 20 * GB
    idle_seconds: float = 30.0  # without a byte
    tries: int = 5  # in a row without a new byte
    max_tries: int = 100
    first_wait: float = 2.0  # seconds before the first retry, doubled for each further one


def transfer(url: str, part: Path, limits: Limits, on_progress: OnProgress) -> None:
    """Download `url` into the file `part`, resuming if it is part of the same file; raise `FetchError`."""
    metadata = _read_metadata(part, url)
    start = part.stat().st_size if metadata else 0
    headers = {"Range": f"bytes={start}-", "If-Range": metadata["validator"]} if start else {}
    with _raise_as_fetch_error(url), _open_response(url, headers, limits) as response:
        if response is None:
            _check_complete(part, start, metadata)
            return
        if response.status != 200 and not _continues(response, start, metadata):
            remove_partial(part)
            raise FetchError("the server sent a range of a different file", is_transient=True)
        start = start if response.status == 206 else 0
        total = None if response.length is None else start + response.length
        _check_size(total or 0, limits)
        _write_metadata(part, url, response, total)
        done = _write_body(response, part, start, total, limits, on_progress)
    if total is not None and done < total:
        raise FetchError(f"the response ended after {done:,} of {total:,} bytes", is_transient=True)


def remove_partial(part: Path) -> None:
    """Delete a partial file and its metadata."""
    part.unlink(missing_ok=True)
    _metadata_path(part).unlink(missing_ok=True)


def _metadata_path(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_metadata(part: Path, url: str) -> dict[str, Any]:
    """Return the metadata of a partial file; empty if it belongs to another URL or has no validator."""
    try:
        metadata = json.loads(read_text(_metadata_path(part)))
        is_usable = part.is_file() and metadata["url"] == url and bool(metadata["validator"])
        return dict(metadata) if is_usable else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write_metadata(part: Path, url: str, response: HTTPResponse, total: int | None) -> None:
    write_json(_metadata_path(part), {"url": url, "validator": _validator(response), "bytes": total})


def _validator(response: HTTPResponse) -> str:
    """Return the value for an If-Range header: a strong ETag, else the time of the last change."""
    tag = response.getheader("ETag") or ""
    return tag if tag.startswith('"') else response.getheader("Last-Modified") or ""


@contextmanager
def _open_response(url: str, headers: dict[str, str], limits: Limits) -> Iterator[HTTPResponse | None]:
    """Yield the response with its body unread; None if the server has no bytes after the start of the range."""
    for _ in range(2):  # the second time at the URL of a confirmation page
        if urlsplit(url).scheme not in ("http", "https"):
            raise FetchError(f"'{url}' is not an http or https URL")
        request = Request(url, headers={"User-Agent": AGENT, "Accept-Encoding": "identity", **headers})
        try:
            opened = _opener().open(request, timeout=limits.idle_seconds)
        except HTTPError as error:
            with error:
                if error.code == 416 and "Range" in headers:
                    break
                raise _status_error(error) from None
        with opened as response:
            if not _is_page(response):
                _check_encoding(response)
                yield response
                return
            page = response.read(MAX_PAGE_BYTES).decode("utf-8", "replace")
            url = find_confirmed_url(page, response.url) or ""
            if not url:
                raise FetchError("the server sent a web page instead of a file")
    else:
        raise FetchError("the server sent a web page instead of a file, even after confirmation")
    yield None


def _opener() -> OpenerDirector:
    """Return an opener for HTTP and HTTPS only, also after redirects; proxies come from the environment."""
    opener = OpenerDirector()
    handlers = (HTTPHandler(), HTTPSHandler(), HTTPRedirectHandler(), HTTPErrorProcessor(), HTTPDefaultErrorHandler())
    for handler in (ProxyHandler(), UnknownHandler(), *handlers):
        opener.add_handler(handler)
    return opener


def _is_page(response: HTTPResponse) -> bool:
    return (response.getheader("Content-Type") or "").partition(";")[0].strip().lower() == "text/html"


def _check_encoding(response: HTTPResponse) -> None:
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise FetchError(f"the server sent an unrequested content encoding: {encoding}")


def _status_error(error: HTTPError) -> FetchError:
    value = (error.headers.get("Retry-After") or "").strip()
    wait = min(float(value), MAX_RETRY_AFTER) if value.isdecimal() and len(value) < 9 else 0.0
    return FetchError(
        f"the server returned {error.code} {error.reason}", is_transient=_is_transient_status(error.code), wait=wait
    )


def _is_transient_status(status: int) -> bool:
    return status in _BUSY or status >= 500


def _check_complete(part: Path, start: int, metadata: dict[str, Any]) -> None:
    """Raise `FetchError` unless the partial file has its announced length."""
    if metadata.get("bytes") != start:
        remove_partial(part)
        raise FetchError("the file on the server has changed", is_transient=True)


def _continues(response: HTTPResponse, start: int, metadata: dict[str, Any]) -> bool:
    """Return whether the body continues the same file at byte `start`; the server may have ignored If-Range."""
    match = _RANGE.fullmatch((response.getheader("Content-Range") or "").strip())
    if response.status != 206 or not start or match is None or int(match[1]) != start:
        return False
    has_same_length = match[2] == "*" or metadata["bytes"] in (None, int(match[2]))
    return has_same_length and _validator(response) in ("", metadata["validator"])


def _check_size(num_bytes: int, limits: Limits) -> None:
    if num_bytes > limits.file_bytes:
        raise FetchError(f"{num_bytes:,} bytes, more than the limit of {limits.file_bytes:,}")


def _write_body(
    response: HTTPResponse, part: Path, start: int, total: int | None, limits: Limits, on_progress: OnProgress
) -> int:
    """Write the body at byte `start` and return the new length of the file."""
    part.parent.mkdir(parents=True, exist_ok=True)
    done = start
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        file.truncate()
        on_progress(done, total)
        while piece := response.read1(_CHUNK):
            done += len(piece)
            if done > limits.file_bytes:
                remove_partial(part)
                raise FetchError(f"more than the limit of {limits.file_bytes:,} bytes")
            with _mark_disk_errors():
                file.write(piece)
            on_progress(done, total)
    return done


class _DiskError(Exception):
    """Wrapper for an OSError of the local disk, to distinguish it from network errors."""


@contextmanager
def _mark_disk_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _DiskError from error


@contextmanager
def _raise_as_fetch_error(url: str) -> Iterator[None]:
    """Turn network errors into `FetchError`."""
    host = url
    try:
        host = urlsplit(url).hostname or url
        yield
    except _DiskError as error:
        raise error.__cause__ or error from None
    except TimeoutError:
        raise FetchError(f"{host} sent no response in time", is_transient=True) from None
    except URLError as error:
        raise _unreachable_error(host, error.reason) from None
    except HTTPException as error:
        raise FetchError(f"the response broke off ({type(error).__name__})", is_transient=True) from None
    except ValueError:
        raise FetchError(f"'{url}' is not a valid URL") from None
    except OSError as error:
        raise FetchError(f"the connection to {host} broke: {error.strerror or error}", is_transient=True) from None


def _unreachable_error(host: str, reason: object) -> FetchError:
    """Return the error for a failed connection."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return FetchError(f"the certificate of {host} is not trusted ({reason.verify_message})")
    detail = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return FetchError(f"no connection to {host}: {detail}", is_unreachable=True)
