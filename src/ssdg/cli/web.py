"""`ssdg web`: images from the web with their web-labels, and a manifest that tells where each came from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ..errors import UserError
from .web_audit import audit

if TYPE_CHECKING:
    from ..web.summary_of_files import Report

app = App(name="web", help="Make web data: crawl it or take over a crawl that you have, and look it over.")
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
    """Fetch images for each class and record every one in DIR/manifest.csv; started again it goes on.

    Exits with 0 when every class has an image, with 1 when one has none.

    Parameters
    ----------
    classes
        The web-labels, with commas between them: dog,elephant.
    per_class
        Images to keep of each class.
    out
        The folder; images go to DIR/<class>/, named by their content.
    engine
        icrawler:bing, icrawler:google, icrawler:baidu, urls, or a Python file of your own with a function
        search(keyword, fetch).  [default: urls with --urls, else icrawler:bing]
    urls
        For the engine urls: a CSV file with the columns url and class, and licence if known.
    encoding
        Of that file.  [default: the first of utf-8, gb18030 (holds gbk), latin-1 that fits]
    keyword_template
        What is searched for, such as "a photo of a {class}".
    min_side
        Fewest pixels on a side of an image.
    threads
        Fetching at a time, of different hosts as a rule.
    delay
        Seconds between two requests to a host.
    timeout
        Seconds for a file, from connecting to its last byte; a third of it without a byte ends it too.
    max_mb
        Megabytes of a file.
    max_total_mb
        Megabytes in all.
    max_minutes
        Minutes in all.
    user_agent
        What hosts are told; put an address there that they can write to.
    retry
        Fetch again what was refused because it was unreachable, busy, slow or truncated.
    allow_private
        Also fetch from private, loopback and other addresses that are not public.
    ignore_search_robots
        Ask a search engine though its robots.txt forbids it; hosts of images are respected always.
    as_json
        Print JSON instead of a table.
    """
    from ..data.parallel import shown
    from ..web.crawl.crawler import Plan
    from ..web.crawl.crawler import crawl as run
    from ..web.crawl.engines import find_engine
    from ..web.crawl.fetch_url import AGENT, Fetcher, check_agent
    from ..web.crawl.politeness import MB, Limits
    from ..web.store import open_store
    from ..web.summary_of_files import crawl_report

    source = engine or ("urls" if urls else DEFAULT_ENGINE)
    name = Path(source).name if source.endswith(".py") else source
    plan = Plan(split_classes(classes), per_class, name, check_template(keyword_template), threads, min_side, retry)
    build = find_engine(source, urls=urls, encoding=encoding, ask_robots=not ignore_search_robots)
    limits = Limits(timeout, timeout / 3, int(max_mb * MB), int(max_total_mb * MB), max_minutes * 60, delay=delay)
    fetcher = Fetcher(limits, check_agent(user_agent or AGENT), allow_private)
    with open_store(out) as store, shown("images", None) as progress:
        outcome = run(build(fetcher), plan, store, fetcher, progress)
    return tell(crawl_report(store, plan, outcome), out, as_json=as_json)


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
    """Take over a crawl that you have, with the checks and the manifest of `ssdg web crawl`.

    Exits with 0 when every class has an image, with 1 when one has none.

    Parameters
    ----------
    source
        Class folders, a .zip of them, a .csv with the columns path and class, or a list of `path label` lines.
    out
        The folder; images go to DIR/<class>/, named by their content.
    classes
        Classes to take, with commas between them; for labels that are numbers, their names in order.  [default: all]
    root
        Where the paths of a .csv or a list start; nothing outside is read.  [default: the folder of the file]
    encoding
        Of a list, or of names in a .zip.  [default: utf-8, gb18030 (holds gbk) or latin-1, by which files are there]
    first_label
        The number of the first class, where the labels alone do not tell it.
    min_side
        Fewest pixels on a side of an image.
    max_mb
        Megabytes of a file.
    link
        Make hard links instead of copies, where the files lie in a folder on the same disk.
    as_json
        Print JSON instead of a table.
    """
    from ..data.parallel import shown
    from ..web.crawl.politeness import MB
    from ..web.ingest import Wish, list_source
    from ..web.ingest import ingest as run
    from ..web.store import open_store
    from ..web.summary_of_files import ingest_report

    names = split_classes(classes) if classes is not None else ()
    wish = Wish(source, names, root, encoding, first_label, int(max_mb * MB), min_side, link)
    listing = list_source(wish, out)
    with open_store(out) as store, shown("files", None) as progress:
        run(wish, listing, store, progress)
    return tell(ingest_report(store, wish, listing), out, as_json=as_json)


def split_classes(words: str) -> tuple[str, ...]:
    """The class names of `--classes`, checked."""
    from ..web.store import check_label

    names = [check_label(name.strip()) for name in words.split(",")]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"--classes names '{min(twice)}' twice; name each class once")
    return tuple(names)


def check_template(template: str) -> str:
    """A template without `{class}` would search the same for every class."""
    if "{class}" not in template:
        raise UserError(f'--keyword-template "{template}" lacks {{class}}; give one such as "a photo of a {{class}}"')
    return template


def tell(report: Report, out: Path, *, as_json: bool) -> int:
    """Print the report; classes without an image are told on stderr, and are a failure."""
    from . import FAILED, complain

    if as_json:
        import json

        print(json.dumps({"out": str(out), **report.as_json()}, indent=2, ensure_ascii=False))
    else:
        _print_tables(report)
    if not report.found:
        why = f" ({report.notes[0]})" if report.notes else ""  # all are told above
        return complain(f"nothing was found for any class{why}; try other keywords or another source", FAILED)
    if report.empty:
        told = ", ".join(f"{one.label} ({one.found} found)" for one in report.empty)
        return complain(f"no image was kept for {told}; the manifest tells why, file by file", FAILED)
    return 0


def _print_tables(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, table = Console(), Table("class")
    asked = any(one.asked is not None for one in report.classes)
    for name in (*(["asked"] if asked else []), "found", "kept"):
        table.add_column(name, justify="right")
    table.add_column("not kept, by reason")
    for one in report.classes:
        numbers: list[Any] = [*([one.asked] if asked else []), one.found, one.kept]
        why = ", ".join(f"{reason} {count}" for reason, count in one.refused.items())
        style = "" if one.kept or not one.wanted else "bold red"
        table.add_row(Text(one.label or "(none)"), *map(str, numbers), Text(why), style=style)
    console.print(table)
    for note in report.notes:
        console.print(Text(note))
