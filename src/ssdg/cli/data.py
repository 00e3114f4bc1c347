"""`ssdg data`: list, fetch, describe, verify and unpack image data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from ..errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from ..data.verify import Description

app = App(name="data", help="List and fetch known benchmarks; describe, count and verify folders of images.")
app.command("ssdg.cli.data:fetch", name="fetch", help="Download a benchmark, unpack it and verify it.")
Json = Annotated[bool, Parameter(name="--json", negative=())]


@app.command(name="list")
def list_datasets(*, as_json: Json = False) -> None:
    """List the known benchmarks.

    Parameters
    ----------
    as_json
        Print JSON instead of a table.
    """
    from ..data.catalog import CATALOG

    if as_json:
        _print_json([_dataset_json(dataset) for dataset in CATALOG])
        return
    from rich.table import Table

    from ..terminal import Console

    console, table = Console(), Table("benchmark", "domains", "classes", "images", "size")
    for dataset in CATALOG:
        domains = ", ".join(f"{entry.name} ({entry.short})" for entry in dataset.domains)
        counts = [entry.num_images for entry in dataset.domains if entry.num_images]
        images = f"{sum(counts):,}" if len(counts) == len(dataset.domains) else "-"
        table.add_row(dataset.name, domains, str(len(dataset.classes)), images, str(dataset.image_size))
    console.print(table)
    for dataset in CATALOG:
        console.print(f"{dataset.name}: {dataset.get} (license: {dataset.licence})", markup=False)


def _dataset_json(dataset: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(dataset) | {"tasks": dataset.tasks}


def _resolve_root(root: Path) -> Path:
    """Return the path of a folder or archive, or of the embedded dataset with that name."""
    if root.exists():
        return root
    from ..engine.setup import default_cache, find_root

    return find_root({"data": str(root)}, default_cache()) or root


def _print_json(value: Any) -> None:
    import json

    print(json.dumps(value, indent=2))


@app.command
def unpack(
    root: Path, to: Path, *, per_class: Annotated[int | None, Parameter(validator=Number(gte=1))] = None
) -> None:
    """Write the images of .npz files as class folders of PNG files, the layout of custom data.

    Parameters
    ----------
    root
        Folder of .npz files, or an embedded dataset: digits, web-digits.
    to
        Output folder; images are written to DOMAIN/CLASS/N.png.
    per_class
        Images per class and domain.  [default: all]
    """
    from ..data.sources.npz import unpack_arrays

    counts = unpack_arrays(_resolve_root(root), to, per_class)
    by_domain = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    print(f"{sum(counts.values()):,} images in {to}: {by_domain}")


@app.command
def describe(root: Path, *, as_json: Json = False) -> None:
    """Show the domains, classes, image sizes and split lists under a root.

    Parameters
    ----------
    root
        Folder or .zip archive, or an embedded dataset: digits, web-digits.
    as_json
        Print JSON instead of tables.
    """
    from ..data import verify as checks
    from ..data.verify import count_images
    from .data_tables import count_table

    description = checks.describe(_resolve_root(root))
    if as_json:
        _print_json(_description_json(description))
        return
    from ..terminal import Console

    console = Console()
    name = description.dataset.name if description.dataset else "not a known benchmark"
    console.print(f"layout: {description.benchmark.layout}", markup=False)
    console.print(f"known as: {name}", markup=False)
    console.print(count_table(count_images(description.benchmark)))
    console.print(_size_table(description))
    if num_unreadable := sum(description.unreadable.values()) + len(description.benchmark.skipped):
        text = f"{num_unreadable:,} files cannot be read; run ssdg data verify '{root}' for the reasons"
        console.print(text, markup=False, style="yellow", soft_wrap=True)


def _size_table(description: Description) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("domain", "sizes", "split lines")
    for domain in description.benchmark.domains:
        sizes = description.sizes[domain.name]
        listed = [f"{width}x{height}" for width, height in list(sizes)[:3]]
        rest = f" and {len(sizes) - 3} other sizes" if len(sizes) > 3 else ""
        lines = domain.split_lines or {split: len(rows) for split, rows in domain.splits.items()}
        splits = ", ".join(f"{split} {count}" for split, count in lines.items()) or "-"
        table.add_row(escape(domain.name), ", ".join(listed) + rest, splits)
    return table


def _description_json(description: Description) -> dict[str, Any]:
    return {
        "layout": description.benchmark.layout,
        "known_as": description.dataset.name if description.dataset else None,
        "domains": [
            {
                "name": domain.name,
                "images": len(domain.items),
                "classes": domain.counts(),
                "unreadable": description.unreadable[domain.name],
                "sizes": {f"{width}x{height}": n for (width, height), n in description.sizes[domain.name].items()},
                "splits": {split: len(rows) for split, rows in domain.splits.items()},
                "split_lines": dict(domain.split_lines),
            }
            for domain in description.benchmark.domains
        ],
    }


@app.command
def statistics(
    root: Path,
    *,
    format_: Annotated[Literal["text", "markdown", "latex", "csv"], Parameter(name="--format")] = "text",
    as_json: Json = False,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Count images by class and domain, with the rate of images of no class (OOD) if known.

    The rate is known for folders named ood (web/dog/ood: results of the search for dog that belong to no class;
    web/ood: any images of no class) and for .npz files with web_labels, whose images are counted by these labels.

    Parameters
    ----------
    root
        Folder or .zip archive, or an embedded dataset: digits, web-digits.
    format_
        text, markdown, latex or csv.
    as_json
        Print JSON instead.
    out
        Output file, instead of the terminal.
    """
    from ..data.verify import count_images, read_root
    from ..files import write_text
    from . import data_tables

    counts = count_images(read_root(_resolve_root(root)))
    text = data_tables.as_json(counts) if as_json else data_tables.render(counts, format_)
    if out is not None:
        write_text(out, text)
    else:
        print(text, end="")


@app.command
def verify(root: Path, *, as_json: Json = False) -> int:
    """Decode every image under a root and report problems; exit with 1 if there are any.

    Parameters
    ----------
    root
        Folder or .zip archive, or an embedded dataset: digits, web-digits.
    as_json
        Print JSON instead of a table.
    """
    from ..data import verify as checks
    from .data_tables import print_findings

    benchmark = checks.read_root(_resolve_root(root))
    by_class = checks.is_class_folder(benchmark)
    findings = checks.verify_benchmark(benchmark)
    if as_json:
        owner = "class" if by_class else "domain"
        _print_json([{"kind": row.kind, owner: row.domain, "text": row.text} for row in findings])
    else:
        print_findings(findings, by_class=by_class)
    return int(bool(findings))


INCOMPLETE = ("count", "unreadable", "missing", "classes")  # kinds of findings that a published dataset does not have


def fetch(
    name: str,
    *,
    to: Path | None = None,
    from_: Annotated[list[Path] | None, Parameter(name="--from", consume_multiple=True, negative=())] = None,
    source: str | None = None,
) -> int:
    """Download a benchmark, unpack it, lay it out for --data and verify it; run again to resume.

    Exits with 1 if images are missing, miscounted or cannot be read.

    Parameters
    ----------
    name
        pacs, office-home, digits-dg, pacs-web or office-web.
    to
        New output folder.  [default: the name of the benchmark, in the current folder]
    from_
        Local archives (.zip, .tar, .tar.gz) to use instead of downloading; all of them if the benchmark has several.
    source
        Number of a known source, or a URL.  [default: all known sources in turn]
    """
    from ..hub.download import Downloader
    from ..hub.fetch_dataset import DatasetFetcher
    from ..hub.published import find_published, select_sources
    from ..terminal import Console

    if from_ and source:
        raise UserError("--from reads local files and --source downloads; set only one of them")
    published = find_published(name)
    target = (to or Path(published.name)).expanduser().absolute()
    console = Console(highlight=False, soft_wrap=True)

    def log(message: str) -> None:
        console.print(message, markup=False)

    fetcher = DatasetFetcher(published, target, Downloader(log=log), log=log)
    if from_:
        fetcher.fetch_from_files([file.expanduser() for file in from_])
    else:
        fetcher.fetch_from_sources(select_sources(published, source))
    log(f"{published.name} is in {target} (license: {published.dataset.licence})")
    return print_check(target)


def print_check(root: Path) -> int:
    """Print counts and findings of a fetched dataset; return 1 if it is incomplete."""
    from ..data.sources.benchmark import read_benchmark
    from ..data.verify import count_images, verify
    from ..terminal import Console
    from .data_tables import count_table, print_findings

    Console().print(count_table(count_images(read_benchmark(root, skip_damaged=True))))
    findings = verify(root)
    print_findings(findings)
    return int(any(finding.kind in INCOMPLETE for finding in findings))
