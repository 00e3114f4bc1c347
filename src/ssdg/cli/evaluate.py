"""The command `ssdg evaluate`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from ..errors import UserError, count_noun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..data.sources.tree import Item
    from ..inference.classifier import Classifier

COVERAGES = tuple(range(100, 0, -10))  # percent, rows of the table


def evaluate(
    model: Path,
    *,
    data: Path,
    reject: float | None = None,
    curve: Path | None = None,
    device: str = "auto",
    precision: str = "auto",
    cache: Path | None = None,
    plugin: Path | None = None,
    json_: bool = False,
) -> int:
    """Evaluate a trained run on a folder with class subfolders: every readable image, once.

    Parameters
    ----------
    model
        The folder of a finished run or of a model, or an .onnx file of ssdg export, which needs no torch.
    data
        A folder or .zip archive with one subfolder per class; with --reject also a folder ood of images of no class.
    reject
        Predict 'unknown' for images that look unknown, rejecting at most this fraction of known images; 0.05 without
        a number. Reports accuracy against coverage, and how well out-of-distribution (OOD) images are rejected.
    curve
        With --reject: plot accuracy against coverage into this file, .png or .svg.
    device
        auto, cpu, cuda or mps.
    precision
        fp32, bf16, or auto: bf16 if the machine is fast at it and a sample of the images keeps its predictions.
    cache
        The folder for decoded images.
    plugin
        The Python file with the run's method, if it is a custom one.
    json_
        Print JSON.
    """
    from ..data.cache import default_cache
    from ..data.sources.tree import check_root
    from .predict import load_classifier

    check_options(reject, curve)
    check_root(data)
    classifier = load_classifier(model, device, plugin, precision=precision)
    scores = score_folder(classifier, data, cache or default_cache(), reject)
    if curve is not None:
        from .charts import draw_coverage

        draw_coverage(scores["reject"], data.name, curve)
    if json_:
        print(json.dumps(scores, indent=2))
    else:
        print_scores(scores, curve)
    return 0


def check_options(reject: float | None, curve: Path | None) -> None:
    """Reject invalid options before anything is read."""
    from ..bench.tables.paper_figures import check_figure_path
    from ..inference.rejection import check_reject_rate

    if reject is not None:
        check_reject_rate(reject)
    if curve is not None:
        if reject is None:
            raise UserError("--curve plots the effect of --reject, which is missing; add --reject")
        check_figure_path(curve)


def score_folder(model: Classifier, data: Path, cache: Path, reject: float | None = None) -> dict[str, Any]:
    """Return the accuracy of each network, of their mean, and per class; with `reject` the effect of rejection."""
    import numpy as np

    from ..data.cache import load_images
    from ..inference.classifier import require_rejection
    from ..inference.rejection import rejection_report, share_of
    from ..inference.stream import answer_all

    rejection = require_rejection(model) if reject is not None else None
    items, truth = read_truth(model.classes, data, allow_ood=reject is not None)
    loaded = load_images(items, model.size, cache, resize=model.resize, title=data.name)
    truth = truth[loaded.item]
    if not (truth >= 0).any():
        raise unscorable(data, "contains no readable image of a class", model.classes)
    threshold = rejection.threshold(reject) if rejection is not None and reject is not None else None
    answer = answer_all(model, loaded.images.__getitem__, len(truth), threshold)
    is_known = truth >= 0
    y, predicted = truth[is_known], answer.probs.argmax(1)[is_known]
    is_correct = predicted == y
    votes = np.empty((0, len(y))) if answer.votes is None else answer.votes[:, is_known]
    scores: dict[str, Any] = {
        "images": len(y),
        "unreadable": [list(pair) for pair in loaded.unreadable],
        "accuracy": {f"network_{n}": share_of(vote == y) for n, vote in enumerate(votes, 1)}
        | {"mean": share_of(is_correct)},
        "per_class": {
            name: {"images": int((y == k).sum()), "accuracy": share_of(is_correct[y == k])}
            for k, name in enumerate(model.classes)
            if (y == k).any()
        },
    }
    if rejection is not None and reject is not None and answer.scores is not None:
        scores["reject"] = rejection_report(
            answer.scores[is_known], is_correct, answer.scores[~is_known], rejection, reject
        )
    return scores


def read_truth(classes: Sequence[str], data: Path, *, allow_ood: bool) -> tuple[tuple[Item, ...], NDArray[np.int64]]:
    """Read the images of a folder and the class of each; OOD for those in a folder `ood` at any depth."""
    import numpy as np

    from ..data.hidden import OOD, UNKNOWN
    from ..data.sources.benchmark import is_ood, read_class_folder

    domain, index = read_class_folder(data, data.name), {name: k for k, name in enumerate(classes)}
    in_ood = [any(is_ood(part) and part not in index for part in item.parts[:-1]) for item in domain.items]
    if any(in_ood) and not allow_ood:
        raise UserError(
            f"'{data}' has OOD images in a folder 'ood'; add --reject to see how many of them the model "
            "rejects, or remove the folder"
        )
    pairs = zip(domain.labels, in_ood, strict=True)
    truth = np.array([OOD if ood else index.get(label, UNKNOWN) for label, ood in pairs], np.int64)
    if other := sorted({domain.labels[row] for row in np.flatnonzero(truth == UNKNOWN)}):
        raise unscorable(data, f"has images in '{other[0] or '.'}', which is not a class", classes)
    if not (truth >= 0).any():
        raise unscorable(data, "contains no image of a class", classes)
    return domain.items, truth


def unscorable(data: Path, problem: str, classes: Sequence[str]) -> UserError:
    """Return the error for a folder that cannot be scored."""
    return UserError(f"'{data}' {problem}; give a folder whose subfolders are among {', '.join(classes)}")


def print_scores(scores: dict[str, Any], curve: Path | None) -> None:
    """Print the tables and lines of `ssdg evaluate`."""
    from ..terminal import Console

    console = Console(highlight=False)
    console.print(accuracy_table(scores))
    if report := scores.get("reject"):
        console.print(coverage_table(report))
        for line in rejection_lines(report, scores["images"]):
            console.print(line, markup=False, soft_wrap=True)
    if curve is not None:
        console.print(f"figure: {curve}", markup=False, soft_wrap=True)


def accuracy_table(scores: dict[str, Any]) -> Table:
    """Return the accuracy of every network, of their mean, and of the mean per class."""
    title = f"accuracy (%) on {count_noun(scores['images'], 'image')}"
    table = Table("", "images", "accuracy", title=title, title_justify="left", title_style="bold")
    for name, value in scores["accuracy"].items():
        table.add_row(name.replace("_", " "), f"{scores['images']:,}", f"{value:.2f}")
    table.add_section()
    for name, row in scores["per_class"].items():
        table.add_row(escape(name), f"{row['images']:,}", f"{row['accuracy']:.2f}")
    if scores["unreadable"]:
        table.caption = f"skipped {len(scores['unreadable'])} unreadable files"
    return table


def coverage_table(report: dict[str, Any]) -> Table:
    """Return accuracy against coverage, at the smallest coverage that is no less than each of `COVERAGES`."""
    table = Table("coverage (%)", "accuracy (%)")
    curve = dict(zip(report["curve"]["coverage"], report["curve"]["accuracy"], strict=True))
    rows = dict.fromkeys(min(c for c in curve if c >= coverage) for coverage in COVERAGES)
    for coverage in rows:
        table.add_row(f"{coverage:.2f}", f"{curve[coverage]:.2f}")
    return table


def rejection_lines(report: dict[str, Any], images: int) -> list[str]:
    """Return sentences about the threshold, the accepted images and the rejected ones."""
    lines = [
        f"unknown: score below {report['threshold']:g}, the threshold that rejects at most "
        f"{100 * report['share']:g} % of {report['held_out']:,} held-out labeled images",
        f"accepted {report['accepted']:,} of {images:,} images of a class ({report['coverage']:.2f} %), with an "
        f"accuracy of {percent(report['accuracy'])}; area under the risk-coverage curve {report['area']:.2f} %",
    ]
    if ood := report.get("ood"):
        lines.append(
            f"rejected {ood['rejected']:,} of {ood['images']:,} OOD images: recall {percent(ood['recall'])}, "
            f"precision {percent(ood['precision'])}; AUROC of the score {percent(ood['auroc'])}"
        )
    return lines


def percent(value: float | None) -> str:
    """Format as `12.34 %`; `-` for None."""
    return "-" if value is None else f"{value:.2f} %"
