"""The statistics of a data set in one of their formats, classes down, domains across; and what is wrong with it."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.table import Table

    from ..data.verify import Count, DomainCount, Finding, Statistics

Format = Literal["text", "markdown", "latex", "csv"]
Cells = list[str]
NO_CLASS, ALL, MISSING = "(no class)", "all", "-"
MOST_OF_A_KIND = 20  # rows in the table of findings


def render(told: Statistics, form: Format) -> str:
    """The statistics in one of the formats, with a line end."""
    from ..bench.tables.formats import pipes, tabular, tex, tex_row
    from ..bench.tables.text import plain

    if form == "csv":
        return comma_separated(told)
    head, body, foot = header(told), class_rows(told), total_rows(told)
    if form == "markdown":
        safe = [[cell.replace("|", "\\|") for cell in cells] for cells in (head, *body, *foot)]
        return f"{caption(told)}\n\n{pipes(safe[0], safe[1:], left=1)}\n"
    if form == "latex":
        groups = ["\n".join(tex_row([tex(cell) for cell in cells]) for cells in part) for part in (body, foot)]
        made = tabular(tex(caption(told)), [tex(cell) for cell in head], groups, left=1)
        return f"% \\usepackage{{booktabs, graphicx}}\n{made}\n"
    return plain(lambda console: console.print(count_table(told), caption(told)))


def caption(told: Statistics) -> str:
    """What the numbers are."""
    images = sum(domain.total.images for domain in told.domains)
    known = f", known as {told.dataset.name}" if told.dataset else ""
    ood = any(domain.total.ood is not None for domain in told.domains)
    return f"{images:,} images{known}." + (" OOD: images that belong to no class." if ood else "")


def count_table(told: Statistics) -> Table:
    """For a terminal."""
    from rich.table import Table
    from rich.text import Text

    head = header(told)
    table = Table(head[0])
    for name in head[1:]:
        table.add_column(Text(name), justify="right")
    for cells in class_rows(told):
        table.add_row(*map(Text, cells))
    table.add_section()
    for cells in total_rows(told):
        table.add_row(*map(Text, cells))
    return table


def print_findings(findings: Sequence[Finding]) -> None:
    """What `ssdg data verify` found, the first of each kind."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not findings:
        Console().print("all images can be read and nothing else was found")
        return
    table = Table("finding", "domain", "what")
    shown: Counter[str] = Counter()
    for finding in findings:
        shown[finding.kind] += 1
        if shown[finding.kind] <= MOST_OF_A_KIND:
            table.add_row(finding.kind, Text(finding.domain), Text(finding.text))
    Console().print(table)
    hidden = sum(max(count - MOST_OF_A_KIND, 0) for count in shown.values())
    Console().print(f"{len(findings)} findings" + (f", {hidden} not shown; --json has all" if hidden else ""))


def header(told: Statistics) -> Cells:
    """A column for every domain; two more for one whose folders tell OOD images."""
    return ["class", *(name for domain in told.domains for name in _columns(domain))]


def class_rows(told: Statistics) -> list[Cells]:
    """One row for every class, and for images without one."""
    return [
        [label or NO_CLASS, *(cell for domain in told.domains for cell in _cells(domain, domain.classes.get(label)))]
        for label in told.classes
    ]


def total_rows(told: Statistics) -> list[Cells]:
    """The sums, and below them what the catalog has where it knows the root."""
    rows = [[ALL, *(cell for domain in told.domains for cell in _cells(domain, domain.total))]]
    if told.dataset and any(domain.expected is not None for domain in told.domains):
        rows.append([f"in {told.dataset.name}", *(cell for domain in told.domains for cell in _expected(domain))])
    return rows


def comma_separated(told: Statistics) -> str:
    """One line for every domain and class, and for every domain as a whole; what is not known is empty."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["domain", "class", "images", "ood", "ood_percent", "expected"])
    for domain in told.domains:
        for label, count in domain.classes.items():
            writer.writerow([domain.name, label or NO_CLASS, *_numbers(count), None])
        writer.writerow([domain.name, f"({ALL})", *_numbers(domain.total), domain.expected])
    return file.getvalue()


def as_json(told: Statistics) -> str:
    """Everything; null where it is not known, and the class '' for images without one."""
    made = json.dumps(
        {
            "known_as": told.dataset.name if told.dataset else None,
            "domains": [
                {
                    "name": domain.name,
                    **_named(domain.total),
                    "expected": domain.expected,
                    "classes": {label: _named(count) for label, count in domain.classes.items()},
                }
                for domain in told.domains
            ],
        },
        indent=2,
        ensure_ascii=False,
    )
    return f"{made}\n"


def _columns(domain: DomainCount) -> Cells:
    ood = [f"{domain.name} OOD", "OOD, %"] if domain.total.ood is not None else []
    return [domain.name, *ood]


def _cells(domain: DomainCount, count: Count | None) -> Cells:
    numbers = _numbers(count) if count else [None, None, None]
    shown = [
        MISSING if value is None else f"{value:.2f}" if isinstance(value, float) else str(value) for value in numbers
    ]
    return shown[: len(_columns(domain))]


def _expected(domain: DomainCount) -> Cells:
    first = MISSING if domain.expected is None else str(domain.expected)
    return [first, *([MISSING] * (len(_columns(domain)) - 1))]


def _numbers(count: Count) -> list[int | float | None]:
    percent = count.ood_percent
    return [count.images, count.ood, None if percent is None else round(percent, 2)]


def _named(count: Count) -> dict[str, Any]:
    return dict(zip(("images", "ood", "ood_percent"), _numbers(count), strict=True))
