"""`ssdg table`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter


def table(
    folder: Path,
    *,
    format_: Annotated[Literal["text", "markdown", "latex", "csv", "json"], Parameter(name="--format")] = "text",
    paper: Annotated[bool, Parameter(negative=())] = False,
    number: Literal["last-five", "final"] = "last-five",
    against: str | None = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> int:
    """Make the table of a benchmark folder: rows are methods by family, columns are tasks and their average.

    Cells that are not done are `-`, and so is an average that lacks a task. One row is tested against every other.

    Parameters
    ----------
    folder
        The folder that `ssdg bench` filled.
    format_
        text, markdown, latex, csv or json.
    paper
        Put the paper's numbers below ours.
    number
        last-five: mean of the last five epochs, as the paper reports. final: the last epoch.
    against
        The row that is tested against every other; eid, or the first of ours, if none is named.
    out
        The file to write, instead of the terminal.
    """
    from rich.console import Console

    from ..bench.formats import render
    from ..bench.results import read_results
    from ..bench.tables import make_table
    from ..bench.text import print_table
    from ..files import write_text

    made = make_table(read_results(folder), number, paper=paper, against=against)
    console = Console()
    if out is not None:
        write_text(out, render(made, format_))
    elif format_ == "text" and console.is_terminal:
        print_table(made, console)
    else:
        print(render(made, format_), end="")
    return 0
