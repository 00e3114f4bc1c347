"""What `ssdg evaluate` shows."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

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
