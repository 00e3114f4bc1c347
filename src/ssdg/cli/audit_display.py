"""An audit on the terminal: a table by web-label, what was found, and where to look further."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..web.audit_report import AuditReport, ClassCount

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
