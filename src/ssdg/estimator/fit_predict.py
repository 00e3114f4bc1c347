"""Implementation of `SSDG.fit` and `SSDG.predict`: inputs become folders and settings of a normal run."""

from __future__ import annotations

import hashlib
import json
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
from PIL import Image
from torch import Tensor

from ..artifact.load import BATCH, Model
from ..config import RunConfig, check_names
from ..data.hidden import Problem
from ..data.parallel import num_cores
from ..data.sources.benchmark import read_class_folder
from ..data.sources.tree import Reader
from ..display import Display, is_watched
from ..engine.budget import open_timed_run
from ..engine.events import Listener
from ..engine.run import run
from ..engine.setup import confirm_plugin, default_cache, open_run, with_full_paths
from ..engine.timing.forecast import forecast_run
from ..errors import Stopped, UserError, brief
from ..limits import MAX_THREADS
from ..machine import Machine, check_device, start_machine
from .image_content import read_pixels
from .input_folders import InputDigests, InputWriter, RunInputs, check_labels, class_folder, prepare_inputs
from .inputs import Images, Row, is_dataset, is_pair, is_path, is_source, read_folder, read_images
from .save_load import write_card

RUN_PARAMS = (
    "method",
    "backbone",
    "preset",
    "weights",
    "size",
    "seed",
    "discover_domains",
)  # parameters that are run settings
FIT_PARAMS = (
    "data",
    "labeled",
    "unlabeled",
    "target",
    "web",
    "web_label",
)  # run settings that are arguments of `fit`
INPUTS = "inputs"
RUN_ID = "{id}"  # in `out`: replaced by a digest of the data and the settings


@dataclass(frozen=True, eq=False)
class FitInputs:
    """Images of a run, and how keywords of crawls are used."""

    labeled: Any
    unlabeled: Any = None
    target: Any = None
    web: Any = None
    web_label: str = "ignored"


def join_labels(X: Any, y: Any) -> Any:
    """Return `X` if it has labels of its own and `y` is None, else (X, y)."""
    kinds = {"folder": is_path(X), "pair (images, labels)": is_pair(X), "dataset": is_dataset(X)}
    kind = next((name for name, is_kind in kinds.items() if is_kind), None)
    if kind is None and y is None:
        raise UserError(
            "fit requires y to be passed, but the target y is None; pass fit(X, y), or an X with labels: a folder of "
            "class folders or a dataset"
        )
    if kind is not None and y is not None:
        raise UserError(
            f"X is a {kind}, which has its own labels, so y must be None; pass unlabeled images by keyword, "
            "fit(X, unlabeled=...)"
        )
    return X if y is None else (X, y)


def fit_run(
    root: Path, params: Mapping[str, Any], inputs: FitInputs, callbacks: Sequence[Listener], *, is_temporary: bool
) -> Path:
    """Train or resume; return the run's folder: `root`, or a subfolder per run if `root` is temporary."""
    settings = run_settings(params)
    check_options(params, callbacks)
    confirm_plugin(settings)
    check_names(settings)
    if RUN_ID in str(root):
        root = Path(str(root).replace(RUN_ID, run_id(settings, params["minutes"], inputs)))
    writer = InputWriter(root / INPUTS, may_replace=is_temporary or not (root / "run.json").exists())
    prepared = prepare_inputs(writer, inputs.labeled, inputs.unlabeled, inputs.target, inputs.web)
    settings |= {"web_label": inputs.web_label, **prepared.settings}
    cache = Path(params["cache"]) if params["cache"] else default_cache()
    with use_threads(params["threads"]):
        config, problem = open_run(with_full_paths(settings), cache, device=params["device"])
        folder = root / f"{config.hash}-{problem.fingerprint}" if is_temporary else root
        machine = start_machine(params["device"], config.precision)
        if is_temporary and machine.world > 1:
            raise UserError("several processes need a common folder to train in, but out is None; set SSDG(out=...)")
        timing: dict[str, Any] = {}
        if params["minutes"] is not None:
            timed = open_timed_run(
                settings, config, problem, machine, folder, cache, float(params["minutes"]), params["device"]
            )
            config, problem = timed.config, timed.problem
            timing = {"minutes": float(params["minutes"]), "chosen": timed.chosen}
        train(config, problem, folder, machine, {**params, "cache": cache}, callbacks, timing)
    write_labels(folder / "model", prepared, problem, params)
    if is_temporary:
        remove_all_but(root, INPUTS, folder.name)
    return folder


def run_id(settings: Mapping[str, Any], minutes: float | None, inputs: FitInputs) -> str:
    """Return a digest of the settings and of all images, or of their folder's path."""
    sources = prepare_inputs(InputDigests(), inputs.labeled, inputs.unlabeled, inputs.target, inputs.web).settings
    values = {**settings, "web_label": inputs.web_label, "minutes": minutes, **sources}
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:12]


def remove_all_but(root: Path, *names: str) -> None:
    """Delete the runs of earlier fits, which are no longer needed."""
    for other in root.iterdir():
        if other.name not in names:
            shutil.rmtree(other, ignore_errors=True)


def run_settings(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, as in a YAML file."""
    extra = params["settings"]
    if extra is not None and not isinstance(extra, Mapping):
        raise UserError(f"settings={brief(extra)} is not a dict; pass for example settings={{'epochs': 5}}")
    extra = dict(extra or {})
    for name in extra:
        if name in RUN_PARAMS:
            raise UserError(f"'{name}' is a parameter and not allowed in settings; pass SSDG({name}=...)")
        if name in FIT_PARAMS:
            raise UserError(f"'{name}' is not allowed in settings; pass training data to fit")
    named = {name: params[name] for name in RUN_PARAMS if params[name] is not None}
    return {name: plain_value(value) for name, value in (extra | named).items()}


def plain_value(value: Any) -> Any:
    """Return a setting as a YAML file would have it: searches over parameters draw NumPy numbers."""
    match value:
        case np.generic():
            return value.item()
        case Path():
            return str(value)
        case Mapping():
            return {name: plain_value(inner) for name, inner in value.items()}
    return value


def check_options(params: Mapping[str, Any], callbacks: Sequence[Listener]) -> None:
    """Reject invalid options before any image is read."""
    check_device(params["device"])
    threads = params["threads"]
    is_number = isinstance(threads, int | np.integer) and not isinstance(threads, bool)
    if threads is not None and not (is_number and 1 <= threads <= MAX_THREADS):
        raise UserError(
            f"threads={brief(threads)} is not a number of threads; pass an integer from 1 to {MAX_THREADS}, or None"
        )
    minutes = params["minutes"]
    if minutes is not None and (isinstance(minutes, bool) or not isinstance(minutes, int | float | np.number)):
        raise UserError(f"minutes={minutes!r} is not a number of minutes; pass a number above 0, such as 10, or None")
    if callable(callbacks) or not all(map(callable, callbacks)):
        raise UserError("callbacks is not a list of functions; pass for example callbacks=[print]")


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Use this number of CPU threads inside the block; None changes nothing."""
    previous = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(operator.index(count))
    try:
        yield
    finally:
        torch.set_num_threads(previous)


def train(
    config: RunConfig,
    problem: Problem,
    folder: Path,
    machine: Machine,
    params: Mapping[str, Any],
    callbacks: Sequence[Listener],
    timing: Mapping[str, Any],
) -> None:
    """Run training, with a display on a terminal; raise `KeyboardInterrupt` if the user stops it."""
    options = {**{name: params[name] for name in ("device", "threads")}, "cache": str(params["cache"].absolute())}
    options |= timing
    try:
        with Display(folder, quiet=not (machine.is_main and is_watched())) as display:
            display.announce(config, problem)
            if machine.same("watched" if is_watched() else "") and not (folder / "result.json").exists():
                display.expect(forecast_run(config, problem, machine, params["cache"]))
            origin = {"command": "SSDG.fit", "options": options}  # so that `ssdg resume` works, too
            listeners = (display.hear, *callbacks)
            result = run(
                config,
                problem,
                folder,
                machine,
                listeners=listeners,
                provenance=origin,
                cache=params["cache"],
                probe=True,
            )
            display.conclude(result)
    except Stopped:
        raise KeyboardInterrupt(
            "stopped after a checkpoint; call fit again with the same arguments to resume"
        ) from None


def write_labels(model: Path, inputs: RunInputs, problem: Problem, params: Mapping[str, Any]) -> None:
    """Write the user's labels next to the networks, in the order of `classes_`."""
    if inputs.labels is None:
        labels = np.unique(problem.task.classes)
        write_card(model, labels, labels.tolist(), params)
    else:
        labels = np.unique(inputs.labels)
        write_card(model, labels, [class_folder(label) for label in labels.tolist()], params)


def read_inputs(inputs: Any) -> Images:
    """Read the images to predict: one image, a folder, or images in another form that `fit` accepts."""
    if isinstance(inputs, Image.Image) or (is_path(inputs) and Path(inputs).is_file() and not is_source(inputs)):
        inputs = [inputs]
    elif is_path(inputs):
        if not Path(inputs).exists():
            raise UserError(f"'{inputs}' does not exist; pass an image, a folder of images or a .zip archive")
        return read_folder(inputs, "X")
    return read_images(inputs, "X", "ignored")


def read_labeled_inputs(inputs: Any, names: Sequence[str]) -> tuple[Images, NDArray[np.int64]]:
    """Read the images to score, and the index of each image's class in `names`."""
    labels: Sequence[Any]
    if is_path(inputs):
        domain = read_class_folder(Path(inputs), "X")
        images = Images("X", len(domain.items), lambda n: (domain.items[n], domain.labels[n]))
        labels = domain.labels
    else:
        images = read_images(inputs, "X", "required")
        labels = [label for _, label in images]
        check_labels(list(labels), "X", "required")
    if not images.count:
        raise UserError(f"'{inputs}' contains no images; pass a folder with subfolders among {', '.join(names)}")
    index = {name: row for row, name in enumerate(names)}
    y = [index.get(str(label), index.get(class_folder(label), -1)) for label in labels]
    if -1 in y:
        label = labels[y.index(-1)]
        raise UserError(f"{brief(label)} is not a class of this model; pass labels among {', '.join(names)}")
    return images, np.array(y, np.int64)


def predict_logits(model: Model, images: Images) -> Tensor:
    """Return logits (networks, n, K); hold only one batch of images in memory."""
    parts, rows = [], enumerate(images)
    with Reader() as reader, ThreadPoolExecutor(num_cores()) as pool:

        def decode(row: tuple[int, Row]) -> NDArray[np.uint8]:
            return read_pixels(row[1][0], model.size, reader, f"image {row[0]} of {images.role}", model.resize)

        while batch := list(islice(rows, BATCH)):
            parts.append(model.logits(np.stack(list(pool.map(decode, batch)))))
    return torch.cat(parts, dim=1)
