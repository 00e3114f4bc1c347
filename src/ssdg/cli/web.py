"""`ssdg web`: collect web images with their web-labels and record the origin of each in a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ..errors import UserError
from .web_audit import audit

if TYPE_CHECKING:
    from ..web.collection_report import CollectionReport
    from ..web.crawl.crawler import CrawlPlan
    from ..web.crawl.fetch_url import Fetcher
    from ..web.crawl.politeness import Limits

app = App(name="web", help="Build web data: crawl images or ingest an existing crawl, then audit it.")
app.command(audit)
Json = Annotated[bool, Parameter(name="--json", negative=())]
Flag = Annotated[bool, Parameter(negative=())]
Count = Annotated[int, Parameter(validator=Number(gte=1))]
Amount = Annotated[float, Parameter(validator=Number(gt=0))]
DEFAULT_ENGINE = "icrawler:bing"


@app.command
def crawl(
    *,
    classes: str,
    per_class: Count,
    out: Annotated[Path, Parameter(alias="-o")],
    engine: str | None = None,
    urls: Path | None = None,
    encoding: str | None = None,
    keyword_template: str = "{class}",
    min_side: Count = 32,
    threads: Count = 4,
    delay: Annotated[float, Parameter(validator=Number(gte=0))] = 1.0,
    timeout: Amount = 30.0,
    max_mb: Amount = 20.0,
    max_total_mb: Amount = 5000.0,
    max_minutes: Amount = 60.0,
    user_agent: str | None = None,
    retry: Flag = False,
    allow_private: Flag = False,
    ignore_search_robots: Flag = False,
    as_json: Json = False,
) -> int:
    """Fetch images for each class and record each one in DIR/manifest.csv; run again to resume.

    Exits with 0 if every class has an image, with 1 otherwise.

    Parameters
    ----------
    classes
        Comma-separated web-labels: dog,elephant.
    per_class
        Images to keep per class.
    out
        Output folder; images are stored as DIR/CLASS/HASH.SUFFIX.
    engine
        icrawler:bing, icrawler:baidu, urls, or a custom Python file with a function
        search(keyword, fetch).  [default: urls with --urls, else icrawler:bing]
    urls
        CSV file for engine urls, with the columns url, class and optionally licence.
    encoding
        Encoding of that file.  [default: the first of utf-8, gb18030 (includes gbk), latin-1 that decodes it]
    keyword_template
        Search keyword, such as "a photo of a {class}".
    min_side
        Minimum side length of an image, in pixels.
    threads
        Number of parallel fetches, usually from different hosts.
    delay
        Seconds between requests to the same host; a longer Crawl-delay in its robots.txt counts instead.
    timeout
        Seconds per file, from connecting to the last byte; a third of it without a byte also aborts the file.
    max_mb
        Maximum size of a file, in megabytes.
    max_total_mb
        Maximum total download, in megabytes.
    max_minutes
        Maximum total time, in minutes.
    user_agent
        User-Agent header; include an address at which hosts can contact you.
    retry
        Fetch again files refused as unreachable, busy, slow or truncated.
    allow_private
        Also fetch from private, loopback and other non-public addresses.
    ignore_search_robots
        Query a search engine even if its robots.txt forbids it; the robots.txt of image hosts is always obeyed.
    as_json
        Print JSON instead of a table.
    """
    from ..data.parallel import show_progress
    from ..web.crawl.crawler import crawl as run_crawl
    from ..web.crawl.crawler import report_crawl
    from ..web.crawl.engines import find_engine
    from ..web.store import open_store

    source = engine or ("urls" if urls else DEFAULT_ENGINE)
    plan = build_plan(classes, per_class, source, keyword_template, threads, min_side, retry)
    build_engine = find_engine(source, urls=urls, encoding=encoding, check_robots=not ignore_search_robots)
    limits = build_limits(timeout, max_mb, max_total_mb, max_minutes, delay)
    fetcher = build_fetcher(limits, user_agent, allow_private)
    with open_store(out) as store, show_progress("images", None) as progress:
        outcome = run_crawl(build_engine(fetcher), plan, store, fetcher, progress)
    return print_outcome(report_crawl(store, plan, outcome), out, as_json=as_json)


@app.command
def ingest(
    source: Path,
    *,
    out: Annotated[Path, Parameter(alias="-o")],
    classes: str | None = None,
    root: Path | None = None,
    encoding: str | None = None,
    first_label: Literal[0, 1] | None = None,
    min_side: Count = 1,
    max_mb: Amount = 20.0,
    link: Flag = False,
    as_json: Json = False,
) -> int:
    """Ingest an existing crawl, with the checks and the manifest of `ssdg web crawl`.

    Exits with 0 if every class has an image, with 1 otherwise.

    Parameters
    ----------
    source
        Class folders, a .zip of them, a .csv with the columns path and class, or a file of `path label` lines.
    out
        Output folder; images are stored as DIR/CLASS/HASH.SUFFIX.
    classes
        Comma-separated classes to ingest; for numeric labels, the class names in order.  [default: all]
    root
        Folder that the paths of a .csv or a list start from; nothing outside is read.  [default: folder of the file]
    encoding
        Encoding of a list, or of names in a .zip.  [default: utf-8, gb18030 (includes gbk) or latin-1,
        whichever matches the most existing files]
    first_label
        Number of the first class, if the labels alone leave it open.
    min_side
        Minimum side length of an image, in pixels.
    max_mb
        Maximum size of a file, in megabytes.
    link
        Create hard links instead of copies if the files are in a folder on the same disk.
    as_json
        Print JSON instead of a table.
    """
    from ..data.parallel import show_progress
    from ..web.crawl.politeness import MB
    from ..web.ingest import IngestOptions, list_source, report_ingest
    from ..web.ingest import ingest as run_ingest
    from ..web.store import open_store

    names = split_classes(classes) if classes is not None else ()
    options = IngestOptions(source, names, root, encoding, first_label, int(max_mb * MB), min_side, link)
    listing = list_source(options, out)
    with open_store(out) as store, show_progress("files", None) as progress:
        run_ingest(options, listing, store, progress)
    return print_outcome(report_ingest(store, options, listing), out, as_json=as_json)


def build_plan(
    classes: str, per_class: int, source: str, template: str, threads: int, min_side: int, retry: bool
) -> CrawlPlan:
    """Validate the classes and the keyword template, and return the plan of a crawl."""
    from ..web.crawl.crawler import CrawlPlan

    name = Path(source).name if source.endswith(".py") else source
    return CrawlPlan(split_classes(classes), per_class, name, check_template(template), threads, min_side, retry)


def build_limits(timeout: float, max_mb: float, max_total_mb: float, max_minutes: float, delay: float) -> Limits:
    """Convert the limits of `ssdg web crawl` to bytes and seconds."""
    from ..web.crawl.politeness import MB, Limits

    return Limits(timeout, timeout / 3, int(max_mb * MB), int(max_total_mb * MB), max_minutes * 60, delay=delay)


def build_fetcher(limits: Limits, user_agent: str | None, allow_private: bool) -> Fetcher:
    """Validate the user agent and return the fetcher of a crawl."""
    from ..web.crawl.fetch_url import AGENT, Fetcher, check_agent

    return Fetcher(limits, check_agent(user_agent or AGENT), allow_private)


def split_classes(text: str) -> tuple[str, ...]:
    """Split and validate the class names of `--classes`."""
    from ..web.store import check_label

    names = [check_label(name.strip()) for name in text.split(",")]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UserError(f"--classes lists '{min(repeated)}' twice; list each class once")
    return tuple(names)


def check_template(template: str) -> str:
    """Return the template; raise `UserError` without `{class}`: every class would get the same search."""
    if "{class}" not in template:
        raise UserError(f'--keyword-template "{template}" lacks {{class}}; use for example "a photo of a {{class}}"')
    return template


def print_outcome(report: CollectionReport, out: Path, *, as_json: bool) -> int:
    """Print the report and return the exit code; a class without an image is a failure, reported on stderr."""
    from . import FAILED, print_error

    if as_json:
        import json

        print(json.dumps({"out": str(out), **report.as_json()}, indent=2, ensure_ascii=False))
    else:
        _print_tables(report)
    if not report.num_found:
        reason = f" ({report.notes[0]})" if report.notes else ""  # all notes are printed above
        return print_error(f"no image found for any class{reason}; try other keywords or another source", FAILED)
    if report.empty:
        classes = ", ".join(f"{count.label} ({count.num_found} found)" for count in report.empty)
        return print_error(f"no image kept for {classes}; the manifest lists the reason for each file", FAILED)
    return 0


def _print_tables(report: CollectionReport) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..terminal import Console

    console, table = Console(), Table("class")
    has_requests = any(count.num_requested is not None for count in report.classes)
    for name in (*(["requested"] if has_requests else []), "found", "kept"):
        table.add_column(name, justify="right")
    table.add_column("refused, by reason")
    for count in report.classes:
        numbers = [*([count.num_requested] if has_requests else []), count.num_found, count.num_kept]
        reasons = ", ".join(f"{reason} {number}" for reason, number in count.refused.items())
        style = "" if count.num_kept or not count.is_requested else "bold red"
        table.add_row(Text(count.label or "(none)"), *map(str, numbers), Text(reasons), style=style)
    console.print(table)
    for note in report.notes:
        console.print(Text(note))
