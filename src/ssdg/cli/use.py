"""`ssdg evaluate` and `ssdg predict`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import UserError

if TYPE_CHECKING:
    from ..data.sources import Item


def predict(
    run: Path,
    *paths: Path,
    out: Annotated[Path, Parameter(alias="-o")],
    device: str = "auto",
    plugin: Path | None = None,
) -> int:
    """Classify images; the networks of the run are averaged. Unreadable files get a row with the reason.

    Parameters
    ----------
    run
        The folder of a run that has ended, or of a model.
    paths
        Images, folders of images and .zip archives.
    out
        The CSV file to write: path, class, confidence, second guess and its confidence, error.
    device
        auto, cpu or cuda.
    plugin
        The Python file with the run's method, where it is one of your own.
    """
    from rich.console import Console
    from rich.progress import track

    from ..engine.predictions import write_predictions
    from ..inference import load_model

    if not paths:
        raise UserError("no images were given; name images, folders or .zip archives after the run folder")
    items = list(find_items(paths))
    model = load_model(run, device, plugin)
    console = Console(stderr=True, highlight=False)
    rows = track(model.predict(items), "predicting", len(items), console=console, disable=not console.is_terminal)
    unreadable = write_predictions(out, rows)
    note = f"; {unreadable:,} could not be read, see the column error" if unreadable else ""
    print(f"{len(items) - unreadable:,} images classified into {out}{note}")
    return 0


def find_items(paths: tuple[Path, ...]) -> Iterator[Item]:
    """Every image under the paths, its path as the user would write it."""
    from dataclasses import replace

    from ..data.sources import Item, read_tree

    for path in paths:
        if path.is_file() and path.suffix.lower() != ".zip":
            yield Item(str(path), str(path))
            continue
        images = read_tree(path).images
        if not images:
            raise UserError(f"'{path}' holds no image; give images, a folder or a .zip archive of images")
        for item in images:
            yield replace(item, path=f"{path}/{item.path}")


def evaluate(
    run: Path,
    *,
    data: Path,
    device: str = "auto",
    cache: Path | None = None,
    plugin: Path | None = None,
    json_: bool = False,
) -> int:
    """Score a trained run on a folder with class sub-folders: every readable image, once.

    Parameters
    ----------
    run
        The folder of a run that has ended, or of a model.
    data
        A folder or .zip archive with one sub-folder per class.
    device
        auto, cpu or cuda.
    cache
        Where decoded images are kept.
    plugin
        The Python file with the run's method, where it is one of your own.
    json_
        Print JSON.
    """
    from rich.console import Console

    from ..engine.open import default_cache
    from ..inference import load_model
    from .display import score_rows

    model = load_model(run, device, plugin)
    scores = score_folder(model, data, cache or default_cache())
    if json_:
        print(json.dumps(scores, indent=2))
    else:
        Console(highlight=False).print(score_rows(scores))
    return 0


def score_folder(model: Any, data: Path, cache: Path) -> dict[str, Any]:
    """Accuracy of each network and of their mean, and of the mean per class."""
    import numpy as np
    import torch

    from ..data.cache import load_images
    from ..data.folders import read_class_folder
    from ..engine.evaluate import accuracies, mean_probs
    from ..engine.result import named

    domain = read_class_folder(data, data.name)
    strange = sorted(set(domain.labels) - set(model.classes))
    if strange or not domain.items:
        told = f"has images in '{strange[0] or '.'}'" if strange else "holds no image"
        raise UserError(f"'{data}' {told}; give a folder whose sub-folders are among {', '.join(model.classes)}")
    found = load_images(domain.items, model.size, cache, title=data.name)
    y = np.array([model.classes.index(domain.labels[i]) for i in found.item], np.int64)
    parts = [model.logits(found.images[rows]) for rows in np.split(np.arange(len(y)), range(256, len(y), 256))]
    logits = torch.cat(parts, dim=1)
    right = (mean_probs(logits).argmax(-1).numpy() == y).astype(float)
    return {
        "images": len(y),
        "unreadable": [list(pair) for pair in found.unreadable],
        "accuracy": named(accuracies(logits, y)),
        "per_class": {
            name: {"images": int((y == k).sum()), "accuracy": round(100 * float(right[y == k].mean()), 4)}
            for k, name in enumerate(model.classes)
            if (y == k).any()
        },
    }
