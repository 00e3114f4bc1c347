"""Tables of dataset statistics (classes as rows, domains as columns) and of the findings of `ssdg data verify`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, Literal

from ..errors import count_noun
from ..safe_csv import write_rows

if TYPE_CHECKING:
    from rich.table import Table

    from ..data.verify import Count, DomainCount, Finding, Statistics

Format = Literal["text", "markdown", "latex", "csv"]
Cells = list[str]
NO_CLASS, ALL, MISSING = "(no class)", "all", "-"
MAX_PER_KIND = 20  # rows of the same kind in the table of findings


def render(statistics: Statistics, form: Format) -> str:
    """Render the statistics in one of the formats, with a trailing newline."""
    from ..bench.tables.formats import pipes, tabular, tex, tex_row
    from ..bench.tables.text import plain

    if form == "csv":
        return render_csv(statistics)
    head, body, foot = header(statistics), class_rows(statistics), total_rows(statistics)
    if form == "markdown":
        safe = [[cell.replace("|", "\\|") for cell in cells] for cells in (head, *body, *foot)]
        return f"{caption(statistics)}\n\n{pipes(safe[0], safe[1:], left=1)}\n"
    if form == "latex":
        groups = ["\n".join(tex_row([tex(cell) for cell in cells]) for cells in part) for part in (body, foot)]
        table = tabular(tex(caption(statistics)), [tex(cell) for cell in head], groups, left=1)
        return f"% \\usepackage{{booktabs, graphicx}}\n{table}\n"
    return plain(lambda console: console.print(count_table(statistics), caption(statistics)))


def caption(statistics: Statistics) -> str:
    """Return the caption of the table."""
    num_images = sum(domain.total.images for domain in statistics.domains)
    known = f", known as {statistics.dataset.name}" if statistics.dataset else ""
    has_ood = any(domain.total.ood is not None for domain in statistics.domains)
    return f"{count_noun(num_images, 'image')}{known}." + (" OOD: images that belong to no class." if has_ood else "")


def count_table(statistics: Statistics) -> Table:
    """Build the table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    head = header(statistics)
    table = Table(head[0])
    for name in head[1:]:
        table.add_column(Text(name), justify="right")
    for cells in class_rows(statistics):
        table.add_row(*map(Text, cells))
    table.add_section()
    for cells in total_rows(statistics):
        table.add_row(*map(Text, cells))
    return table


def print_findings(findings: Sequence[Finding], *, by_class: bool = False) -> None:
    """Print the findings of `ssdg data verify`, the first of each kind, by domain or by class."""
    from rich.table import Table
    from rich.text import Text

    from ..terminal import Console

    if not findings:
        Console().print("No issues found: all images can be read.")
        return
    table = Table("finding", "class" if by_class else "domain", "detail")
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.kind] += 1
        if counts[finding.kind] <= MAX_PER_KIND:
            table.add_row(finding.kind, Text(finding.domain or (NO_CLASS if by_class else "")), Text(finding.text))
    Console().print(table)
    num_hidden = sum(max(count - MAX_PER_KIND, 0) for count in counts.values())
    hidden = f", {num_hidden} not shown; use --json to list all" if num_hidden else ""
    Console().print(f"{count_noun(len(findings), 'finding')}{hidden}")


def header(statistics: Statistics) -> Cells:
    """Return the column names: one per domain, two more if its OOD images are known."""
    return ["class", *(name for domain in statistics.domains for name in _columns(domain))]


def class_rows(statistics: Statistics) -> list[Cells]:
    """Return one row per class, and one for images without a class."""
    return [
        [
            label or NO_CLASS,
            *(cell for domain in statistics.domains for cell in _cells(domain, domain.classes.get(label))),
        ]
        for label in statistics.classes
    ]


def total_rows(statistics: Statistics) -> list[Cells]:
    """Return the sums, and below them the counts of the catalog if the dataset is known."""
    rows = [[ALL, *(cell for domain in statistics.domains for cell in _cells(domain, domain.total))]]
    if statistics.dataset and any(domain.expected is not None for domain in statistics.domains):
        rows.append(
            [f"in {statistics.dataset.name}", *(cell for domain in statistics.domains for cell in _expected(domain))]
        )
    return rows


def render_csv(statistics: Statistics) -> str:
    """Render one line per domain and class, and one per domain; unknown values are empty."""
    rows: list[list[Any]] = [["domain", "class", "images", "ood", "ood_percent", "expected"]]
    for domain in statistics.domains:
        rows += [[domain.name, label or NO_CLASS, *_numbers(count), None] for label, count in domain.classes.items()]
        rows.append([domain.name, f"({ALL})", *_numbers(domain.total), domain.expected])
    file = StringIO()
    write_rows(file, rows, lineterminator="\n")
    return file.getvalue()


def as_json(statistics: Statistics) -> str:
    """Render everything as JSON; unknown values are null, and images without a class have the class ''."""
    text = json.dumps(
        {
            "known_as": statistics.dataset.name if statistics.dataset else None,
            "domains": [
                {
                    "name": domain.name,
                    **_count_json(domain.total),
                    "expected": domain.expected,
                    "classes": {label: _count_json(count) for label, count in domain.classes.items()},
                }
                for domain in statistics.domains
            ],
        },
        indent=2,
        ensure_ascii=False,
    )
    return f"{text}\n"


def _columns(domain: DomainCount) -> Cells:
    ood = [f"{domain.name} OOD", "OOD, %"] if domain.total.ood is not None else []
    return [domain.name, *ood]


def _cells(domain: DomainCount, count: Count | None) -> Cells:
    numbers = _numbers(count) if count else [None, None, None]
    cells = [
        MISSING if value is None else f"{value:.2f}" if isinstance(value, float) else str(value) for value in numbers
    ]
    return cells[: len(_columns(domain))]


def _expected(domain: DomainCount) -> Cells:
    first = MISSING if domain.expected is None else str(domain.expected)
    return [first, *([MISSING] * (len(_columns(domain)) - 1))]


def _numbers(count: Count) -> list[int | float | None]:
    percent = count.ood_percent
    return [count.images, count.ood, None if percent is None else round(percent, 2)]


def _count_json(count: Count) -> dict[str, Any]:
    return dict(zip(("images", "ood", "ood_percent"), _numbers(count), strict=True))
