"""`ssdg web audit`: check a crawl before training on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import UserError, unknown

if TYPE_CHECKING:
    from ..data.sources.tree import Item
    from ..web.audit.audit_report import AuditReport
    from ..web.audit.label_issues import BackboneFeatures
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..web.audit.audit_report import AuditReport, ClassCount

Flag = Annotated[bool, Parameter(negative=())]


def audit(
    folder: Path,
    *,
    against: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    keep_leaks: Flag = False,
    similarity: Annotated[float, Parameter(validator=Number(gte=0.5, lte=1))] = 0.9,
    no_labels: Flag = False,
    backbone: str = "efficientnet-lite0",
    weights: str = "imagenet",
    size: Annotated[int, Parameter(validator=Number(gte=8, lte=1024))] = 160,
    run: Path | None = None,
    outlier_rate: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.1,
    refuse: str = "",
    annotations: Path | None = None,
    dry_run: Flag = False,
    device: str = "auto",
    cache: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> int:
    """Look a crawl over: damaged files, leaks, copies, web-labels that look wrong, images of no class.

    Damaged files, leaks and copies are taken out, that is, refused in DIR/manifest.csv; no file is deleted, and every
    audit decides anew. The rest is marked in the columns audit_... and shown in DIR/audit/contact-sheet.html.

    Parameters
    ----------
    folder
        The folder of ssdg web crawl or ssdg web ingest.
    against
        Labeled, target and validation images, which a crawl must not hold: folders, .zip archives and .npz files of
        any layout, or an embedded set (digits, web-digits).
    keep_leaks
        Only tell about copies of these images; they stay.
    similarity
        From which on two images are copies of each other, 1 being the same.
    no_labels
        Look for neither wrong web-labels nor outliers: no features are computed, cleanlab is not needed.
    backbone
        Whose features tell wrong web-labels and outliers.
    weights
        Its weights: imagenet, none or a file.
    size
        Side of its images, in pixels.
    run
        The folder of a run that has ended, or of a model: its networks instead of --backbone.
    outlier_rate
        Share of the images to mark as outliers, the farthest from others.
    refuse
        Also take out what is only marked, with commas between: label-issues, outliers, two-labels.
    annotations
        A CSV file with the columns path and ood (1 or 0), or path and class: gives the table of OOD images.
    dry_run
        Only tell; neither the manifest nor the contact sheet is written.
    device
        auto, cpu or cuda.
    cache
        Where decoded images are kept.  [default: $SSDG_CACHE or ~/.cache/ssdg]
    as_json
        Print JSON instead of tables.
    """
    from ..web.audit.audit_report import make_report, read_annotations
    from ..web.audit.auditor import Plan, apply
    from ..web.audit.auditor import audit as look_over
    from ..web.audit.contact_sheet import write_sheet
    from ..web.store import open_manifest

    words = check_refuse(refuse, no_labels)
    with open_manifest(folder, dry=dry_run) as (manifest, write):
        items = compared_items(against or [], folder, cache)
        extract = None if no_labels else load_features(backbone, weights, size, run, device, cache)
        told = look_over(folder, manifest, Plan(items, similarity, keep_leaks, words, outlier_rate, extract))
        truth = read_annotations(annotations, told.rows) if annotations else None
        sheet = None if dry_run else write_sheet(folder, told)
        write(apply(manifest, told))
    return tell(make_report(told, truth), folder, sheet, as_json=as_json)


def check_refuse(refuse: str, no_labels: bool) -> frozenset[str]:
    """The words of `--refuse`, checked."""
    from ..web.audit.auditor import REFUSABLE

    words = frozenset(word.strip() for word in refuse.split(",") if word.strip())
    for word in sorted(words):
        if word not in REFUSABLE:
            raise unknown("word of --refuse", word, tuple(REFUSABLE))
        if no_labels and word != "two-labels":
            raise UserError(f"--refuse {word} needs what --no-labels leaves out; drop one of them")
    return words


def compared_items(against: Sequence[str], folder: Path, cache: Path | None) -> list[Item]:
    """Every image of `--against`, but for those of the crawl itself, which may lie below."""
    from ..data.sources.benchmark import every_image
    from ..engine.setup import default_cache, find_root

    own, found = folder.resolve(), []
    for given in against:
        root = None if Path(given).exists() else find_root({"data": given}, cache or default_cache())
        items = [item for item in every_image(root or Path(given)) if not _is_below(item, own)]
        if not items:
            raise UserError(
                f"'{given}' holds no image beside the crawl; give the labeled, target or validation images"
            )
        start = "" if given.endswith(".npz") else f"{Path(given).resolve().name}/"
        found += [replace(item, path=f"{start}{item.path}") for item in items]
    return found


def _is_below(item: Item, folder: Path) -> bool:
    return Path(item.file).resolve().is_relative_to(folder)


def load_features(
    backbone: str, weights: str, size: int, run: Path | None, device: str, cache: Path | None
) -> BackboneFeatures:
    """The networks that give features, refused before any image is read if they cannot be had."""
    from ..artifact.load import load_model
    from ..engine.setup import default_cache, try_backbone
    from ..machine import start_machine
    from ..models.backbones import backbones_of, build_backbone
    from ..web.audit.label_issues import BackboneFeatures, check_installed

    check_installed()
    place = cache or default_cache()
    if run is not None:
        model = load_model(run, device)
        return BackboneFeatures(backbones_of(model.learner.nets), model.size, place, model.device)
    try_backbone(backbone, weights, size, device)
    net = build_backbone(backbone, weights).to(start_machine(device).device)
    return BackboneFeatures([net], size, place, start_machine(device).device)


def tell(report: AuditReport, folder: Path, sheet: Path | None, *, as_json: bool) -> int:
    """Print the report; a class of which nothing is left is told on stderr, and is a failure."""
    from . import FAILED, complain

    if as_json:
        import json

        where = {"folder": str(folder), "sheet": str(sheet) if sheet else None}
        print(json.dumps({**where, **report.as_json()}, indent=2, ensure_ascii=False))
    else:
        print_report(report, folder, sheet)
    if report.empty:
        return complain(f"nothing is left of {', '.join(report.empty)}; the manifest tells why, file by file", FAILED)
    return 0


LISTED = 10  # findings of a kind
COLUMNS = {
    "images": "images",
    "damaged": "damaged",
    "duplicates": "copies",
    "leaks": "leaks",
    "label_issues": "label issues",
    "outliers": "outliers",
    "kept": "kept",
}
HEADINGS = {
    "damaged": "damaged files",
    "leak": "leaks: copies of images of --against",
    "duplicate": "same content twice",
    "near-duplicate": "copies within the crawl",
}
AGREEMENT = {
    "outlier_auroc": "AUROC of the outlier score for images of no class",
    "outliers_of_no_class": "of the images marked as outliers, of no class",
    "label_issues_right": "of the label issues in images of a class, right",
    "wrong_web_labels_found": "of the wrong web-labels, marked",
    "suggested_right": "of these, the suggestion is right",
}


def print_report(report: AuditReport, folder: Path, sheet: Path | None) -> None:
    """Print it all."""
    console = Console(highlight=False)
    console.print(count_table(report))
    for kind, heading in HEADINGS.items():
        found = [one for one in report.found if one["kind"] == kind]
        if found:
            _print_found(console, heading, found)
    if report.ood:
        console.print(ood_table(report.ood))
    for key, words in AGREEMENT.items():
        if report.agreement and report.agreement[key] is not None:
            console.print(f"{words}: {report.agreement[key]:.1f} %")
    for note in report.notes:
        console.print(Text(note))
    if number := report.total.two_labels:
        console.print(f"{number:,} images were found by several web-labels, see audit_other_labels")
    if sheet is None:
        console.print(Text(f"dry run: '{folder}' is as it was"))
    else:
        console.print(Text(f"pictures: {sheet}"), soft_wrap=True)


def count_table(report: AuditReport) -> Table:
    """Images by web-label; `-` where nothing was looked for."""
    table = Table("web-label")
    for name in COLUMNS.values():
        table.add_column(name, justify="right")
    for one in report.classes:
        table.add_row(*_cells(one), style="" if one.kept else "bold red")
    if len(report.classes) > 1:
        table.add_section()
        table.add_row(*_cells(report.total))
    return table


def _cells(one: ClassCount) -> list[Text]:
    numbers = [getattr(one, name) for name in COLUMNS]
    return [Text(one.label or "(none)"), *(Text("-" if number is None else f"{number:,}") for number in numbers)]


def ood_table(lines: Sequence[dict[str, Any]]) -> Table:
    """The paper's table of images of no class."""
    table = Table("web-label")
    for name in ("images", "OOD", "OOD, %"):
        table.add_column(name, justify="right")
    for number, line in enumerate(lines, 1):
        if number == len(lines):
            table.add_section()
        percent = "-" if line["ood_percent"] is None else f"{line['ood_percent']:.2f}"
        table.add_row(Text(line["label"]), f"{line['images']:,}", f"{line['ood']:,}", percent)
    return table


def _print_found(console: Console, heading: str, found: Sequence[dict[str, Any]]) -> None:
    stay = sum(not one["taken_out"] for one in found)
    console.print(Text(f"{heading}: {len(found):,}{f', of which {stay:,} stay' if stay else ''}", style="bold"))
    for one in found[:LISTED]:
        console.print(Text(f"  {one['path']}: {one['detail']}"), soft_wrap=True)
    if len(found) > LISTED:
        console.print(f"  and {len(found) - LISTED:,} more, in the manifest under audit_found")
