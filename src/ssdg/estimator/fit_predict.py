"""What `SSDG.fit` and `SSDG.predict` do: inputs become folders and settings, then a run like any other."""

from __future__ import annotations

import operator
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..artifact.load import BATCH, Model
from ..config import RunConfig
from ..data.hidden import Problem
from ..data.parallel import num_cores
from ..data.sources.benchmark import read_class_folder
from ..data.sources.tree import Reader
from ..display import Display, is_watched
from ..engine.events import Listener
from ..engine.run import run
from ..engine.setup import default_cache, open_run, with_full_paths
from ..errors import Stopped, UserError
from ..machine import Machine, check_device, start_machine
from .input_folders import Parts, Writer, checked_labels, class_folder, place_parts
from .inputs import Images, Row, is_path, pixels_at, read_images, read_unlabeled_place
from .save_load import write_card

NAMED = (
    "method",
    "backbone",
    "preset",
    "weights",
    "size",
    "seed",
    "discover_domains",
)  # parameters that are settings of a run
PARTS = ("data", "labeled", "unlabeled", "target", "web", "web_label")  # settings that are arguments of `fit`
INPUTS = "inputs"


@dataclass(frozen=True, eq=False)
class Given:
    """The arguments of `fit` that name images."""

    labeled: Any
    unlabeled: Any = None
    target: Any = None
    web: Any = None
    web_label: str = "ignored"


def fit_in(
    root: Path, params: Mapping[str, Any], given: Given, callbacks: Sequence[Listener], *, is_temporary: bool
) -> Path:
    """Train, or go on training; returns the run's folder: `root` itself, or of a temporary root one for each run."""
    settings = settings_of(params)
    check_options(params, callbacks)
    writer = Writer(root / INPUTS, may_replace=is_temporary or not (root / "run.json").exists())
    parts = place_parts(writer, given.labeled, given.unlabeled, given.target, given.web)
    settings |= {"web_label": given.web_label, **parts.given}
    cache = Path(params["cache"]) if params["cache"] else default_cache()
    with threads_of(params["threads"]):
        config, problem = open_run(with_full_paths(settings), cache, device=params["device"])
        folder = root / f"{config.hash}-{problem.fingerprint}" if is_temporary else root
        machine = start_machine(params["device"], config.precision)
        if is_temporary and machine.world > 1:
            raise UserError("several processes train in one folder and none was given; give SSDG(out=...)")
        train(config, problem, folder, machine, {**params, "cache": cache}, callbacks)
    keep_labels(folder / "model", parts, problem, params)
    if is_temporary:
        remove_all_but(root, INPUTS, folder.name)
    return folder


def remove_all_but(root: Path, *names: str) -> None:
    """Runs of earlier fits take space and are not needed any more."""
    for other in root.iterdir():
        if other.name not in names:
            shutil.rmtree(other, ignore_errors=True)


def settings_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, as a YAML file would hold them."""
    more = params["settings"]
    if more is not None and not isinstance(more, Mapping):
        raise UserError(f"settings={more!r} is no dict; give for example settings={{'epochs': 5}}")
    more = dict(more or {})
    for name in more:
        if name in NAMED:
            raise UserError(f"'{name}' stands in settings and is a parameter; give SSDG({name}=...)")
        if name in PARTS:
            raise UserError(f"'{name}' stands in settings; what is trained on is given to fit")
    named = {name: params[name] for name in NAMED if params[name] is not None}
    if isinstance(named.get("seed"), np.integer):
        named["seed"] = int(named["seed"])
    return {name: str(value) if isinstance(value, Path) else value for name, value in (more | named).items()}


def check_options(params: Mapping[str, Any], callbacks: Sequence[Listener]) -> None:
    """Refuse before any image is read."""
    check_device(params["device"])
    threads = params["threads"]
    if threads is not None and (
        not isinstance(threads, int | np.integer) or isinstance(threads, bool) or threads < 1
    ):
        raise UserError(f"threads={threads!r} is no number of threads; give a whole number from 1 on, or None")
    if callable(callbacks) or not all(map(callable, callbacks)):
        raise UserError("callbacks is no list of functions; give for example callbacks=[print]")


@contextmanager
def threads_of(count: int | None) -> Iterator[None]:
    """This number of CPU threads, for a while."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(operator.index(count))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def train(
    config: RunConfig,
    problem: Problem,
    folder: Path,
    machine: Machine,
    params: Mapping[str, Any],
    callbacks: Sequence[Listener],
) -> None:
    """A run, shown where somebody watches; one that was asked to stop ends in a `KeyboardInterrupt`."""
    options = {**{name: params[name] for name in ("device", "threads")}, "cache": str(params["cache"].absolute())}
    try:
        with Display(folder, quiet=not (machine.is_main and is_watched())) as display:
            display.announce(config, problem)
            about = {"command": "SSDG.fit", "options": options}  # `ssdg resume` can go on, too
            result = run(config, problem, folder, machine, listeners=(display.hear, *callbacks), about=about)
            display.conclude(result)
    except Stopped:
        raise KeyboardInterrupt("stopped after a checkpoint; call fit again in the same way to go on") from None


def keep_labels(model: Path, parts: Parts, problem: Problem, params: Mapping[str, Any]) -> None:
    """Leave the user's own labels beside the networks, in the order of `classes_`."""
    if parts.labels is None:
        labels = np.unique(problem.task.classes)
        write_card(model, labels, labels.tolist(), params)
    else:
        labels = np.unique(parts.labels)
        write_card(model, labels, [class_folder(label) for label in labels.tolist()], params)


def read_plain(given: Any) -> Images:
    """Images to be predicted."""
    return read_unlabeled_place(given, "images") if is_path(given) else read_images(given, "images", "dropped")


def read_scored(given: Any, names: Sequence[str]) -> tuple[Images, NDArray[np.int64]]:
    """Images to be scored, and the place of each one's class among `names`."""
    labels: Sequence[Any]
    if is_path(given):
        domain = read_class_folder(Path(given), "labeled")
        images = Images("labeled", len(domain.items), lambda n: (domain.items[n], domain.labels[n]))
        labels = domain.labels
    else:
        images = read_images(given, "labeled", "needed")
        labels = [label for _, label in images]
        checked_labels(list(labels), "labeled", "needed")
    if not images.count:
        raise UserError(f"'{given}' holds no image; give a folder whose sub-folders are among {', '.join(names)}")
    place = {name: number for number, name in enumerate(names)}
    found = [place.get(str(label), place.get(class_folder(label), -1)) for label in labels]
    if -1 in found:
        odd = labels[found.index(-1)]
        raise UserError(f"{odd!r} is no class of this model; give labels among {', '.join(names)}")
    return images, np.array(found, np.int64)


def logits_of(model: Model, images: Images) -> Tensor:
    """(networks, n, K), batch by batch: no more than a batch of images is in memory."""
    parts, rows = [], enumerate(images)
    with Reader() as reader, ThreadPoolExecutor(num_cores()) as pool:

        def decode(row: tuple[int, Row]) -> NDArray[np.uint8]:
            return pixels_at(row[1][0], model.size, reader, f"image {row[0]} of {images.role}")

        while batch := list(islice(rows, BATCH)):
            parts.append(model.logits(np.stack(list(pool.map(decode, batch)))))
    return torch.cat(parts, dim=1)
