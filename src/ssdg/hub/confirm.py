"""The page that Google Drive shows instead of a large file, and the address that its button leads to."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin, urlsplit

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
