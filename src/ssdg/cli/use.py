"""`ssdg evaluate` and `ssdg predict`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..data.sources import Item
    from ..inference import Model


def predict(
    run: Path,
    *paths: Path,
    out: Annotated[Path, Parameter(alias="-o")],
    reject: float | None = None,
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
    reject
        Let the model answer 'unknown', losing at most this share of known images; without a number 0.05. The
        file then tells the likeliest class and the score of every image too.
    device
        auto, cpu or cuda.
    plugin
        The Python file with the run's method, where it is one of your own.
    """
    from rich.console import Console
    from rich.progress import track

    from ..engine.predictions import write_predictions
    from ..engine.unknown import check_share
    from ..inference import load_model

    if not paths:
        raise UserError("no images were given; name images, folders or .zip archives after the run folder")
    if reject is not None:
        check_share(reject)
    items = list(find_items(paths))
    model = load_model(run, device, plugin)
    console = Console(stderr=True, highlight=False)
    told = model.predict(items, reject)
    rows = track(told, "predicting", len(items), console=console, disable=not console.is_terminal)
    count = write_predictions(out, rows, rejecting=reject is not None)
    unknown = f", {count.unknown:,} of them unknown" if reject is not None else ""
    note = f"; {count.unreadable:,} could not be read, see the column error" if count.unreadable else ""
    print(f"{len(items) - count.unreadable:,} images classified into {out}{unknown}{note}")
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
    reject: float | None = None,
    curve: Path | None = None,
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
        A folder or .zip archive with one sub-folder per class; with --reject also a folder ood of images of no class.
    reject
        Let the model answer 'unknown', losing at most this share of known images; without a number 0.05. Tells
        accuracy against coverage, and how well images of no class are told.
    curve
        With --reject: draw accuracy against coverage into this file, .png or .svg.
    device
        auto, cpu or cuda.
    cache
        Where decoded images are kept.
    plugin
        The Python file with the run's method, where it is one of your own.
    json_
        Print JSON.
    """
    from ..engine.open import default_cache
    from ..inference import load_model

    check_options(reject, curve)
    model = load_model(run, device, plugin)
    scores = score_folder(model, data, cache or default_cache(), reject)
    if curve is not None:
        from .figure import draw_coverage

        draw_coverage(scores["reject"], data.name, curve)
    if json_:
        print(json.dumps(scores, indent=2))
    else:
        show_scores(scores, curve)
    return 0


def check_options(reject: float | None, curve: Path | None) -> None:
    """Refuse what cannot be meant, before anything is read."""
    from ..bench.figures import check_picture
    from ..engine.unknown import check_share

    if reject is not None:
        check_share(reject)
    if curve is not None:
        if reject is None:
            raise UserError("--curve draws what rejecting gains, and --reject was not given; add --reject")
        check_picture(curve)


def show_scores(scores: dict[str, Any], curve: Path | None) -> None:
    """The tables and lines of `ssdg evaluate`."""
    from rich.console import Console

    from .use_display import coverage_rows, rejection_lines, score_rows

    console = Console(highlight=False)
    console.print(score_rows(scores))
    if report := scores.get("reject"):
        console.print(coverage_rows(report))
        for line in rejection_lines(report, scores["images"]):
            console.print(line, markup=False, soft_wrap=True)
    if curve is not None:
        console.print(f"figure: {curve}", markup=False, soft_wrap=True)


def score_folder(model: Model, data: Path, cache: Path, reject: float | None = None) -> dict[str, Any]:
    """Accuracy of each network and of their mean, and of the mean per class; with `reject` what rejecting does."""
    import numpy as np
    import torch

    from ..data.cache import load_images
    from ..engine.evaluate import accuracies, mean_probs
    from ..engine.result import named
    from ..engine.unknown import known_scores, rejection_report

    rejection = model.require_rejection() if reject is not None else None
    items, truth = read_truth(model.classes, data, may_be_strange=reject is not None)
    found = load_images(items, model.size, cache, title=data.name)
    truth = truth[found.item]
    if not (truth >= 0).any():
        raise not_of_classes(data, "holds no readable image of a class", model.classes)
    parts = [
        model.logits(found.images[rows]) for rows in np.split(np.arange(len(truth)), range(256, len(truth), 256))
    ]
    logits, known = torch.cat(parts, dim=1), truth >= 0
    y, logits_known = truth[known], logits[:, known]
    right = mean_probs(logits_known).argmax(-1).numpy() == y
    told: dict[str, Any] = {
        "images": len(y),
        "unreadable": [list(pair) for pair in found.unreadable],
        "accuracy": named(accuracies(logits_known, y)),
        "per_class": {
            name: {"images": int((y == k).sum()), "accuracy": round(100 * float(right[y == k].mean()), 4)}
            for k, name in enumerate(model.classes)
            if (y == k).any()
        },
    }
    if rejection is not None and reject is not None:
        scores = known_scores(logits)
        told["reject"] = rejection_report(scores[known], right, scores[~known], rejection, reject)
    return told


def read_truth(
    classes: Sequence[str], data: Path, *, may_be_strange: bool
) -> tuple[tuple[Item, ...], NDArray[np.int64]]:
    """The images of a folder and the class of each, OOD of those that lie in a folder `ood` at any depth."""
    import numpy as np

    from ..data.folders import is_ood, read_class_folder
    from ..data.hidden import OOD, UNKNOWN

    domain, number = read_class_folder(data, data.name), {name: k for k, name in enumerate(classes)}
    strange = [any(is_ood(part) and part not in number for part in item.parts[:-1]) for item in domain.items]
    if any(strange) and not may_be_strange:
        raise UserError(
            f"'{data}' has images of no class in a folder 'ood'; add --reject to see how many of them the model "
            "takes for unknown, or take the folder away"
        )
    pairs = zip(domain.labels, strange, strict=True)
    truth = np.array([OOD if is_strange else number.get(label, UNKNOWN) for label, is_strange in pairs], np.int64)
    if other := sorted({domain.labels[row] for row in np.flatnonzero(truth == UNKNOWN)}):
        raise not_of_classes(data, f"has images in '{other[0] or '.'}'", classes)
    if not (truth >= 0).any():
        raise not_of_classes(data, "holds no image of a class", classes)
    return domain.items, truth


def not_of_classes(data: Path, told: str, classes: Sequence[str]) -> UserError:
    """The error for a folder that cannot be scored."""
    return UserError(f"'{data}' {told}; give a folder whose sub-folders are among {', '.join(classes)}")
