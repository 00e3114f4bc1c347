"""`ssdg table` and `ssdg figure`."""

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


def figure(
    folder: Path,
    kind: Literal["pseudo-labels", "labels-target", "cycles", "clean-rate", "mix"],
    *,
    out: Annotated[Path, Parameter(alias="-o")],
    number: Literal["last-five", "final"] = "last-five",
    paper: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Draw a figure of a benchmark folder. Every mean is over the tasks and seeds that all rows shown have.

    Parameters
    ----------
    folder
        The folder that `ssdg bench` filled.
    kind
        pseudo-labels: percent right per cycle. labels-target: pseudo-label accuracy against target accuracy.
        cycles, clean-rate, mix: target accuracy of rows that differ in this setting alone.
    out
        The picture to write, .png or .svg.
    number
        last-five: mean of the last five epochs, as the paper reports. final: the last epoch.
    paper
        Add the paper's numbers for the same tasks, where it has them.
    """
    from ..bench.figures import draw
    from ..bench.results import read_results

    print(f"figure: {draw(read_results(folder), kind, out, number, paper=paper)}")
    return 0
