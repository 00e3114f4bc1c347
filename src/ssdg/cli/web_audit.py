"""`ssdg web audit`: check a crawl before training on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from ..errors import UserError, unknown
from ..files import real_path

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from ..data.sources.tree import Item
    from ..terminal import Console
    from ..web.audit.audit_report import AuditReport, ClassCount
    from ..web.audit.label_issues import BackboneFeatures

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
    """Audit a crawl: find damaged files, leaks, copies, wrong web-labels and images of no class.

    Damaged files, leaks and copies are refused in DIR/manifest.csv. No file is deleted, and every audit starts over.
    Other findings are marked in the columns audit_... and shown in DIR/audit/contact-sheet.html.

    Parameters
    ----------
    folder
        Folder written by ssdg web crawl or ssdg web ingest.
    against
        Labeled, target and validation images that the crawl must not contain: folders, .zip archives and .npz files
        of any layout, or an embedded dataset (digits, web-digits).
    keep_leaks
        Report copies of these images without removing them.
    similarity
        Minimum similarity of two copies; 1 means identical.
    no_labels
        Skip wrong web-labels and outliers: no features are computed, cleanlab is not needed.
    backbone
        Backbone whose features reveal wrong web-labels and outliers.
    weights
        Weights of the backbone: imagenet, none or a file.
    size
        Side length of its input images, in pixels.
    run
        Folder of a finished run or a model; its networks replace --backbone.
    outlier_rate
        Fraction of the images to mark as outliers: the farthest from all others.
    refuse
        Comma-separated marks to remove as well: label-issues, outliers, two-labels.
    annotations
        CSV file with the columns path and ood (1 or 0), or path and class; adds the table of OOD images.
    dry_run
        Print the report without writing the manifest or the contact sheet.
    device
        auto, cpu, cuda or mps.
    cache
        Cache folder of decoded images.  [default: $SSDG_CACHE or ~/.cache/ssdg]
    as_json
        Print JSON instead of tables.
    """
    from ..web.audit.audit_report import build_report, read_annotations
    from ..web.audit.auditor import AuditPlan, update_manifest
    from ..web.audit.auditor import audit as run_audit
    from ..web.audit.contact_sheet import write_contact_sheet
    from ..web.store import open_manifest

    refused_marks = parse_refuse(refuse, no_labels)
    with open_manifest(folder, dry=dry_run) as (manifest, write):
        items = list_images(against or [], folder, cache)
        extract = None if no_labels else load_features(backbone, weights, size, run, device, cache)
        plan = AuditPlan(items, similarity, keep_leaks, refused_marks, outlier_rate, extract)
        result = run_audit(folder, manifest, plan)
        truth = read_annotations(annotations, result.rows) if annotations else None
        sheet = None if dry_run else write_contact_sheet(folder, result)
        write(update_manifest(manifest, result))
    return print_outcome(build_report(result, truth), folder, sheet, as_json=as_json)


def parse_refuse(refuse: str, no_labels: bool) -> frozenset[str]:
    """Parse and validate the values of `--refuse`."""
    from ..web.audit.auditor import REFUSABLE

    names = frozenset(name.strip() for name in refuse.split(",") if name.strip())
    for name in sorted(names):
        if name not in REFUSABLE:
            raise unknown("value of --refuse", name, tuple(REFUSABLE))
        if no_labels and name != "two-labels":
            raise UserError(f"--refuse {name} does not work with --no-labels; remove one of them")
    return names


def list_images(against: Sequence[str], folder: Path, cache: Path | None) -> list[Item]:
    """List every image of `--against` except those of the crawl, whose folder may be inside."""
    from ..data.sources.benchmark import list_images
    from ..engine.setup import default_cache, find_root

    crawl, images = folder.resolve(), []
    for source in against:
        root = None if Path(source).exists() else find_root({"data": source}, cache or default_cache())
        items = [item for item in list_images(root or Path(source)) if not _is_below(item, crawl)]
        if not items:
            raise UserError(
                f"'{source}' contains no image outside the crawl; pass the labeled, target or validation images"
            )
        prefix = "" if source.endswith(".npz") else f"{Path(source).resolve().name}/"
        images += [replace(item, path=f"{prefix}{item.path}") for item in items]
    return images


def _is_below(item: Item, folder: Path) -> bool:
    return real_path(item.file).is_relative_to(folder)


def load_features(
    backbone: str, weights: str, size: int, run: Path | None, device: str, cache: Path | None
) -> BackboneFeatures:
    """Load the networks that compute features; fail before any image is read if they are unavailable."""
    from ..artifact.load import load_model
    from ..engine.setup import default_cache, try_backbone
    from ..machine import start_machine
    from ..models.backbones import backbones_of, build_backbone
    from ..web.audit.label_issues import BackboneFeatures, check_installed

    check_installed()
    cache_dir = cache or default_cache()
    if run is not None:
        model = load_model(run, device)
        return BackboneFeatures(backbones_of(model.learner.nets), model.size, cache_dir, model.device)
    try_backbone(backbone, weights, size, device)
    net = build_backbone(backbone, weights).to(start_machine(device).device)
    return BackboneFeatures([net], size, cache_dir, start_machine(device).device)


def print_outcome(report: AuditReport, folder: Path, sheet: Path | None, *, as_json: bool) -> int:
    """Print the report and return the exit code; a class without remaining images is a failure."""
    from . import FAILED, print_error

    if as_json:
        import json

        paths = {"folder": str(folder), "sheet": str(sheet) if sheet else None}
        print(json.dumps({**paths, **report.as_json()}, indent=2, ensure_ascii=False))
    else:
        print_report(report, folder, sheet)
    if report.empty:
        classes = ", ".join(report.empty)
        return print_error(f"no images left of {classes}; the manifest lists the reason for each file", FAILED)
    return 0


MAX_LISTED = 10  # findings of each kind
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
    "leak": "leaks (copies of images of --against)",
    "duplicate": "exact duplicates within the crawl",
    "near-duplicate": "near-duplicates within the crawl",
}
AGREEMENT = {
    "outlier_auroc": "AUROC of the outlier score for images of no class",
    "outliers_of_no_class": "outlier precision (images marked as outliers that belong to no class)",
    "label_issues_right": "label issue precision (marked web-labels that are wrong, images of a class)",
    "wrong_web_labels_found": "label issue recall (wrong web-labels that are marked)",
    "suggested_right": "suggestion accuracy (of the wrong web-labels that are marked)",
}


def print_report(report: AuditReport, folder: Path, sheet: Path | None) -> None:
    """Print the report as tables and lists."""
    from rich.text import Text

    from ..terminal import Console

    console = Console(highlight=False)
    console.print(count_table(report))
    for kind, heading in HEADINGS.items():
        findings = [finding for finding in report.findings if finding["kind"] == kind]
        if findings:
            _print_findings(console, heading, findings)
    if report.ood:
        console.print(ood_table(report.ood))
    for key, description in AGREEMENT.items():
        if report.agreement and report.agreement[key] is not None:
            console.print(f"{description}: {report.agreement[key]:.1f} %")
    for note in report.notes:
        console.print(Text(note))
    if num_images := report.total.two_labels:
        console.print(f"{num_images:,} images have several web-labels, see the column audit_other_labels")
    if sheet is None:
        console.print(Text(f"dry run: '{folder}' was not changed"))
    else:
        console.print(Text(f"contact sheet: {sheet}"), soft_wrap=True)


def count_table(report: AuditReport) -> Table:
    """Build the table of images by web-label; `-` means not checked."""
    from rich.table import Table

    table = Table("web-label")
    for name in COLUMNS.values():
        table.add_column(name, justify="right")
    for count in report.classes:
        table.add_row(*_cells(count), style="" if count.kept else "bold red")
    if len(report.classes) > 1:
        table.add_section()
        table.add_row(*_cells(report.total))
    return table


def _cells(count: ClassCount) -> list[Text]:
    from rich.text import Text

    numbers = [getattr(count, name) for name in COLUMNS]
    return [Text(count.label or "(none)"), *(Text("-" if number is None else f"{number:,}") for number in numbers)]


def ood_table(lines: Sequence[dict[str, Any]]) -> Table:
    """Build the table of the paper: images of no class by web-label."""
    from rich.table import Table
    from rich.text import Text

    table = Table("web-label")
    for name in ("images", "OOD", "OOD, %"):
        table.add_column(name, justify="right")
    for number, line in enumerate(lines, 1):
        if number == len(lines):
            table.add_section()
        percent = "-" if line["ood_percent"] is None else f"{line['ood_percent']:.2f}"
        table.add_row(Text(line["label"]), f"{line['images']:,}", f"{line['ood']:,}", percent)
    return table


def _print_findings(console: Console, heading: str, findings: Sequence[dict[str, Any]]) -> None:
    from rich.text import Text

    num_kept = sum(not finding["taken_out"] for finding in findings)
    kept = f", {num_kept:,} of them kept" if num_kept else ""
    console.print(Text(f"{heading}: {len(findings):,}{kept}", style="bold"))
    for finding in findings[:MAX_LISTED]:
        console.print(Text(f"  {finding['path']}: {finding['detail']}"), soft_wrap=True)
    if len(findings) > MAX_LISTED:
        console.print(f"  and {len(findings) - MAX_LISTED:,} more, see the column audit_found of the manifest")
