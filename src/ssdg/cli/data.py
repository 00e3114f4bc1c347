"""`ssdg data`: list, fetch, describe, verify and unpack image data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

if TYPE_CHECKING:
    from rich.table import Table

    from ..data.verify import Description
from ..errors import UserError

app = App(name="data", help="List and fetch known benchmarks; describe, count and verify folders of images.")
app.command("ssdg.cli.data:fetch", name="fetch", help="Download a benchmark, unpack it and check it.")
Json = Annotated[bool, Parameter(name="--json", negative=())]


@app.command(name="list")
def list_datasets(*, as_json: Json = False) -> None:
    """Show the benchmarks that are known by name.

    Parameters
    ----------
    as_json
        Print JSON instead of a table.
    """
    from ..data.catalog import CATALOG

    if as_json:
        _print_json([_dataset_json(dataset) for dataset in CATALOG])
        return
    from rich.console import Console
    from rich.table import Table

    console, table = Console(), Table("benchmark", "domains", "classes", "images", "size")
    for dataset in CATALOG:
        domains = ", ".join(f"{entry.name} ({entry.short})" for entry in dataset.domains)
        counts = [entry.num_images for entry in dataset.domains if entry.num_images]
        images = f"{sum(counts):,}" if len(counts) == len(dataset.domains) else "-"
        table.add_row(dataset.name, domains, str(len(dataset.classes)), images, str(dataset.image_size))
    console.print(table)
    for dataset in CATALOG:
        console.print(f"{dataset.name}: {dataset.get} (licence: {dataset.licence})", markup=False)


def _dataset_json(dataset: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(dataset) | {"tasks": dataset.tasks}


def _found(root: Path) -> Path:
    """A folder or archive as given; where there is none, the embedded data set of that name."""
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
    """Write images of .npz files as folders of PNG files, one per class: what data of your own look like.

    Parameters
    ----------
    root
        A folder of .npz files, or an embedded one: digits, web-digits.
    to
        The folder to make: DOMAIN/CLASS/N.png.
    per_class
        Images of each class and domain.  [default: all]
    """
    from ..data.sources.npz import unpack_arrays

    counts = unpack_arrays(_found(root), to, per_class)
    told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
    print(f"{sum(counts.values()):,} images in {to}: {told}")


@app.command
def describe(root: Path, *, as_json: Json = False) -> None:
    """Show the domains, classes, image sizes and split lists that are found under a root.

    Parameters
    ----------
    root
        A folder or a .zip archive, or an embedded one: digits, web-digits.
    as_json
        Print JSON instead of tables.
    """
    from ..data import verify as checks
    from ..data.verify import count_images
    from .data_tables import count_table

    found = checks.describe(_found(root))
    if as_json:
        _print_json(_description_json(found))
        return
    from rich.console import Console

    console = Console()
    name = found.dataset.name if found.dataset else "none of the known benchmarks"
    console.print(f"layout: {found.benchmark.layout}", markup=False)
    console.print(f"known as: {name}", markup=False)
    console.print(count_table(count_images(found.benchmark)))
    console.print(_size_table(found))


def _size_table(found: Description) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table("domain", "sizes", "split lines")
    for domain in found.benchmark.domains:
        sizes = found.sizes[domain.name]
        most = [f"{width}x{height}" for width, height in list(sizes)[:3]]
        more = f" and {len(sizes) - 3} other sizes" if len(sizes) > 3 else ""
        lines = domain.split_lines or {split: len(rows) for split, rows in domain.splits.items()}
        splits = ", ".join(f"{split} {count}" for split, count in lines.items()) or "-"
        table.add_row(escape(domain.name), ", ".join(most) + more, splits)
    return table


def _description_json(found: Description) -> dict[str, Any]:
    return {
        "layout": found.benchmark.layout,
        "known_as": found.dataset.name if found.dataset else None,
        "domains": [
            {
                "name": domain.name,
                "images": len(domain.items),
                "classes": domain.counts(),
                "sizes": {f"{width}x{height}": n for (width, height), n in found.sizes[domain.name].items()},
                "splits": {split: len(rows) for split, rows in domain.splits.items()},
                "split_lines": dict(domain.split_lines),
            }
            for domain in found.benchmark.domains
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
    """Count images by class and domain, with the rate of those that belong to no class where it is told.

    Folders named ood tell it: web/dog/ood holds what a search for dog gave and is none, web/ood what is of no class.
    So does an .npz file with web_labels; its images are counted by these.

    Parameters
    ----------
    root
        A folder or a .zip archive, or an embedded one: digits, web-digits.
    format_
        text, markdown, latex or csv.
    as_json
        Print JSON instead.
    out
        The file to write, instead of the terminal.
    """
    from ..data.sources.benchmark import read_benchmark
    from ..data.verify import count_images
    from ..files import write_text
    from . import data_tables as data_display

    counted = count_images(read_benchmark(_found(root)))
    made = data_display.as_json(counted) if as_json else data_display.render(counted, format_)
    if out is not None:
        write_text(out, made)
    else:
        print(made, end="")


@app.command
def verify(root: Path, *, as_json: Json = False) -> int:
    """Decode every image under a root and tell what is wrong; exit with 1 if anything is.

    Parameters
    ----------
    root
        A folder or a .zip archive, or an embedded one: digits, web-digits.
    as_json
        Print JSON instead of a table.
    """
    from dataclasses import asdict

    from ..data import verify as checks
    from .data_tables import print_findings

    findings = checks.verify(_found(root))
    if as_json:
        _print_json([asdict(finding) for finding in findings])
    else:
        print_findings(findings)
    return int(bool(findings))


SPOILING = ("count", "unreadable", "missing", "classes")  # findings that a published data set does not have


def fetch(
    name: str,
    *,
    to: Path | None = None,
    from_: Annotated[list[Path] | None, Parameter(name="--from", consume_multiple=True, negative=())] = None,
    source: str | None = None,
) -> int:
    """Download a benchmark, unpack it, lay it out for --data and check it; a stopped fetch goes on.

    Exits with 1 if images are missing, miscounted or cannot be read.

    Parameters
    ----------
    name
        pacs, office-home, digits-dg, pacs-web or office-web.
    to
        The new folder.  [default: the name of the benchmark, here]
    from_
        Archives on this disk (.zip, .tar, .tar.gz) instead of the network; several if the benchmark lies in several.
    source
        The number of one of the known sources, or an address.  [default: all known ones in turn]
    """
    from rich.console import Console

    from ..hub.download import Downloader
    from ..hub.fetch_dataset import Fetch
    from ..hub.published import chosen_sources, find_published

    if from_ and source:
        raise UserError("--from takes files of this disk and --source the network; give one of them")
    published = find_published(name)
    place = (to or Path(published.name)).expanduser().absolute()
    console = Console(highlight=False, soft_wrap=True)

    def say(text: str) -> None:
        console.print(text, markup=False)

    job = Fetch(published, place, Downloader(say=say), say=say)
    if from_:
        job.from_files([file.expanduser() for file in from_])
    else:
        job.from_sources(chosen_sources(published, source))
    say(f"{published.name} is in {place} (licence: {published.dataset.licence})")
    return check(place)


def check(root: Path) -> int:
    """Counts against the catalog and findings, as the other commands show them; 1 if the data set is not whole."""
    from rich.console import Console

    from ..data.sources.benchmark import read_benchmark
    from ..data.verify import count_images, verify
    from .data_tables import count_table, print_findings

    Console().print(count_table(count_images(read_benchmark(root))))
    findings = verify(root)
    print_findings(findings)
    return int(any(finding.kind in SPOILING for finding in findings))
