"""`ssdg data fetch`: a benchmark from where it is published, or from an archive that one has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import UserError

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
    from ..hub.fetch import Fetch
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

    from ..data.folders import read_benchmark
    from ..data.statistics import count_images
    from ..data.verify import verify
    from .data_display import count_table, print_findings

    Console().print(count_table(count_images(read_benchmark(root))))
    findings = verify(root)
    print_findings(findings)
    return int(any(finding.kind in SPOILING for finding in findings))
