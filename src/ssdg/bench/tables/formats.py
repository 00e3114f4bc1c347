"""A results table as Markdown, LaTeX, CSV, JSON or text. The same table gives the same characters."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any, Literal

from .results_table import Entry, Line, Mark, Table
from .significance import Comparison
from .text import (
    Cells,
    arrow,
    comparison_cells,
    comparison_header,
    count,
    families,
    fixed,
    has_paper,
    paper_cells,
    plain_text,
    spread,
)

LEGEND = "Bold: best, underlined: second of a column."


def markdown(table: Table) -> str:
    """Tables as GitHub reads them: best bold, second underlined."""
    head = ["Family", "Method", *(arrow(column) for column in table.columns)]
    body = []
    for name, lines in families(table):
        rows = [cells for line in lines for cells in _markdown_rows(table, line)]
        body += [["" if place else name, *cells] for place, cells in enumerate(rows)]
    parts = [" ".join([*table.notes, LEGEND]), pipes(head, body)]
    if table.comparisons:
        rows = [[_code(cells[0]), *cells[1:]] for cells in map(comparison_cells, table.comparisons)]
        parts.append(pipes(comparison_header(table), rows, left=1))
    return "\n\n".join(parts) + "\n"


def _markdown_rows(table: Table, line: Line) -> list[Cells]:
    signs: dict[Mark, tuple[str, str]] = {"": ("", ""), "best": ("**", "**"), "second": ("<ins>", "</ins>")}

    def cell(entry: Entry) -> str:
        before, after = signs[entry.mark]
        return f"{before}{fixed(entry.mean)}{after}{spread(entry, ' ± ')}{count(table, entry)}"

    rows = [[_code(line.name), *(cell(line.entries[column]) for column in table.columns)]]
    return rows + ([["paper", *paper_cells(table, line)]] if has_paper(table, line) else [])


def _code(name: str) -> str:
    return f"`{name}`".replace("|", "\\|")


def pipes(head: Cells, body: list[Cells], *, left: int = 2) -> str:
    """A Markdown table; all but the first `left` columns are numbers."""
    ruler = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ruler, *body))


def latex(table: Table) -> str:
    """A table for `booktabs` and `multirow`, families in the first column; the tests in a second one."""
    head = ["", "Method", *(tex(column) for column in table.columns)]
    body = [_tex_family(table, name, lines) for name, lines in families(table)]
    notes = tex(" ".join([*table.notes, LEGEND]))
    parts = ["% \\usepackage{booktabs, graphicx, multirow}", tabular(notes, head, body, left=2)]
    if table.comparisons:
        rows = [tex_row([tex(cell) for cell in comparison_cells(c)]) for c in table.comparisons]
        told = "Paired tests over the tasks and seeds that both rows have, in points of percent."
        parts.append(tabular(told, [tex(cell) for cell in comparison_header(table)], ["\n".join(rows)], left=1))
    return "\n".join(parts) + "\n"


def _tex_family(table: Table, name: str, lines: list[Line]) -> str:
    rows = [cells for line in lines for cells in _tex_rows(table, line)]
    first = f"\\multirow{{{len(rows)}}}{{*}}{{{tex(name)}}}" if len(rows) > 1 else tex(name)
    return "\n".join(tex_row(["" if place else first, *cells]) for place, cells in enumerate(rows))


def _tex_rows(table: Table, line: Line) -> list[Cells]:
    signs: dict[Mark, str] = {"": "{}", "best": "\\textbf{{{}}}", "second": "\\underline{{{}}}"}

    def cell(entry: Entry) -> str:
        told = spread(entry, "$\\pm$") + count(table, entry)
        small = f" {{\\scriptsize {told.strip()}}}" if told else ""
        return signs[entry.mark].format(fixed(entry.mean)) + small

    rows = [[tex(line.name), *(cell(line.entries[column]) for column in table.columns)]]
    return rows + ([["\\quad paper", *paper_cells(table, line)]] if has_paper(table, line) else [])


def tex_row(cells: Cells) -> str:
    """A line of a `tabular`."""
    return " & ".join(cells) + " \\\\"


def tabular(caption: str, head: Cells, groups: Sequence[str], *, left: int) -> str:
    """A LaTeX table for `booktabs` and `graphicx`, a rule between the groups of lines."""
    return "\n".join(
        [
            "\\begin{table*}[t]",
            "\\centering",
            f"\\caption{{{caption}}}",
            "\\resizebox{\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi}{!}{%",  # no wider than the page
            f"\\begin{{tabular}}{{{'l' * left}{'r' * (len(head) - left)}}}",
            "\\toprule",
            tex_row(head),
            "\\midrule",
            "\n\\midrule\n".join(groups),
            "\\bottomrule",
            "\\end{tabular}}",
            "\\end{table*}",
        ]
    )


def tex(text: str) -> str:
    """Text with the signs that LaTeX reads otherwise written out."""
    special = {
        "\\": "\\textbackslash{}",
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        ">": "$\\rightarrow$",
        "±": "$\\pm$",
        "−": "$-$",
        "<": "$<$",
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    }
    return "".join(special.get(sign, sign) for sign in text)


Format = Literal["text", "markdown", "latex", "csv", "json"]


def render(table: Table, form: Format) -> str:
    """The table in one of the formats, with a line end."""
    return WRITERS[form](table)


def comma_separated(table: Table) -> str:
    """One line for every row and task, and for the row's average; what is not known is empty."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["row", "family", "task", "number", "seeds", "mean", "deviation", "paper", "mark"])
    for line in table.lines:
        for column in table.columns:
            entry = line.entries[column]
            numbers = [_rounded(value) for value in (entry.mean, entry.deviation, entry.paper)]
            writer.writerow([line.name, line.family, column, table.number, len(entry.values), *numbers, entry.mark])
    return file.getvalue()


def as_json(table: Table) -> str:
    """Everything, with the value of every seed."""
    told = {
        "suite": table.suite,
        "number": table.number,
        "notes": list(table.notes),
        "tasks": list(table.tasks),
        "rows": [_line_json(table, line) for line in table.lines],
        "comparisons": [_comparison_json(comparison) for comparison in table.comparisons],
    }
    return json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _line_json(table: Table, line: Line) -> dict[str, Any]:
    entries = {column: _entry_json(line.entries[column]) for column in table.columns}
    return {"name": line.name, "family": line.family, "cells": entries}


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "mean": _rounded(entry.mean),
        "deviation": _rounded(entry.deviation),
        "seeds": {str(seed): _rounded(value) for seed, value in entry.values.items()},
        "paper": _rounded(entry.paper),
        "mark": entry.mark,
    }


def _comparison_json(comparison: Comparison) -> dict[str, Any]:
    interval = comparison.interval
    return {
        "row": comparison.row,
        "other": comparison.other,
        "pairs": comparison.num_pairs,
        "difference": _rounded(comparison.difference),
        "interval": [_rounded(value) for value in interval] if interval else None,
        "p_t": _rounded(comparison.p_t, 6),
        "p_permutation": _rounded(comparison.p_permutation, 6),
    }


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


WRITERS: dict[Format, Callable[[Table], str]] = {
    "text": plain_text,
    "markdown": markdown,
    "latex": latex,
    "csv": comma_separated,
    "json": as_json,
}
