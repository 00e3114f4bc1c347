"""The command `ssdg predict`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ..errors import Stopped, UserError, count_noun
from . import Threads

if TYPE_CHECKING:
    from ..inference.classifier import Classifier
    from ..inference.partial_output import RowCounts

Flag = Annotated[bool, Parameter(negative=())]


def predict(
    model: Path,
    *paths: str,
    out: Annotated[Path, Parameter(alias="-o")],
    reject: float | None = None,
    batch: Literal["auto"] | int = "auto",
    device: str = "auto",
    precision: str = "auto",
    plugin: Path | None = None,
    threads: Threads = None,
    null: Flag = False,
    anew: Flag = False,
) -> int:
    """Classify images by the averaged networks of a run. Unreadable files get a row with the reason.

    The same command resumes an interrupted one.

    Parameters
    ----------
    model
        The folder of a finished run or of a model, or an .onnx file of ssdg export, which needs no torch.
    paths
        Images, folders of images, .zip archives, quoted patterns such as 'photos/**/*.jpg', and - for a list of
        paths on standard input.
    out
        The file to write, .csv, .jsonl or .parquet: path, class, confidence, second class and its confidence, error.
    reject
        Predict 'unknown' for images that look unknown, rejecting at most this fraction of known images; 0.05 without
        a number. Adds the most likely class and the score of every image to the file.
    batch
        Images per batch; auto: up to 128, by free memory and image size.
    device
        auto, cpu, cuda or mps.
    precision
        fp32, bf16, or auto: fp32 for the first 512 images, then bf16 if the machine is fast at it and a sample of
        these keeps its predictions.
    plugin
        The Python file with the run's method, if it is a custom one.
    threads
        CPU threads of the networks.  [default: all cores]
    null
        The paths on standard input end with NUL characters, as find -print0 writes them.
    anew
        Start over, even if the file is partly written.
    """
    from ..inference.classifier import parse_batch
    from ..inference.find_images import STDIN, check_inputs
    from ..inference.predictions import find_format
    from ..inference.rejection import check_reject_rate
    from ..inference.stream import Job, classify

    if reject is not None:
        check_reject_rate(reject)
    parse_batch(batch)
    find_format(out)
    check_inputs(paths)
    job = Job(model, paths, out, reject, batch, plugin, null, anew, precision)
    classifier = load_classifier(model, device, plugin, threads, precision)
    path_list = sys.stdin.buffer if STDIN in paths else None
    with progress_bar(paths, "predicting") as report:
        try:
            counts = classify(job, classifier, path_list, report)  # type: ignore[arg-type]  # typeshed lacks read1
        except KeyboardInterrupt:
            raise Stopped(f"interrupted; finished rows are in '{out}.part', run the same command to resume") from None
    print(summarize(counts, out, rejecting=reject is not None))
    return 0


def load_classifier(
    model: Path, device: str, plugin: Path | None, threads: int | None = None, precision: str = "auto"
) -> Classifier:
    """Load an .onnx file with onnxruntime, anything else with torch."""
    from ..inference.agreement import check_precision
    from ..inference.onnx_model import SUFFIX, load_onnx
    from .early_checks import check_model

    check_precision(precision)
    if model.suffix.lower() == SUFFIX and not model.is_dir():
        if precision != "auto":
            raise UserError(
                f"--precision {precision} is for runs and model folders; an exported file computes in its own "
                "precision, so leave the option out"
            )
        return load_onnx(model, device, threads)
    check_model(model)
    import torch

    from ..artifact.load import load_model

    if threads is not None:
        torch.set_num_threads(threads)
    return load_model(model, device, plugin, precision)


def summarize(counts: RowCounts, out: Path, *, rejecting: bool) -> str:
    """Return the last line of the output."""
    unknown = f", {counts.unknown:,} of them unknown" if rejecting else ""
    note = f"; {counts.unreadable:,} could not be read, see the column error" if counts.unreadable else ""
    return f"{count_noun(counts.rows - counts.unreadable, 'image')} classified into {out}{unknown}{note}"


@contextmanager
def progress_bar(inputs: Sequence[str], title: str) -> Iterator[Callable[[RowCounts], None]]:
    """Show a bar on a terminal: images, images per second and, once they are counted, the time left."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from ..terminal import Console

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda counts: None
        return
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("images · {task.fields[speed]}/s ·"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, speed="-")
        on_total = partial(bar.update, task)
        counter = threading.Thread(target=count_images, args=(inputs, on_total), daemon=True)
        counter.start()
        start: list[tuple[float, int]] = []

        def report(counts: RowCounts) -> None:
            now = time.monotonic()
            start[:] = start or [(now, counts.rows)]  # rows of an earlier process do not count for the speed
            seconds, rows = now - start[0][0], counts.rows - start[0][1]
            bar.update(task, completed=counts.rows, speed=f"{rows / seconds:,.0f}" if rows else "-")

        yield report


def count_images(inputs: Sequence[str], on_total: Callable[..., None]) -> None:
    """Count the images while the first ones are processed; the length of a list is unknown."""
    from ..inference.find_images import STDIN, find_images

    if STDIN not in inputs:
        on_total(total=sum(1 for _ in find_images(inputs)))
