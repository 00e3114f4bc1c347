"""Running crawls against the server of the tests."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from servers import Site

from ssdg.cli import call
from ssdg.data.sources.manifest import Row, read_manifest

Capture = pytest.CaptureFixture[str]
QUICK = {"--delay": 0, "--min-side": 1}


def write_urls(
    path: Path, rows: list[tuple[str, ...]], columns: tuple[str, ...] = ("url", "class", "licence")
) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def crawl_args(urls: Path, out: Path, *more: object, classes: str = "dog,cat", per_class: int = 100) -> list[str]:
    """Return the arguments of a crawl of a list; options in `more` take precedence."""
    options = {"--classes": classes, "--per-class": per_class, "--urls": urls, "--out": out, **QUICK}
    pairs = [word for name, value in options.items() if name not in more for word in (name, value)]
    return [str(word) for word in ("web", "crawl", *pairs, "--allow-private", "--json", *more)]


def run(capsys: Capture, *args: object) -> tuple[int, dict[str, Any], str]:
    """Exit code, what `--json` printed, and what was said on stderr."""
    capsys.readouterr()
    code = call([str(word) for word in args])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else {}, captured.err


def by_url(out: Path) -> dict[str, Row]:
    """The rows of a manifest by the path of their URL."""
    return {row.url.partition("://")[2].partition("/")[2]: row for row in read_manifest(out).rows.values()}


def by_origin(out: Path) -> dict[str, Row]:
    """The rows of a manifest by where the files lay."""
    return {row.origin: row for row in read_manifest(out).rows.values()}


def ingest(capsys: Capture, source: Path, out: Path, *more: object) -> tuple[int, dict[str, Any], str]:
    return run(capsys, "web", "ingest", source, "--out", out, "--json", *more)


def listed(site: Site, path: Path, names: list[str], label: str = "dog") -> Path:
    """A list of addresses at the server."""
    return write_urls(path / "urls.csv", [(f"{site.url}/{name}", label, "") for name in names])
