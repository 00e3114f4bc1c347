"""Download one file over HTTP into a partial file that a later attempt resumes.

Uses `urllib`, not `ssdg.web.crawl.http_get`: a download must pass the proxies that a cluster sets (HTTPS_PROXY), and
its addresses are ours or the user's, so a mirror in a private network is welcome.
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
from ..files import write_json
from ..web.untrusted import one_line


class Failed(Exception):
    """One source failed."""

    def __init__(self, reason: str, *, passing: bool = False, no_line: bool = False, wait: float = 0.0) -> None:
        super().__init__(one_line(reason))
        self.passing = passing  # the same may go better in a moment
        self.no_line = no_line  # no server was reached: not worth waiting for, unless it could be reached before
        self.wait = wait  # seconds that the server asked for


MOST_PAGE_BYTES = 1_000_000
FORM = "download-form"
_HOSTS = (".google.com", ".googleusercontent.com")


def confirmed_address(page: str, url: str) -> str | None:
    """Where the form of the page at `url` leads, if it is that page; only to its own site or Google's."""
    form = _Form()
    form.feed(page)
    if not form.action or not form.fields:
        return None
    target = urljoin(url, form.action)
    here, there = urlsplit(url), urlsplit(target)
    is_google = there.scheme == "https" and f".{there.hostname or ''}".endswith(_HOSTS)
    if not is_google and (here.scheme, here.netloc) != (there.scheme, there.netloc):
        return None
    return f"{target}{'&' if there.query else '?'}{urlencode(form.fields)}"


class _Form(HTMLParser):
    """The action and the hidden fields of the form that confirms a download."""

    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form" and given.get("id") == FORM:
            self._inside, self.action = True, given.get("action") or ""
        elif tag == "input" and self._inside and given.get("name"):
            self.fields[given["name"] or ""] = given.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "form"


GB = 10**9
AGENT = f"ssdg/{__version__} (research data download)"
MOST_WAIT = 120.0  # seconds that a busy server is waited for, whatever it asks
_CHUNK = 1 << 18
_BUSY = (408, 425, 429)
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
Tell = Callable[[int, int | None], None]  # bytes so far, bytes in all where it is known


@dataclass(frozen=True)
class Limits:
    """What a download may cost."""

    file_bytes: int = 20 * GB
    idle_seconds: float = 30.0  # without a byte
    tries: int = 5  # in a row without a new byte
    most_tries: int = 100
    first_wait: float = 2.0  # seconds before the second try; doubled for each further one


def transfer(url: str, part: Path, limits: Limits, tell: Tell) -> None:
    """Fill the file `part` from `url`, going on with what is there if it is of the same file; raise `Failed`."""
    known = _known(part, url)
    start = part.stat().st_size if known else 0
    headers = {"Range": f"bytes={start}-", "If-Range": known["validator"]} if start else {}
    with _told_apart(url), _answer(url, headers, limits) as response:
        if response is None:
            _at_the_end(part, start, known)
            return
        if response.status != 200 and not _continues(response, start, known):
            forget(part)
            raise Failed("the server sent a part of something else than before", passing=True)
        start = start if response.status == 206 else 0
        total = None if response.length is None else start + response.length
        _check_size(total or 0, limits)
        _remember(part, url, response, total)
        done = _pour(response, part, start, total, limits, tell)
    if total is not None and done < total:
        raise Failed(f"the answer ended after {done:,} of {total:,} bytes", passing=True)


def forget(part: Path) -> None:
    """Remove a partial file and what is known of it."""
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


def _notes(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _known(part: Path, url: str) -> dict[str, Any]:
    """What was noted of the partial file, if it is of this address and its server can tell changes; else nothing."""
    try:
        notes = json.loads(_notes(part).read_text(encoding="utf-8"))
        usable = part.is_file() and notes["url"] == url and bool(notes["validator"])
        return dict(notes) if usable else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _remember(part: Path, url: str, response: HTTPResponse, total: int | None) -> None:
    write_json(_notes(part), {"url": url, "validator": _validator(response), "bytes": total})


def _validator(response: HTTPResponse) -> str:
    """What an If-Range header may carry: a strong ETag, else the time of the last change."""
    tag = response.getheader("ETag") or ""
    return tag if tag.startswith('"') else response.getheader("Last-Modified") or ""


@contextmanager
def _answer(url: str, headers: dict[str, str], limits: Limits) -> Iterator[HTTPResponse | None]:
    """The answer with its body unread; None if the server has nothing after the range's start."""
    for _ in range(2):  # the second time from where a page of confirmation leads
        if urlsplit(url).scheme not in ("http", "https"):
            raise Failed(f"'{url}' is no http or https address")
        request = Request(url, headers={"User-Agent": AGENT, "Accept-Encoding": "identity", **headers})
        try:
            opened = _opener().open(request, timeout=limits.idle_seconds)
        except HTTPError as error:
            with error:
                if error.code == 416 and "Range" in headers:
                    break
                raise _status(error) from None
        with opened as response:
            if not _is_page(response):
                _check_encoding(response)
                yield response
                return
            page = response.read(MOST_PAGE_BYTES).decode("utf-8", "replace")
            url = confirmed_address(page, response.url) or ""
            if not url:
                raise Failed("the server sent a web page instead of a file")
    else:
        raise Failed("the server sent a web page instead of a file, after confirming, too")
    yield None


def _opener() -> OpenerDirector:
    """HTTP and HTTPS only, wherever a redirect leads; proxies as the environment names them."""
    made = OpenerDirector()
    handlers = (HTTPHandler(), HTTPSHandler(), HTTPRedirectHandler(), HTTPErrorProcessor(), HTTPDefaultErrorHandler())
    for handler in (ProxyHandler(), UnknownHandler(), *handlers):
        made.add_handler(handler)
    return made


def _is_page(response: HTTPResponse) -> bool:
    return (response.getheader("Content-Type") or "").partition(";")[0].strip().lower() == "text/html"


def _check_encoding(response: HTTPResponse) -> None:
    encoding = (response.getheader("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise Failed(f"the server sent it as {encoding}, which was not asked for")


def _status(error: HTTPError) -> Failed:
    wish = (error.headers.get("Retry-After") or "").strip()
    wait = min(float(wish), MOST_WAIT) if wish.isdecimal() and len(wish) < 9 else 0.0
    return Failed(f"the server answered {error.code} {error.reason}", passing=_may_pass(error.code), wait=wait)


def _may_pass(status: int) -> bool:
    return status in _BUSY or status >= 500


def _at_the_end(part: Path, start: int, known: dict[str, Any]) -> None:
    """Nothing comes after what we have: whole if it is as long as was told, else of no use."""
    if known.get("bytes") != start:
        forget(part)
        raise Failed("the file on the server has changed", passing=True)


def _continues(response: HTTPResponse, start: int, known: dict[str, Any]) -> bool:
    """Whether the body goes on after the first `start` bytes of the same file; If-Range may have been overheard."""
    told = _RANGE.fullmatch((response.getheader("Content-Range") or "").strip())
    if response.status != 206 or not start or told is None or int(told[1]) != start:
        return False
    same_length = told[2] == "*" or known["bytes"] in (None, int(told[2]))
    return same_length and _validator(response) in ("", known["validator"])


def _check_size(num_bytes: int, limits: Limits) -> None:
    if num_bytes > limits.file_bytes:
        raise Failed(f"{num_bytes:,} bytes, more than the limit of {limits.file_bytes:,}")


def _pour(response: HTTPResponse, part: Path, start: int, total: int | None, limits: Limits, tell: Tell) -> int:
    """Write the body behind the first `start` bytes; returns how long the file is then."""
    part.parent.mkdir(parents=True, exist_ok=True)
    done = start
    with part.open("r+b" if start else "wb") as file:
        file.seek(start)
        file.truncate()
        tell(done, total)
        while piece := response.read1(_CHUNK):
            done += len(piece)
            if done > limits.file_bytes:
                forget(part)
                raise Failed(f"more than the limit of {limits.file_bytes:,} bytes")
            with _disk_told_apart():
                file.write(piece)
            tell(done, total)
    return done


class _DiskError(Exception):
    """An OSError of our own disk, which must not be taken for one of the network."""


@contextmanager
def _disk_told_apart() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _DiskError from error


@contextmanager
def _told_apart(url: str) -> Iterator[None]:
    """What goes wrong on the way, as a failure of this source."""
    host = url
    try:
        host = urlsplit(url).hostname or url
        yield
    except _DiskError as error:
        raise error.__cause__ or error from None
    except TimeoutError:
        raise Failed(f"{host} gave no answer in time", passing=True) from None
    except URLError as error:
        raise _unreachable(host, error.reason) from None
    except HTTPException as error:
        raise Failed(f"the answer broke off ({type(error).__name__})", passing=True) from None
    except ValueError:
        raise Failed(f"'{url}' is no address") from None
    except OSError as error:
        raise Failed(f"the connection to {host} broke: {error.strerror or error}", passing=True) from None


def _unreachable(host: str, reason: object) -> Failed:
    """No connection came about."""
    if isinstance(reason, ssl.SSLCertVerificationError):
        return Failed(f"the certificate of {host} is not trusted ({reason.verify_message})")
    told = reason.strerror if isinstance(reason, OSError) and reason.strerror else str(reason)
    return Failed(f"no connection to {host}: {told}", no_line=True)
