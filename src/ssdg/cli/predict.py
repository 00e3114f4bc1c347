"""`ssdg predict`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import Stopped

if TYPE_CHECKING:
    from ..inference.classifier import Classifier
    from ..inference.partial_output import Written
    from ..inference.stream import Job

Flag = Annotated[bool, Parameter(negative=())]


def predict(
    model: Path,
    *paths: str,
    out: Annotated[Path, Parameter(alias="-o")],
    reject: float | None = None,
    batch: Literal["auto"] | int = "auto",
    device: str = "auto",
    plugin: Path | None = None,
    threads: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    null: Flag = False,
    anew: Flag = False,
) -> int:
    """Classify images; the networks of a run are averaged. Unreadable files get a row with the reason.

    Stopped, the same command goes on where it was.

    Parameters
    ----------
    model
        The folder of a run that has ended, or of a model; or an .onnx file of ssdg export, which needs no torch.
    paths
        Images, folders of images, .zip archives, patterns in quotes such as 'photos/**/*.jpg', and - for a list of
        paths on standard input.
    out
        The file to write, .csv, .jsonl or .parquet: path, class, confidence, second guess and its confidence, error.
    reject
        Let the model answer 'unknown', losing at most this share of known images; without a number 0.05. The
        file then tells the likeliest class and the score of every image too.
    batch
        Images at once; auto: up to 128, by free memory and image size.
    device
        auto, cpu or cuda.
    plugin
        The Python file with the run's method, where it is one of your own.
    threads
        CPU threads of the networks.  [default: all cores]
    null
        The paths on standard input end with NUL characters, as find -print0 writes them.
    anew
        Begin again, even if a part of the file is there.
    """
    from ..inference.classifier import check_batch
    from ..inference.find_images import STDIN, check_words
    from ..inference.predictions import find_format
    from ..inference.rejection import check_share
    from ..inference.stream import Job, classify

    if reject is not None:
        check_share(reject)
    check_batch(batch)
    find_format(out)
    check_words(paths)
    job = Job(model, paths, out, reject, batch, plugin, null, anew)
    classifier = load_classifier(model, device, plugin, threads)
    listed = sys.stdin.buffer if STDIN in paths else None
    with progress_bar(job) as report:
        try:
            count = classify(job, classifier, listed, report)  # type: ignore[arg-type]  # typeshed knows no read1
        except KeyboardInterrupt:
            raise Stopped(f"stopped; what is done is in '{out}.part', and the same command goes on") from None
    print(told(count, out, rejecting=reject is not None))
    return 0


def load_classifier(model: Path, device: str, plugin: Path | None, threads: int | None = None) -> Classifier:
    """An exported file by onnxruntime, anything else by torch."""
    from ..inference.onnx_model import SUFFIX, load_onnx

    if model.suffix.lower() == SUFFIX and not model.is_dir():
        return load_onnx(model, device, threads)
    import torch

    from ..artifact.load import load_model

    if threads is not None:
        torch.set_num_threads(threads)
    return load_model(model, device, plugin)


def told(count: Written, out: Path, *, rejecting: bool) -> str:
    """The last line."""
    unknown = f", {count.unknown:,} of them unknown" if rejecting else ""
    note = f"; {count.unreadable:,} could not be read, see the column error" if count.unreadable else ""
    return f"{count.rows - count.unreadable:,} images classified into {out}{unknown}{note}"


@contextmanager
def progress_bar(job: Job) -> Iterator[Callable[[Written], None]]:
    """A bar on a terminal: images, images per second and, when they have been counted, the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield lambda count: None
        return
    columns = (
        TextColumn("predicting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("images · {task.fields[pace]}/s ·"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, pace="-")
        counter = threading.Thread(target=count_images, args=(job, lambda n: bar.update(task, total=n)), daemon=True)
        counter.start()
        start: list[tuple[float, int]] = []

        def report(count: Written) -> None:
            now = time.monotonic()
            start[:] = start or [(now, count.rows)]  # rows of an earlier process tell nothing of the pace
            seconds, rows = now - start[0][0], count.rows - start[0][1]
            bar.update(task, completed=count.rows, pace=f"{rows / seconds:,.0f}" if rows else "-")

        yield report


def count_images(job: Job, tell: Callable[[int], None]) -> None:
    """How many images there are, while the first of them are classified; of a list it cannot be known."""
    from ..inference.find_images import STDIN

    if STDIN not in job.words:
        tell(sum(1 for _ in job.find(None)))
