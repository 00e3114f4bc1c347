"""`ssdg table` and `ssdg figure`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import UserError

DEFAULT_IMAGES = 1000  # in a panel of a t-SNE


def table(
    folder: Path,
    *,
    format_: Annotated[Literal["text", "markdown", "latex", "csv", "json"], Parameter(name="--format")] = "text",
    paper: Annotated[bool, Parameter(negative=())] = False,
    number: Literal["last-five", "final"] = "last-five",
    network: Literal["1", "2", "mean"] | None = None,
    against: str | None = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> int:
    """Print the table of a benchmark folder: rows are methods by family, columns are tasks and their average.

    `-` means that no cell is done, or that an average lacks a task. One row is tested against every other row.

    Parameters
    ----------
    folder
        The benchmark folder: the --out of `ssdg bench`.
    format_
        text, markdown, latex, csv or json.
    paper
        Show the paper's numbers below ours.
    number
        last-five: mean of the last five epochs, as in the paper. final: the last epoch.
    network
        Score network 1, network 2, or the mean of their probabilities. Methods with one network have that one.
        [default: 1, as the authors' release, for the paper's suites; mean for others]
    against
        The row to test against every other row.  [default: eid, or the first of family ours]
    out
        Write to this file instead of the terminal.
    """
    from ..bench.folder import read_results
    from ..bench.tables.formats import render
    from ..bench.tables.results_table import make_table
    from ..bench.tables.text import print_table
    from ..files import write_text
    from ..terminal import Console

    results_table = make_table(read_results(folder), number, network=network, paper=paper, against=against)
    console = Console()
    if out is not None:
        write_text(out, render(results_table, format_))
    elif format_ == "text" and console.is_terminal:
        print_table(results_table, console)
    else:
        print(render(results_table, format_), end="")
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
    plugin: Path | None = None,
) -> int:
    """Draw a figure of a benchmark folder, or the t-SNE of a run folder.

    Means are over the tasks and seeds that all rows in the figure have.

    Parameters
    ----------
    folder
        The benchmark folder: the --out of `ssdg bench`; for tsne the folder of a run of eid.
    kind
        pseudo-labels: pseudo-label accuracy per cycle. labels-target: pseudo-label accuracy against target accuracy.
        cycles, clean-rate, mix: target accuracy of rows that differ only in this setting.
        tsne: features per cycle, of the training domains in a labeler and of the unseen domain in network 1.
    out
        The image file to write, .png or .svg.
    number
        last-five: mean of the last five epochs, as in the paper. final: the last epoch.  [default: last-five]
    paper
        Add the paper's numbers for the same tasks, where it has them.
    unlabeled
        tsne: the unlabeled domain whose labeler is shown.  [default: the first]
    images
        tsne: number of images per panel.  [default: 1000]
    device
        tsne: auto, cpu, cuda or mps.
    cache
        tsne: folder for decoded images.  [default: that of the run]
    plugin
        tsne: the Python file of the run's custom method.  [default: that of the run, if you have named it before]
    """
    if kind == "tsne":
        reject_options("tsne", number=number, paper=paper or None)
        return draw_tsne(folder, out, unlabeled, images or DEFAULT_IMAGES, device, cache, plugin)
    reject_options(kind, unlabeled=unlabeled, images=images, cache=cache, plugin=plugin)
    from ..bench.folder import read_results
    from ..bench.tables.paper_figures import draw_figure

    print(f"figure: {draw_figure(read_results(folder), kind, out, number or 'last-five', paper=paper)}")
    return 0


def draw_tsne(
    folder: Path,
    out: Path,
    unlabeled: str | None,
    images: int,
    device: str,
    cache: Path | None,
    plugin: Path | None,
) -> int:
    """Draw the t-SNE of a run."""
    from ..bench.tables.paper_figures import check_figure_path
    from ..bench.tables.tsne import compute_evolution, draw_evolution

    check_figure_path(out)
    if (folder / "suite.json").exists():
        raise UserError(f"'{folder}' is a benchmark folder, but a t-SNE is of one run; {suggest_cell(folder)}")
    evolution = compute_evolution(
        folder, unlabeled=unlabeled, images=images, cache=cache, device=device, plugin=plugin
    )
    print(f"figure: {draw_evolution(evolution, out)}")
    return 0


def suggest_cell(folder: Path) -> str:
    """Return which cell to pass instead of its benchmark folder."""
    from ..bench.folder import read_results

    results = read_results(folder)
    audits = {name: result.pseudo_labels for name, result in results.by_cell.items()}
    has_labeler = {name for name, labelings in audits.items() if any(a.kind == "pseudo-labels" for a in labelings)}
    done = [cell for cell in results.grid.cells if cell.id in has_labeler]
    if not done:
        return "none of its finished cells has a labeler, as those of eid have"
    first = done[0]
    return f"pass a finished cell with a labeler, such as {folder}/cells/{first.id} ({first.task}, seed {first.seed})"


def reject_options(kind: str, **options: object) -> None:
    """Raise `UserError` if an option of another kind of figure is set."""
    for name, value in options.items():
        if value is not None:
            raise UserError(f"--{name} does not apply to the figure '{kind}'; leave it out")
