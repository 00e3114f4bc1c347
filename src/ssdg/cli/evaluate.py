"""`ssdg evaluate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..data.sources.tree import Item
    from ..inference.classifier import Classifier
from rich.markup import escape
from rich.table import Table


def evaluate(
    model: Path,
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
    model
        The folder of a run that has ended, or of a model; or an .onnx file of ssdg export, which needs no torch.
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
    from ..data.cache import default_cache
    from .predict import load_classifier

    check_options(reject, curve)
    classifier = load_classifier(model, device, plugin)
    scores = score_folder(classifier, data, cache or default_cache(), reject)
    if curve is not None:
        from .charts import draw_coverage

        draw_coverage(scores["reject"], data.name, curve)
    if json_:
        print(json.dumps(scores, indent=2))
    else:
        show_scores(scores, curve)
    return 0


def check_options(reject: float | None, curve: Path | None) -> None:
    """Refuse what cannot be meant, before anything is read."""
    from ..bench.tables.paper_figures import check_picture
    from ..inference.rejection import check_share

    if reject is not None:
        check_share(reject)
    if curve is not None:
        if reject is None:
            raise UserError("--curve draws what rejecting gains, and --reject was not given; add --reject")
        check_picture(curve)


def show_scores(scores: dict[str, Any], curve: Path | None) -> None:
    """The tables and lines of `ssdg evaluate`."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(score_rows(scores))
    if report := scores.get("reject"):
        console.print(coverage_rows(report))
        for line in rejection_lines(report, scores["images"]):
            console.print(line, markup=False, soft_wrap=True)
    if curve is not None:
        console.print(f"figure: {curve}", markup=False, soft_wrap=True)


def score_folder(model: Classifier, data: Path, cache: Path, reject: float | None = None) -> dict[str, Any]:
    """Accuracy of each network, where it is told, of their mean, and of that per class; what rejecting does."""
    import numpy as np

    from ..data.cache import load_images
    from ..inference.rejection import share_of
    from ..inference.classifier import MOST, require_rejection
    from ..inference.rejection import rejection_report
    from ..inference.stream import Asked, joined

    rejection = require_rejection(model) if reject is not None else None
    items, truth = read_truth(model.classes, data, may_be_strange=reject is not None)
    found = load_images(items, model.size, cache, title=data.name)
    truth = truth[found.item]
    if not (truth >= 0).any():
        raise not_of_classes(data, "holds no readable image of a class", model.classes)
    asked, rows = Asked(model, MOST), np.arange(len(truth))
    answer = joined([asked.answer(found.images[part]) for part in np.split(rows, range(MOST, len(rows), MOST))])
    known = truth >= 0
    y, guess = truth[known], answer.probs.argmax(1)[known]
    right = guess == y
    votes = np.empty((0, len(y))) if answer.votes is None else answer.votes[:, known]
    told: dict[str, Any] = {
        "images": len(y),
        "unreadable": [list(pair) for pair in found.unreadable],
        "accuracy": {f"network_{n}": share_of(vote == y) for n, vote in enumerate(votes, 1)}
        | {"mean": share_of(right)},
        "per_class": {
            name: {"images": int((y == k).sum()), "accuracy": share_of(right[y == k])}
            for k, name in enumerate(model.classes)
            if (y == k).any()
        },
    }
    if rejection is not None and reject is not None and answer.scores is not None:
        told["reject"] = rejection_report(answer.scores[known], right, answer.scores[~known], rejection, reject)
    return told


def read_truth(
    classes: Sequence[str], data: Path, *, may_be_strange: bool
) -> tuple[tuple[Item, ...], NDArray[np.int64]]:
    """The images of a folder and the class of each, OOD of those that lie in a folder `ood` at any depth."""
    import numpy as np

    from ..data.hidden import OOD, UNKNOWN
    from ..data.sources.benchmark import is_ood, read_class_folder

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


SHOWN = tuple(range(100, 0, -10))  # coverages in the terminal, percent


def score_rows(scores: dict[str, Any]) -> Table:
    """`ssdg evaluate`: every network, their mean, and the mean per class."""
    title = f"accuracy on {scores['images']:,} images, %"
    table = Table("", "images", "accuracy", title=title, title_justify="left", title_style="bold")
    for name, value in scores["accuracy"].items():
        table.add_row(name.replace("_", " "), f"{scores['images']:,}", f"{value:.2f}")
    table.add_section()
    for name, row in scores["per_class"].items():
        table.add_row(escape(name), f"{row['images']:,}", f"{row['accuracy']:.2f}")
    if scores["unreadable"]:
        table.caption = f"{len(scores['unreadable'])} files could not be read and are left out"
    return table


def coverage_rows(report: dict[str, Any]) -> Table:
    """Accuracy against coverage: for some coverages the nearest that is no smaller."""
    table = Table("coverage, %", "accuracy, %")
    curve = dict(zip(report["curve"]["coverage"], report["curve"]["accuracy"], strict=True))
    rows = dict.fromkeys(min(c for c in curve if c >= wanted) for wanted in SHOWN)
    for coverage in rows:
        table.add_row(f"{coverage:.2f}", f"{curve[coverage]:.2f}")
    return table


def rejection_lines(report: dict[str, Any], images: int) -> list[str]:
    """What rejecting did, in words."""
    lines = [
        f"unknown: a score below {report['threshold']:g}, as at most {100 * report['share']:g} % of "
        f"{report['held_out']:,} held-out labeled images have",
        f"accepted {report['accepted']:,} of {images:,} images of a class ({report['coverage']:.2f} %); "
        f"{percent(report['accuracy'])} of them right; area under risk against coverage {report['area']:.2f} %",
    ]
    if ood := report.get("ood"):
        told = (
            f"rejected {ood['rejected']:,} of {ood['images']:,} images of no class: recall {percent(ood['recall'])}"
        )
        lines.append(f"{told}, precision {percent(ood['precision'])}; AUROC of the score {percent(ood['auroc'])}")
    return lines


def percent(value: float | None) -> str:
    """`12.34 %`, or `-` of nothing."""
    return "-" if value is None else f"{value:.2f} %"
