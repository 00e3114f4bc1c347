"""`ssdg table` and `ssdg figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import UserError

IMAGES = 1000  # in a panel of a t-SNE


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

    from ..bench.folder import read_results
    from ..bench.tables.formats import render
    from ..bench.tables.results_table import make_table
    from ..bench.tables.text import print_table
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
    kind: Literal["pseudo-labels", "labels-target", "cycles", "clean-rate", "mix", "tsne"],
    *,
    out: Annotated[Path, Parameter(alias="-o")],
    number: Literal["last-five", "final"] | None = None,
    paper: Annotated[bool, Parameter(negative=())] = False,
    unlabeled: str | None = None,
    images: Annotated[int | None, Parameter(validator=Number(gte=12))] = None,
    device: str = "auto",
    cache: Path | None = None,
) -> int:
    """Draw a figure of a benchmark folder, or the t-SNE of a run folder.

    Every mean is over the tasks and seeds that all rows shown have.

    Parameters
    ----------
    folder
        The folder that `ssdg bench` filled; for tsne that of one run of eid.
    kind
        pseudo-labels: percent right per cycle. labels-target: pseudo-label accuracy against target accuracy.
        cycles, clean-rate, mix: target accuracy of rows that differ in this setting alone.
        tsne: features per cycle, a labeler's of the training domains and network 1's of the unseen domain.
    out
        The picture to write, .png or .svg.
    number
        last-five: mean of the last five epochs, as the paper reports. final: the last epoch.  [default: last-five]
    paper
        Add the paper's numbers for the same tasks, where it has them.
    unlabeled
        tsne: the unlabeled domain whose labeler is shown.  [default: the first]
    images
        tsne: how many images a panel shows.  [default: 1000]
    device
        tsne: auto, cpu or cuda.
    cache
        tsne: where decoded images are kept.  [default: as the run was started]
    """
    if kind == "tsne":
        refuse("tsne", number=number, paper=paper or None)
        return evolution(folder, out, unlabeled, images or IMAGES, device, cache)
    refuse(kind, unlabeled=unlabeled, images=images, cache=cache)
    from ..bench.folder import read_results
    from ..bench.tables.paper_figures import draw

    print(f"figure: {draw(read_results(folder), kind, out, number or 'last-five', paper=paper)}")
    return 0


def evolution(folder: Path, out: Path, unlabeled: str | None, images: int, device: str, cache: Path | None) -> int:
    """Draw the t-SNE of a run."""
    from ..bench.tables.paper_figures import check_picture
    from ..bench.tables.tsne import draw_evolution, evolution_of

    check_picture(out)
    if (folder / "suite.json").exists():
        raise UserError(f"'{folder}' is a benchmark, and a t-SNE is of one run; {cells_with_labelers(folder)}")
    made = evolution_of(folder, unlabeled=unlabeled, images=images, cache=cache, device=device)
    print(f"figure: {draw_evolution(made, out)}")
    return 0


def cells_with_labelers(folder: Path) -> str:
    """What to name instead of a benchmark folder."""
    from ..bench.folder import read_results

    results = read_results(folder)
    done = [cell for cell in results.grid.cells if cell.id in results.found and "apl" in cell.config]
    if not done:
        return "none of its finished cells is of eid"
    first = done[0]
    return f"name a finished cell of eid, such as {folder}/cells/{first.id} ({first.task}, seed {first.seed})"


def refuse(kind: str, **options: object) -> None:
    """An option of another kind of figure is a mistake, not to be passed over."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"--{name} says nothing of the figure '{kind}'; leave it out")
